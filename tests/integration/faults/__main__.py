"""Strikes at every failpoint on one broker: ``python -m tests.integration.faults [--only PART] [--at-once N]``.

Prints a line for each point and action, and the failpoints that nothing passed. Ends with an error if anything failed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from penstock.state.failpoints import FAILPOINTS
from penstock.streams.kafka.embedded import EmbeddedKafka
from tests.integration.faults.scenarios import ACTIONS, strike


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="points whose names hold this, commas between several")
    parser.add_argument("--actions", default=",".join(ACTIONS))
    parser.add_argument("--at-once", type=int, default=6)
    options = parser.parse_args()
    wanted = options.only.split(",")
    cases = [(p, a) for a in options.actions.split(",") for p in FAILPOINTS if any(part in p for part in wanted)]
    failed, passed, results = 0, set[str](), {}
    begun_s = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="failpoints-") as name,
        EmbeddedKafka() as cluster,
        ThreadPoolExecutor(options.at_once) as pool,
    ):
        running = {}
        for number, (point, action) in enumerate(cases):
            folder = Path(name) / str(number)
            folder.mkdir()
            running[pool.submit(strike, cluster.bootstrap_servers, folder, point, action)] = (point, action)
        for done in as_completed(running):
            case = running[done]
            error = done.exception()
            if error is None:
                passed |= done.result()
            results[case] = "exact" if error is None else f"FAILED: {type(error).__name__}: {str(error)[:2_000]}"
            failed += error is not None
            print(f"{case[0]:<26} {case[1]:<5} {results[case]}", flush=True)
    print(f"\n{len(cases)} cases, {failed} failed, {time.monotonic() - begun_s:.0f} s")
    print("\n| failpoint | " + " | ".join(ACTIONS) + " |\n| --- | " + "--- | " * len(ACTIONS))
    for point in FAILPOINTS:
        row = [results.get((point, action), "").partition(":")[0] for action in ACTIONS]
        if any(row):
            print(f"| `{point}` | " + " | ".join(row) + " |")
    if not options.only:
        missing = sorted(set(FAILPOINTS) - passed)
        print(f"passed by nothing: {missing or 'none'}")
        failed += len(missing)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
