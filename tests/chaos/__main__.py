"""``python -m tests.chaos``: random runs, one seed after the other, until the time is over; then a row in the ledger.

Ends with 1 if a run was wrong, or void: it could not be judged. What such a run leaves behind is in
``var/chaos/<seed>``.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from pathlib import Path

from tests.chaos.cluster import ChaosCluster
from tests.chaos.ledger import LEDGER, row_of, with_row
from tests.chaos.random_faults import WEIGHTS
from tests.chaos.random_run import RunResult, random_run

ROOT = Path(__file__).parents[2]
GUARANTEES = ("exactly_once", "at_least_once")


def main() -> int:
    """Run; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seeds", type=int, default=0, help="how many runs at most (default: as many as time allows)")
    parser.add_argument(
        "--start", type=int, default=int(time.time()) % 1_000_000, help="the first seed (default: by the clock)"
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="begin no run after this time (default: 10)")
    parser.add_argument("--seconds", type=float, default=75.0, help="how long faults strike in each run (default: 75)")
    parser.add_argument("--guarantee", choices=GUARANTEES, default="exactly_once")
    parser.add_argument(
        "--broker-weight",
        type=int,
        default=WEIGHTS["broker"],
        help="how often a fault is a killed broker, where kills have 34 (default: 16)",
    )
    parser.add_argument(
        "--spare", nargs="+", default=[], metavar="WORKER", help="never kill these, w0 to w3: freeze them only"
    )
    parser.add_argument(
        "--setting", nargs="+", default=[], metavar="NAME=VALUE", help="of every worker: memory_max_bytes=201326592"
    )
    parser.add_argument("--no-ledger", action="store_true", help="write no row")
    args = parser.parse_args()
    results: list[RunResult] = []
    void = 0
    weights = {"broker": args.broker_weight}
    settings = dict(setting.split("=", 1) for setting in args.setting)
    until = time.monotonic() + args.minutes * 60
    folder = ROOT / "var" / "chaos"
    with ChaosCluster() as cluster:
        seed = args.start
        while time.monotonic() < until and (not args.seeds or len(results) + void < args.seeds):
            try:
                result = random_run(
                    cluster, seed, args.guarantee, args.seconds, folder / str(seed), say, weights, args.spare, settings
                )
            except Exception:
                say(f"seed {seed}, VOID: {traceback.format_exc()}")
                void, seed = void + 1, seed + 1
                continue
            results.append(result)
            with (folder / "results.jsonl").open("a") as file:
                file.write(json.dumps(result.as_json()) + "\n")
            say(f"seed {seed}, {'right' if result.right else 'WRONG'}: {dict(result.faults)}, {result.verdict}")
            say(f"seed {seed}: restores {dict(result.restores)}, needless {result.needless}, ended {result.ended}")
            say(f"seed {seed}: stopped with {result.statuses}; converged in {result.converged_s} s")
            say(f"seed {seed}: memory of the longest life: {result.memory}")
            seed += 1
    if results and not args.no_ledger:
        LEDGER.write_text(with_row(LEDGER.read_text(), row_of(results)))
    return 0 if all(r.right for r in results) and not void else 1


def say(text: str) -> None:
    """Print at once, with the time."""
    print(time.strftime("%H:%M:%S"), text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
