"""``make differential``: Penstock and other systems themselves run the same random programs; every answer is compared.

``make differential SEEDS=100 KINDS='table* foreign*'``: other numbers, some kinds. ``FROM=30``: other seeds.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from fnmatch import fnmatchcase

from tests.differential.judging import SYSTEMS, verdicts_of
from tests.differential.maven import CannotBuild
from tests.differential.report import lines, unseen

SEEDS_FOR_ALL = 100
"""With so many of all kinds, departures that do not show are told."""


def main(arguments: Sequence[str]) -> int:
    """Print a table for each system; 1 when something is unexplained. Departures that many seeds did not meet are told."""
    asked = _parser().parse_args(arguments)
    found, wrong = False, False
    for system in (SYSTEMS[name] for name in asked.systems):
        kinds = [kind for kind in system.kinds if any(fnmatchcase(kind, pattern) for pattern in asked.kinds)]
        if not kinds:
            continue
        seeds = range(asked.first, asked.first + (asked.seeds or system.seeds))
        found = True
        try:
            verdicts = list(verdicts_of(system, kinds, seeds, asked.workers))
        except CannotBuild as exc:
            print(exc, file=sys.stderr)
            return 2
        print("\n".join(lines(system, verdicts, every_kind=asked.every_kind)), end="\n\n")
        stale = unseen(system, verdicts) if asked.kinds == ["*"] and len(seeds) >= SEEDS_FOR_ALL else []
        for name in stale:
            print(f"departure {name!r} was not met; take it out of the known ones if it is none any more")
        wrong |= any(v.unexplained_count for v in verdicts)
    if not found:
        known = ", ".join(kind for name in asked.systems for kind in SYSTEMS[name].kinds)
        print(f"no kind is called {' or '.join(asked.kinds)}; there are: {known}", file=sys.stderr)
        return 2
    return 1 if wrong else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make differential", description=__doc__)
    parser.add_argument("--systems", nargs="*", default=list(SYSTEMS), choices=list(SYSTEMS), help="compare with these")
    parser.add_argument(
        "--seeds", type=int, default=0, help="how many random programs of each kind; 0: as each system has"
    )
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first seed")
    parser.add_argument("--kinds", nargs="*", default=["*"], help="names or patterns of kinds")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--every-kind", action="store_true", help="also list kinds without any difference")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
