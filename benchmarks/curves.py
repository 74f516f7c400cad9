"""``python -m benchmarks.curves PART``: what a record costs Penstock with more of something.

| part | what grows | workloads |
| --- | --- | --- |
| ``records`` | records drained, 1 M to 50 M, within one run | ``ysb`` |
| ``keys`` | keys: 1, 2, 5, 10 M, of ``enrich`` 100 M too | ``keyed-count``, ``enrich`` |
| ``partitions`` | partitions of every topic: 1, 4, 16 | ``ysb``, ``keyed-count`` |
| ``processes`` | worker processes: 1, 2 | the four showcases |
| ``windows`` | the windows: 10 s, 1 min, 10 min | ``ysb`` |

Each point is the steady part of its own run, repeated by turns; what counts keys reads two records per key at least.
``records`` is one run: a point is the part of it between two marks. With a hundred million keys the answer of
``keyed-count`` does not fit into memory; ten million with a tenth of the stores' memory (``--set``, see ``TENTH``) stand
for them in the same proportion.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from benchmarks.drain import Run, drain, summary
from benchmarks.harness import Budget, Opened, add_common, open_bench, say
from benchmarks.report import markdown, one_line
from benchmarks.systems import SYSTEMS
from benchmarks.topics import topic_of
from benchmarks.workloads import WORKLOADS, Variant

LARGE = 30_000_000
TENTH = {"PENSTOCK_ROCKSDB__ENTRIES_BYTES": "158000000", "PENSTOCK_ROCKSDB__BLOCK_CACHE_BYTES": "20000000"}
"""Settings that give the stores of a worker a tenth of the memory that they take by themselves on two cores and 24 GB."""
MARKS = (1_000_000, 2_000_000, 5_000_000, 10_000_000, 20_000_000, 50_000_000)


class Point(NamedTuple):
    """One run of a curve; ``x`` is what grows."""

    workload: str
    variant: Variant
    x: int
    processes: int = 1


def _keys(keys: int) -> list[Point]:
    return [Point(workload, Variant(keys=keys), keys) for workload in ("keyed-count", "enrich")]


def _partitions(count: int) -> list[Point]:
    return [Point(workload, Variant(partitions=count), count) for workload in ("ysb", "keyed-count")]


def _processes(count: int) -> list[Point]:
    return [Point(workload, Variant(), count, count) for workload in ("ysb", "wordcount", "enrich", "keyed-count")]


PARTS: dict[str, list[Point]] = {
    "keys": [point for millions in (1, 2, 5, 10) for point in _keys(millions * 1_000_000)]
    + [Point("enrich", Variant(keys=100_000_000), 100_000_000)],
    "partitions": [point for count in (1, 4, 16) for point in _partitions(count)],
    "processes": [point for count in (1, 2) for point in _processes(count)],
    "windows": [Point("ysb", Variant(window_ms=ms), ms) for ms in (10_000, 60_000, 600_000)],
}


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.curves", description="Cost per record against size.")
    parser.add_argument("part", choices=["records", *PARTS])
    parser.add_argument("--system", choices=list(SYSTEMS), default="penstock")
    parser.add_argument("--guarantee", choices=["ALO", "EOS"], default="ALO")
    parser.add_argument("--repetitions", type=int, default=2, help="of each point (default: %(default)s)")
    parser.add_argument("--points", nargs="+", type=int, help="only these numbers of what grows (all)")
    parser.add_argument("--most", type=int, default=MARKS[-1], help="records of the part 'records' (%(default)s)")
    parser.add_argument("--budget-min", type=float, default=60.0, help="minutes after which no point is begun")
    add_common(parser)
    return parser.parse_args(argv)


def records_of(point: Point) -> int:
    """The workload's own records; of one whose keys come with its records, two per key if that is more."""
    workload = WORKLOADS[point.workload]
    own = workload.records["penstock"]
    return max(own, 2 * point.variant.keys) if workload.name == "keyed-count" else own


def between_marks(
    samples: Sequence[tuple[float, float, int, int]], marks: Sequence[int]
) -> Iterator[tuple[int, float]]:
    """From a run's samples (seconds, CPU-seconds, bytes, committed), for each mark reached: the mark, and CPU-seconds per
    million records since the mark before; the first counts from the first commit."""
    before = samples[0] if samples else None
    for mark in marks:
        reached = next((sample for sample in samples if sample[3] >= mark), None)
        if before is None or reached is None or reached[3] <= before[3]:
            continue
        yield mark, (reached[1] - before[1]) / (reached[3] - before[3]) * 1e6
        before = reached


def drained(opened: Opened, point: Point, records: int, options: argparse.Namespace) -> tuple[Run, dict[str, Any]]:
    """One run and its figures; its input is removed again if it is large."""
    bench = opened.bench(point.variant)
    bench.threads = point.processes
    run = drain(bench, SYSTEMS[options.system], point.workload, options.guarantee, records)
    found = {**summary(bench, run), "part": options.part, "x": point.x}
    say(f"  {found['void'] or one_line(found)}")
    if records > LARGE:
        bench.log.delete([topic_of(WORKLOADS[point.workload].data_set, records, point.variant)])
    return run, found


def growing(opened: Opened, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The points of a part, each as often as told, in turns."""
    budget = Budget(options.budget_min)
    for repetition in range(options.repetitions):
        for point in PARTS[options.part]:
            if options.points and point.x not in options.points:
                continue
            what = f"{options.part} {point.x:,}: {point.workload} {repetition + 1} of {options.repetitions}"
            if not budget.allows(what):
                return
            say(what)
            yield drained(opened, point, records_of(point), options)[1]


def lengthening(opened: Opened, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The marks of one long run."""
    for repetition in range(options.repetitions):
        say(f"records: ysb {options.most:,}, {repetition + 1} of {options.repetitions}")
        run, found = drained(opened, Point("ysb", Variant(), options.most), options.most, options)
        if found["void"]:
            yield found
            return
        for mark, cost in between_marks(run.samples, MARKS):
            yield {**found, "x": mark, "cpu_s_per_million": cost}


def main(argv: list[str] | None = None) -> int:
    """Measure and print."""
    options = arguments(argv)
    rows = []
    options.limit = max(options.limit, options.most / 50_000)
    with open_bench(options) as opened:
        keeper = opened.bench()
        for found in (lengthening if options.part == "records" else growing)(opened, options):
            keeper.write("curve", found)
            cost = "-" if found["void"] else f"{found['cpu_s_per_million']:.2f}"
            rows.append([found["workload"], f"{found['x']:,}", cost, found["void"] or "equal"])
    print(markdown(["workload", options.part, "CPU s/M", "check"], rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
