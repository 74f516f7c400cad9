"""``make differential``: Penstock and other systems themselves run the same random programs; every answer is compared.

``make differential SEEDS=100 KINDS='table* foreign*'``: other numbers, some kinds. ``FROM=30``: other seeds.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from fnmatch import fnmatchcase

from tests.differential.java_side import JavaSide
from tests.differential.judge import Verdict, judged
from tests.differential.kafka_streams_side import KAFKA_STREAMS, KINDS, runs_of
from tests.differential.maven import CannotBuild, java_command
from tests.differential.report import lines, unseen

SEEDS = 30
SEEDS_FOR_ALL = 100
"""With so many of all kinds, every departure shows."""
_JAVA: dict[str, JavaSide] = {}
"""This process's Java processes, by project."""


def verdict_of(kind: str, seeds: range) -> Verdict:
    """Judge one kind, with this process's Java side."""
    project = KAFKA_STREAMS.project
    if project not in _JAVA:
        _JAVA[project] = JavaSide(project)
    return judged(KAFKA_STREAMS, _JAVA[project], kind, runs_of(kind, seeds))


def verdicts_of(kinds: Sequence[str], seeds: range, workers: int) -> Iterator[Verdict]:
    """Judge kinds in several processes, each with a Java process of its own; in the order of the kinds."""
    java_command(KAFKA_STREAMS.project, "differential.Main")  # built once, before all of them ask
    with ProcessPoolExecutor(workers) as pool:
        yield from pool.map(verdict_of, kinds, [seeds] * len(kinds))


def main(arguments: Sequence[str]) -> int:
    """Print the table; 1 when something is unexplained, or a departure was not met by many seeds of all kinds."""
    parser = argparse.ArgumentParser(prog="make differential", description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS, help="how many random programs of each kind")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first seed")
    parser.add_argument("--kinds", nargs="*", default=["*"], help="names or patterns of kinds")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--every-kind", action="store_true", help="also list kinds without any difference")
    asked = parser.parse_args(arguments)
    kinds = [kind for kind in KINDS if any(fnmatchcase(kind, pattern) for pattern in asked.kinds)]
    if not kinds:
        print(f"no kind is called {' or '.join(asked.kinds)}; there are: {', '.join(KINDS)}", file=sys.stderr)
        return 2
    try:
        verdicts = list(verdicts_of(kinds, range(asked.first, asked.first + asked.seeds), asked.workers))
    except CannotBuild as exc:
        print(exc, file=sys.stderr)
        return 2
    for line in lines(KAFKA_STREAMS, verdicts, every_kind=asked.every_kind):
        print(line)
    stale = unseen(KAFKA_STREAMS, verdicts) if asked.kinds == ["*"] and asked.seeds >= SEEDS_FOR_ALL else []
    for name in stale:
        print(f"departure {name!r} was not met; take it out of known.py if it is none any more")
    return 1 if stale or any(v.unexplained_count for v in verdicts) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
