"""Throughput: a system drains a topic that is full already, under a new application id, and its answer is checked.

A run is done when the positions that the group has committed reach the end of the input and of the application's
repartition topics. ``steady.py`` says which part of it gives the rate and the CPU-seconds.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import statistics
import subprocess
import time
from collections.abc import Callable, Collection
from typing import Any

from benchmarks import oracle, workloads
from benchmarks.bench import Bench
from benchmarks.oracle import Tally, Verdict
from benchmarks.processes import machine_cpu_s, stop, tree, usage
from benchmarks.steady import Sample, Steady, changes, steady
from benchmarks.systems import System, UnavailableError
from benchmarks.workloads import WORKLOADS

SAMPLE_S = 0.2
# Longer than two commit intervals: nothing more is to come.
QUIET_S = 2.5


@dataclasses.dataclass
class Run:
    """One run. Times count from the process's start to the commit of the last record; void unless ``verdict`` is
    right. ``writes``: records in the output, changelogs and repartition topics, transaction markers among them.
    ``rest_bytes``: resident while nothing more came. ``samples``: of every commit that was seen, when it was (seconds
    since the start), CPU-seconds, resident bytes and committed records."""

    system: str
    workload: str
    guarantee: str
    records: int
    verdict: Verdict
    steady: Steady | None = None
    seconds: float = math.nan
    cpu_s: float = math.nan
    broker_cpu_s: float = math.nan
    peak_bytes: int = 0
    rest_bytes: int = 0
    outputs: int = 0
    writes: int = 0
    samples: list[tuple[float, float, int, int]] = dataclasses.field(default_factory=list)

    @property
    def void(self) -> str:
        """Why the run tells nothing; empty if it does."""
        return "" if self.verdict.right and self.steady is not None else self.verdict.reason


def drain(bench: Bench, system: System, workload: str, guarantee: str, records: int) -> Run:
    """One run; whatever goes wrong is in its verdict."""
    run = Run(system.name, workload, guarantee, records, Verdict(False, ""))
    topic = bench.load(workload, records)
    application = bench.new_application(system, workload)
    bench.log.create(f"{application}-out")
    broker_before_s, began = bench.broker_cpu_s(), time.monotonic()
    try:
        process = bench.start(system, workload, guarantee, application, topic, {})
    except UnavailableError as error:
        bench.clean(application)
        run.verdict = Verdict(False, str(error))
        return run
    try:
        samples, done = watch(bench, process, application, topic, records, guarantee)
    finally:
        stop(process)
    run.peak_bytes = max((sample.resident_bytes for sample in samples), default=0)
    if done is None:
        seen = samples[-1] if samples else Sample(0, 0, 0, 0, 0, 0, 0)
        run.verdict = Verdict(
            False,
            f"not done after {time.monotonic() - began:.0f} s (exit code {process.returncode}, {seen.committed:,} of "
            f"{records:,} committed, {seen.waiting:,} waiting for repartition), see logs/{application}.log",
        )
    else:
        run.seconds, run.cpu_s = done.at_s - began, done.cpu_s
        run.broker_cpu_s = done.broker_cpu_s - broker_before_s
        run.rest_bytes = int(statistics.median(s.resident_bytes for s in samples if s.at_s >= done.at_s))
        run.samples = [(round(s.at_s - began, 2), round(s.cpu_s, 2), s.resident_bytes, s.committed)
                       for s in changes(samples)]  # fmt: skip
        run.outputs = bench.log.count(f"{application}-out")
        internal = [t for kind in ("changelog", "repartition") for t in bench.log.internal_topics(application, kind)]
        run.writes = run.outputs + sum(map(bench.log.count, set(internal)))
        run.verdict = check(bench, system, workload, records, application)
        part = steady(samples, records)
        if isinstance(part, Steady):
            run.steady = part
        elif run.verdict.right:
            run.verdict = Verdict(False, part)
    bench.clean(application)
    facts = {**dataclasses.asdict(run), "steady": run.steady._asdict() if run.steady else None}
    bench.write("run", {**facts, "application": application})
    return run


def _others_cpu_s(bench: Bench) -> float:
    """What the machine spent outside broker and harness; the system under test is still in it."""
    broker_s = bench.broker_cpu_s()
    return machine_cpu_s() - (0.0 if math.isnan(broker_s) else broker_s) - sum(os.times()[:2])


def watch(
    bench: Bench,
    process: subprocess.Popen[bytes],
    application: str,
    topic: str | Collection[str],
    records: int,
    guarantee: str,
    quiet_s: float = QUIET_S,
) -> tuple[list[Sample], Sample | None]:
    """Sample until the run is done and nothing has come for ``quiet_s``, the process ends, or the limit passes; the
    first sample of the final state."""
    samples: list[Sample] = []
    began = changed_s = time.monotonic()
    first: Sample | None = None
    # Transaction markers may lie behind the last record of a repartition topic's partition.
    most_waiting = 3 * bench.variant.partitions if guarantee == "EOS" else 0
    while time.monotonic() - began < bench.limit_s:
        if process.poll() is not None:
            return samples, None
        cost = usage(tree(process.pid))
        broker_s, now = bench.broker_cpu_s(), time.monotonic()
        progress = bench.log.progress(application, topic)
        if progress is not None:
            sample = Sample(now, cost.cpu_s, cost.resident_bytes, broker_s, _others_cpu_s(bench), *progress)
            samples.append(sample)
            if first is None or progress != (first.committed, first.waiting):
                first, changed_s = sample, now
            finished = progress.committed >= records and 0 <= progress.waiting <= most_waiting
            if finished and now - changed_s > quiet_s:
                return samples, first
        time.sleep(SAMPLE_S)
    return samples, None


def check(bench: Bench, system: System, workload: str, records: int, application: str) -> Verdict:
    """Hold the answer in the log against the oracle's."""
    log = bench.log

    def remember(name: str, count: Callable[[], Tally]) -> Tally:
        path = bench.work / f"expected-{log.base_ms}-{name}.json"
        if not path.exists():
            path.write_text(json.dumps(count()))
        return Tally(*json.loads(path.read_text()))

    return WORKLOADS[workload].check(
        workloads.Run(
            records,
            log.base_ms,
            bench.variant,
            lambda: log.read(f"{application}-out"),
            lambda: stored_counts(bench, system, application),
            remember,
        )
    )


def stored_counts(bench: Bench, system: System, application: str) -> dict[str, int]:
    """The state of ``keyed-count`` as its changelog holds it."""
    changelogs = bench.log.internal_topics(application, "changelog")
    if not changelogs:
        return {}
    return oracle.last_counts(bench.log.read(changelogs[0]), system.count_key, system.count_value)


def summary(bench: Bench, run: Run) -> dict[str, Any]:
    """The run's figures as plain values."""
    facts: dict[str, Any] = {
        "system": run.system,
        "workload": run.workload,
        "guarantee": run.guarantee,
        "records": run.records,
        "void": run.void,
        "threads": bench.threads,
        "variant": dataclasses.asdict(bench.variant),
        "set": bench.extra,
        "session": bench.results.stem,
    }
    if run.steady is not None and not run.void:
        facts |= {
            **run.steady._asdict(),
            "records": run.records,
            "steady_s": run.steady.seconds,
            "whole_s": run.seconds,
            "whole_cpu_s": run.cpu_s,
            "peak_bytes": run.peak_bytes,
            "rest_bytes": run.rest_bytes,
            "outputs_per_input": run.outputs / run.records,
            "writes_per_input": run.writes / run.records,
            "check": run.verdict.reason,
        }
        del facts["seconds"]
    return facts
