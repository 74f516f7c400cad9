"""``python -m tests.simulation.swarm --seeds 500 [--from N] [--one SEED] [--events 2000]``"""

from __future__ import annotations

import argparse
import sys
import time

from tests.simulation.swarm.hunt import Result, report, run_seed


def main() -> int:
    """Run seeds; 1 when one of them fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.swarm", description=__doc__)
    parser.add_argument("--seeds", type=int, default=500)
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--one", type=int, help="this seed alone")
    parser.add_argument("--no-shrink", action="store_true")
    args = parser.parse_args()
    seeds = [args.one] if args.one is not None else range(args.first, args.first + args.seeds)
    began_s, events, failed = time.monotonic(), 0, list[Result]()
    for seed in seeds:
        result = run_seed(seed)
        events += result.events
        if result.wrong is not None:
            failed.append(result)
            lines = [f"seed {seed}: {result.wrong}"] if args.no_shrink else report(result)
            print(*lines, sep="\n", flush=True)
    took_s = time.monotonic() - began_s
    print(f"{len(seeds)} seeds, {events} events, {len(failed)} failed, {took_s:.1f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
