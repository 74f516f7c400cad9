"""``python -m benchmarks.heap``: the smallest heap with which Kafka Streams keeps 90 % of its rate, and the memory that it
and Penstock then take, Penstock as it comes and with the smallest ``memory_max_bytes``. The heap is looked for by halving
the list of heaps: a rate only falls as the heap shrinks.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from benchmarks.bench import Bench
from benchmarks.drain import drain
from benchmarks.harness import add_common, open_bench, say
from benchmarks.report import markdown
from benchmarks.systems import GUARANTEES, KAFKA_STREAMS, PENSTOCK, System
from benchmarks.workloads import WORKLOADS
from penstock.streams.runtime.memory_budget import LEAST_BYTES

FIRST_MB, LEAST_MB = 2_048, 16
HEAPS_MB = [LEAST_MB << step for step in range(7)]
"""Those below the first, ascending."""
KEPT = 0.9
BOUND = "PENSTOCK_MEMORY_MAX_BYTES"


class Try(NamedTuple):
    """One heap; the rate is 0 if it did not get through."""

    heap_mb: int
    records_per_s: float
    peak_bytes: int
    rest_bytes: int


def smallest(rate: Callable[[int], Try], kept: float = KEPT) -> tuple[list[Try], Try | None]:
    """All tries, and the smallest heap among them that keeps the part of the first one's rate, which is the mean of two. A
    heap that does not is tried once more: a run disturbed must not make the peer's heap larger. ``None`` if the first did
    not get through."""
    tries = [rate(FIRST_MB), rate(FIRST_MB)]
    if not all(one.records_per_s for one in tries):
        return tries, None
    needed, good = kept * statistics.mean(one.records_per_s for one in tries), tries[0]
    low, high = 0, len(HEAPS_MB)
    while low < high:
        middle = (low + high) // 2
        tries.append(rate(HEAPS_MB[middle]))
        if 0 < tries[-1].records_per_s < needed:
            tries.append(rate(HEAPS_MB[middle]))
        if tries[-1].records_per_s >= needed:
            good, high = tries[-1], middle
        else:
            low = middle + 1
    return tries, good


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.heap", description="The smallest heap that is enough.")
    known = [name for name, workload in WORKLOADS.items() if "kafka-streams" in workload.records]
    parser.add_argument("--workloads", nargs="+", choices=known, metavar="NAME", default=["ysb", "wordcount", "enrich",
                        "keyed-count"], help="of: %(choices)s (default: the first four)")  # fmt: skip
    parser.add_argument("--guarantee", choices=list(GUARANTEES), default="ALO")
    parser.add_argument(
        "--part",
        type=float,
        default=0.5,
        help="of Kafka Streams' records; Penstock drains all of its own (%(default)s)",
    )
    add_common(parser)
    return parser.parse_args(argv)


def tried(
    bench: Bench, system: System, workload: str, options: argparse.Namespace, heap_mb: int = 0, bound_bytes: int = 0
) -> Try:
    """One run, with a heap of this size or within this bound, if not 0."""
    limits = {"JDK_JAVA_OPTIONS": f"-Xmx{heap_mb}m" if heap_mb else "", BOUND: str(bound_bytes or "")}
    for name, value in limits.items():
        bench.extra.pop(name, None)
        if value:
            bench.extra[name] = value
    part = options.part if heap_mb else 1.0
    records = int(WORKLOADS[workload].records[system.program] * part)
    run = drain(bench, system, workload, options.guarantee, records)
    rate = 0.0 if run.void or run.steady is None else run.steady.records_per_s
    limit = f"-Xmx{heap_mb}m" if heap_mb else f"within {bound_bytes:,}" if bound_bytes else ""
    say(f"{workload} {system.name} {limit}: {run.void or format(rate, ',.0f')}")
    return Try(heap_mb, rate, run.peak_bytes, run.rest_bytes)


def searched(bench: Bench, workload: str, options: argparse.Namespace) -> dict[str, Any]:
    """One workload, as plain values."""
    ours = tried(bench, PENSTOCK, workload, options)
    bounded = tried(bench, PENSTOCK, workload, options, bound_bytes=LEAST_BYTES)
    tries, found = smallest(lambda heap_mb: tried(bench, KAFKA_STREAMS, workload, options, heap_mb))
    return {
        "workload": workload,
        "guarantee": options.guarantee,
        "part": options.part,
        "tries": [one._asdict() for one in tries],
        "smallest": found._asdict() if found else None,
        "penstock": ours._asdict(),
        "bounded": {**bounded._asdict(), "memory_max_bytes": LEAST_BYTES},
        "void": "" if found and ours.records_per_s and bounded.records_per_s else "a run did not get through",
    }


def table(results: list[dict[str, Any]]) -> str:
    """Resident megabytes of both, and the rate that each then had."""
    rows = []
    for result in results:
        if result["void"]:
            rows.append([result["workload"], *["-"] * 6, f"VOID: {result['void']}"])
            continue
        theirs = result["smallest"]
        tries = ", ".join(f"{one['heap_mb']}: {one['records_per_s']:,.0f}/s" for one in result["tries"])
        rows.append([result["workload"], f"kafka-streams -Xmx{theirs['heap_mb']}m", *_memory(theirs, theirs), tries])
        rows.append([result["workload"], "penstock", *_memory(result["penstock"], theirs), ""])
        if bounded := result.get("bounded"):
            limit = f"penstock, memory_max_bytes of {bounded['memory_max_bytes'] / 1e6:,.0f} MB"
            rows.append([result["workload"], limit, *_memory(bounded, theirs), ""])
    head = ["workload", "system", "records/s", "peak MB", "at rest MB", "peak ratio", "rest ratio"]
    return markdown([*head, "heaps tried, MB: rate"], rows)


def _memory(one: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    sizes = [f"{one[field] / 1e6:,.0f}" for field in ("peak_bytes", "rest_bytes")]
    ratios = [f"{one[field] / theirs[field]:.2f}" for field in ("peak_bytes", "rest_bytes")]
    return [f"{one['records_per_s']:,.0f}", *sizes, *ratios]


def main(argv: list[str] | None = None) -> int:
    """Search and print."""
    options = arguments(argv)
    found = []
    with open_bench(options) as opened:
        bench = opened.bench()
        for workload in options.workloads:
            found.append(searched(bench, workload, options))
            bench.write("heap", found[-1])
    print(table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
