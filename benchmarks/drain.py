"""Throughput: a system drains a topic that is already full, under a new application id, and its answer is checked.

A run is done when the positions that the group has committed reach the end of the input and of the application's
repartition topics. A rate is the difference of two runs of unequal size, so that start-up, warm-up and the loading of
tables cancel; likewise CPU-seconds.
"""

from __future__ import annotations

import dataclasses
import math
import os
import subprocess
import time
from typing import Any, NamedTuple

from benchmarks import oracle
from benchmarks.bench import Bench
from benchmarks.oracle import Verdict
from benchmarks.processes import machine_cpu_s, stop, tree, usage
from benchmarks.systems import DATA_SETS, TABLES, System, UnavailableError
from benchmarks.topics import PARTITIONS, Progress

SAMPLE_S = 0.2
# Longer than two commit intervals: nothing more is to come.
QUIET_S = 2.5
# Transaction markers that may lie behind the last record of a repartition topic's partition.
MARKERS = 3 * PARTITIONS


class Sample(NamedTuple):
    """What was seen at one moment of a run; CPU since its start."""

    at_s: float
    cpu_s: float
    resident_bytes: int
    broker_cpu_s: float
    others_cpu_s: float
    progress: Progress


@dataclasses.dataclass
class Run:
    """One run. Times count from the process's start to the commit of the last record; void unless ``verdict`` is
    right. ``others_cores``: how many cores were busy with what is neither the system, nor the broker, nor the harness."""

    system: str
    workload: str
    guarantee: str
    records: int
    verdict: Verdict
    seconds: float = math.nan
    cpu_s: float = math.nan
    broker_cpu_s: float = math.nan
    others_cores: float = math.nan
    peak_bytes: int = 0
    outputs: int = 0


@dataclasses.dataclass
class Pair:
    """Two runs of unequal size; the figures are not numbers when a run is void."""

    small: Run
    large: Run

    @property
    def void(self) -> str:
        """Why the pair tells nothing; empty if it does."""
        if wrong := [
            f"{run.records:,}: {run.verdict.reason}" for run in (self.small, self.large) if not run.verdict.right
        ]:
            return "; ".join(wrong)
        return "" if self.large.seconds > self.small.seconds else "the larger run was not the longer one: noise"

    @property
    def records_per_s(self) -> float:
        """Steady rate."""
        return (self.large.records - self.small.records) / (self.large.seconds - self.small.seconds)

    def cpu_per_million(self, field: str) -> float:
        """CPU-seconds per million records: ``cpu_s`` of the system, or ``broker_cpu_s``."""
        spent: float = getattr(self.large, field) - getattr(self.small, field)
        return spent / (self.large.records - self.small.records) * 1e6


def drain(bench: Bench, system: System, workload: str, guarantee: str, records: int) -> Run:
    """One run; whatever goes wrong is in its verdict."""
    topic = bench.log.load(DATA_SETS[workload], records)
    if workload in TABLES:
        bench.log.load(*TABLES[workload])
    application = bench.new_application(system, workload)
    bench.log.create(f"{application}-out")
    broker_before_s, others_before_s, began = bench.broker_cpu_s(), _others_cpu_s(bench), time.monotonic()
    try:
        process = bench.start(system, workload, guarantee, application, topic, {})
    except UnavailableError as error:
        bench.clean(application)
        return Run(system.name, workload, guarantee, records, Verdict(False, str(error)))
    try:
        samples, done = watch(bench, process, application, topic, records, guarantee)
    finally:
        stop(process)
    run = Run(system.name, workload, guarantee, records, Verdict(False, ""))
    run.peak_bytes = max((sample.resident_bytes for sample in samples), default=0)
    if done is None:
        seen = samples[-1].progress if samples else Progress(0, 0)
        run.verdict = Verdict(
            False,
            f"not done after {time.monotonic() - began:.0f} s (exit code {process.returncode}, {seen.committed:,} of "
            f"{records:,} committed, {seen.waiting:,} waiting for repartition), see logs/{application}.log",
        )
    else:
        run.seconds, run.cpu_s = done.at_s - began, done.cpu_s
        run.broker_cpu_s = done.broker_cpu_s - broker_before_s
        run.others_cores = (done.others_cpu_s - others_before_s - run.cpu_s) / run.seconds
        run.outputs = bench.log.count(f"{application}-out")
        run.verdict = check(bench, system, workload, records, application)
    bench.clean(application)
    bench.write("run", {**dataclasses.asdict(run), "application": application, "threads": bench.threads})
    return run


def _others_cpu_s(bench: Bench) -> float:
    """What the machine spent outside broker and harness; the system under test is still in it."""
    broker_s = bench.broker_cpu_s()
    return machine_cpu_s() - (0.0 if math.isnan(broker_s) else broker_s) - sum(os.times()[:2])


def watch(
    bench: Bench, process: subprocess.Popen[bytes], application: str, topic: str, records: int, guarantee: str
) -> tuple[list[Sample], Sample | None]:
    """Sample until the run is done, the process ends, or the limit passes; the first sample of the final state."""
    samples: list[Sample] = []
    began = changed_s = time.monotonic()
    first: Sample | None = None
    most_waiting = MARKERS if guarantee == "EOS" else 0
    while time.monotonic() - began < bench.limit_s:
        if process.poll() is not None:
            return samples, None
        cost = usage(tree(process.pid))
        broker_s, now = bench.broker_cpu_s(), time.monotonic()
        progress = bench.log.progress(application, topic)
        if progress is not None:
            sample = Sample(now, cost.cpu_s, cost.resident_bytes, broker_s, _others_cpu_s(bench), progress)
            samples.append(sample)
            if first is None or progress != first.progress:
                first, changed_s = sample, now
            finished = progress.committed >= records and 0 <= progress.waiting <= most_waiting
            if finished and now - changed_s > QUIET_S:
                return samples, first
        time.sleep(SAMPLE_S)
    return samples, None


def check(bench: Bench, system: System, workload: str, records: int, application: str) -> Verdict:
    """Hold the answer in the log against the oracle's."""
    log, out = bench.log, f"{application}-out"
    if workload == "ysb":
        return oracle.compare_counts(oracle.views_per_window(records, log.base_ms), oracle.last_counts(log.read(out)))
    if workload == "wordcount":
        return oracle.compare_counts(oracle.uses_per_word(records), oracle.last_counts(log.read(out)))
    if workload == "enrich":
        return oracle.compare_enriched(records, log.read(out))
    return oracle.compare_counts(oracle.clicks_per_user(records), stored_counts(bench, system, application))


def stored_counts(bench: Bench, system: System, application: str) -> dict[str, int]:
    """The state of ``keyed-count`` as its changelog holds it."""
    changelogs = bench.log.internal_topics(application, "changelog")
    if not changelogs:
        return {}
    return oracle.last_counts(bench.log.read(changelogs[0]), system.count_key, system.count_value)


def drain_pair(bench: Bench, system: System, workload: str, guarantee: str, sizes: tuple[int, int]) -> Pair:
    """The small run, then the large one."""
    small, large = (drain(bench, system, workload, guarantee, records) for records in sizes)
    return Pair(small, large)


def summary(pair: Pair) -> dict[str, Any]:
    """The pair's figures as plain values."""
    facts: dict[str, Any] = {
        "system": pair.large.system,
        "workload": pair.large.workload,
        "guarantee": pair.large.guarantee,
        "sizes": [pair.small.records, pair.large.records],
        "void": pair.void,
    }
    if not pair.void:
        facts |= {
            "records_per_s": pair.records_per_s,
            "cpu_s_per_million": pair.cpu_per_million("cpu_s"),
            "broker_cpu_s_per_million": pair.cpu_per_million("broker_cpu_s"),
            "peak_bytes": pair.large.peak_bytes,
            "others_cores": max(pair.small.others_cores, pair.large.others_cores),
            "outputs_per_input": pair.large.outputs / pair.large.records,
            "check": pair.large.verdict.reason,
        }
    return facts
