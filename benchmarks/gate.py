"""``python -m benchmarks.gate``: has a cost of Penstock's grown? CPU-seconds per million records of ``ysb``, ``wordcount``,
``enrich``, ``keyed-count`` and ``restore`` against ``benchmarks/baselines/<kind of machine>.json``; ``regression.py`` says
how. Exit status: 0 no, 1 yes (or a void run), 2 nothing is stored for this kind of machine.

A workload that seems to have regressed gets as many repetitions again before it is said.

``--compare-with FOLDER`` needs no stored cost: the checkout there, made ready with ``make venv``, and this one drain the
same records at the same time, see ``side_by_side.py``. Pairs of runs go on until it is decided whether the cost grew by more
than three per cent. Memory of the same pairs is printed too. Exit status 1: a figure grew, or a run was void.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import time
from pathlib import Path

import numpy as np
import orjson

from benchmarks.bench import Bench
from benchmarks.drain import drain
from benchmarks.harness import add_common, open_bench, say
from benchmarks.machine import kind, machine
from benchmarks.regression import THRESHOLD, Comparison, Costs, Finding, Verdict, compare, judge, missing, stored
from benchmarks.report import markdown
from benchmarks.restore import RESTORE_SIZES, restore_pair
from benchmarks.side_by_side import GUARANTEE, Pair, VoidError, of_checkout, on, pairs, share_out_processors
from benchmarks.systems import PENSTOCK, System
from benchmarks.workloads import WORKLOADS

BASELINES = Path(__file__).parent / "baselines"
GATED = ("ysb", "wordcount", "enrich", "keyed-count", "restore")
REPETITIONS = 3
LEAST_PAIRS, MOST_PAIRS = 5, 20


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gate", description="Has a cost of Penstock's grown?")
    parser.add_argument("--workloads", nargs="+", choices=GATED, default=list(GATED), help="of: %(choices)s (all)")
    parser.add_argument("--repetitions", type=int, help="of each workload (3; to compare: 20 at most)")
    parser.add_argument("--part", type=float, default=1.0, help="of the benchmark's records (default: %(default)s)")
    parser.add_argument("--threshold", type=float, default=THRESHOLD, help="growth that fails (default: %(default)s)")
    parser.add_argument("--processor", type=int, help="run all on this one, the broker too: costs then vary less")
    parser.add_argument("--compare-with", type=Path, metavar="FOLDER", help="compare with the checkout in this folder")
    parser.add_argument("--update", action="store_true", help="store what is measured now, and pass")
    add_common(parser)
    return parser.parse_args(argv)


def loop_s() -> float:
    """CPU-seconds of a fixed loop of what Penstock's own cost is made of: dictionaries, small objects, JSON, memory."""
    text = b'{"user":"u0000042","url":"/page/00042","ts":1795219200000}'
    block = np.arange(1 << 22)
    began = time.process_time()
    for turn in range(8):
        counts: dict[bytes, int] = {}
        for place in range(60_000):
            key = b"%d" % (place * 7919 % 50_021)
            counts[key] = counts.get(key, turn) + 1
        sorted(counts)
        for _ in range(60_000):
            orjson.loads(text)
        np.sort(block[::-1].copy())
    return time.process_time() - began


def cost_of(bench: Bench, workload: str, part: float) -> float:
    """CPU-seconds per million records of one run. Raises ``VoidError``."""
    if workload == "restore":
        small, large = (int(records * part) for records in RESTORE_SIZES)
        found = restore_pair(bench, PENSTOCK, GUARANTEE, (small, large))
        if found["void"]:
            raise VoidError(f"restore: {found['void']}")
        return float(found["cpu_s_per_million"])
    run = drain(bench, PENSTOCK, workload, GUARANTEE, int(WORKLOADS[workload].records["penstock"] * part))
    if run.void or run.steady is None:
        raise VoidError(f"{workload}: {run.void}")
    return run.steady.cpu_s_per_million


def costs_of(bench: Bench, workload: str, repetitions: int, part: float) -> Costs:
    """Repetitions with the loop on both sides of each."""
    costs, loops = [], []
    for repetition in range(repetitions):
        before = loop_s()
        costs.append(cost_of(bench, workload, part))
        loops.append((before + loop_s()) / 2)
        say(f"{workload} {repetition + 1} of {repetitions}: {costs[-1]:.2f} CPU s/M, loop {loops[-1]:.3f} s")
    return Costs(costs, loops)


def compare_pairs(
    bench: Bench, systems: tuple[System, System], workload: str, most: int, part: float
) -> list[Comparison]:
    """Take pairs of runs until their cost is decided, ``most`` at most."""
    taken: list[Pair] = []
    found: list[Comparison] = []
    running = pairs(bench, workload, systems, part)
    next(running)
    for pair in itertools.islice(running, most):
        taken.append(pair)
        found = [compare(f"{workload} {name}", *zip(*(one[name] for one in taken), strict=True)) for name in pair]
        seen = ", ".join(f"{name} {here:.3g} / {there:.3g}" for name, (here, there) in pair.items())
        say(f"{workload} {len(taken)}: {seen}; {found[0].words}")
        if len(taken) >= LEAST_PAIRS and found[0].verdict is not Verdict.OPEN:
            break
    running.close()
    return found


def table(found: dict[str, Costs], findings: list[Finding]) -> str:
    """Costs and what they mean."""
    said = {finding.workload: finding.words for finding in findings}
    rows = [
        [
            workload,
            " / ".join(f"{cost:.2f}" for cost in costs.cpu_s_per_million),
            " / ".join(f"{loop:.3f}" for loop in costs.loop_s),
            said.get(workload, "stored"),
        ]
        for workload, costs in found.items()
    ]
    return markdown(["workload", "CPU s/M", "loop s", "against the stored cost"], rows)


def compared(options: argparse.Namespace) -> int:
    """Measure this checkout and another one at the same time."""
    processors = share_out_processors()
    systems = on(processors, PENSTOCK), on(processors, of_checkout(options.compare_with))
    found: list[Comparison] = []
    void = False
    with open_bench(options) as opened:
        for workload in options.workloads:
            try:
                found += compare_pairs(
                    opened.bench(), systems, workload, options.repetitions or MOST_PAIRS, options.part
                )
            except VoidError as error:
                void = True
                print(f"void: {error}")
    print(markdown(["figure", "here against there"], [[one.what, one.words] for one in found]))
    return int(void or any(one.verdict is Verdict.GREW for one in found))


def main(argv: list[str] | None = None) -> int:
    """Measure and compare, or store."""
    options = arguments(argv)
    if options.compare_with is not None:
        return compared(options)
    if options.processor is not None:
        os.sched_setaffinity(0, {options.processor})
    repetitions = options.repetitions or REPETITIONS
    path = BASELINES / f"{kind()}.json"
    kept = json.loads(path.read_text()) if path.exists() else {"workloads": {}}
    if not options.update and (absent := missing(kept, options.workloads)):
        print(f"{path.name} stores no cost of {', '.join(absent)}: run once with --update, and commit the file")
        return 2
    found: dict[str, Costs] = {}
    findings: list[Finding] = []
    with open_bench(options) as opened:
        bench = opened.bench()
        try:
            for workload in options.workloads:
                costs = costs_of(bench, workload, repetitions, options.part)
                if not options.update:
                    finding = judge(workload, costs, kept["workloads"][workload], options.threshold)
                    if finding.regressed:
                        say(f"{workload} {finding.words}: repeated before it is said")
                        again = costs_of(bench, workload, repetitions, options.part)
                        costs = Costs([*costs[0], *again[0]], [*costs[1], *again[1]])
                        finding = judge(workload, costs, kept["workloads"][workload], options.threshold)
                    findings.append(finding)
                found[workload] = costs
        except VoidError as error:
            print(f"void: {error}")
            return 1
    if options.update:
        kept["machine"] = machine()
        kept["workloads"] |= {workload: stored(costs) for workload, costs in found.items()}
        BASELINES.mkdir(exist_ok=True)
        path.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
    print(table(found, findings))
    return int(any(finding.regressed for finding in findings))


if __name__ == "__main__":
    sys.exit(main())
