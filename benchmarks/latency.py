"""Latency of ``enrich`` at a steady rate: from the moment at which a click is due until its enriched click is received.

The click carries the microsecond at which it was due, so a producer that falls behind is counted too, and a number, so that
a click which is lost and one that comes twice do not make up for each other. The receiver reads committed records only.
Measuring begins when the table is loaded and a while has passed.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from benchmarks.bench import Bench
from benchmarks.clicks import Clicks, Enriched, lost, settle
from benchmarks.live import Ints, Receiver, send_at_rate
from benchmarks.processes import stolen_cpu_s, stop, tree, usage
from benchmarks.systems import System, UnavailableError
from benchmarks.workloads import WORKLOADS

# Spark answers in batches that may take seconds each.
AFTER_S = 20.0
FIRST_OUTPUT_S = 120.0
# What a click waits for the sender's clock is in its latency, so the clock ticks faster than where seconds are measured.
TICK_S = 0.001
REPEATS_S = 0.5
"""How long repeated clicks may still come after the last one."""


class Load(NamedTuple):
    """Clicks a second, and how long they are sent before and while it is measured."""

    rate_per_s: int
    warm_s: float = 10.0
    measured_s: float = 30.0


def latency(
    bench: Bench,
    system: System,
    guarantee: str,
    load: Load,
    commit_ms: int = 100,
    environment: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """One measurement, as plain values; void unless every measured click came back with its own user's profile, under
    ``EOS`` exactly once; under ``ALO`` ``repeated`` says how many came again."""
    bench.log.load("users", WORKLOADS["enrich"].table_rows(bench.variant))
    application = bench.new_application(system, "latency")
    for suffix in ("in", "out"):
        bench.log.create(f"{application}-{suffix}")
    facts: dict[str, Any] = {"system": system.name, "guarantee": guarantee, "rate_per_s": load.rate_per_s, "void": ""}
    more = {"COMMIT_MS": str(commit_ms), **(environment or {})}
    try:
        process = bench.start(system, "enrich", guarantee, application, f"{application}-in", more)
    except UnavailableError as error:
        bench.clean(application)
        return {**facts, "void": str(error)}
    enriched = Enriched(lambda user: f"User Number {user:07d}")
    receiver = _receiver(bench, f"{application}-out", enriched)
    try:
        clicks = _clicks(bench, f"{application}-in")
        if void := settle(process, clicks, enriched, FIRST_OUTPUT_S):
            return {**facts, "void": void}
        facts |= _steadily(bench, process, clicks, enriched, load, once=guarantee == "EOS")
    finally:
        stop(process)
        receiver.close()
        bench.clean(application)
    return facts


def floor(bench: Bench, guarantee: str, load: Load) -> dict[str, Any]:
    """What the clicks wait without any system: from the producer through the broker to the receiver, once. A system adds
    to this, and passes the broker twice."""
    topic = f"floor-{time.time_ns()}"
    bench.log.create(topic)
    enriched = Enriched(None)
    receiver = _receiver(bench, topic, enriched)
    try:
        found = _steadily(bench, None, _clicks(bench, topic), enriched, load, once=False)
    finally:
        receiver.close()
        bench.log.delete([topic])
    return {"system": "none", "guarantee": guarantee, "rate_per_s": load.rate_per_s, "void": "", **found}


def _receiver(bench: Bench, topic: str, enriched: Enriched) -> Receiver:
    receiver = Receiver(bench.log.bootstrap, [topic], bench.variant.partitions, enriched.take)
    receiver.start()
    return receiver


def _clicks(bench: Bench, topic: str) -> Clicks:
    return Clicks(bench.log.bootstrap, topic, bench.variant.keys)


def _steadily(
    bench: Bench,
    process: subprocess.Popen[bytes] | None,
    clicks: Clicks,
    enriched: Enriched,
    load: Load,
    *,
    once: bool,
) -> dict[str, Any]:
    """Send, and measure the second part of it. ``process``: the system's; ``once``: a click that comes twice voids."""
    members = tree(process.pid) if process is not None else []
    send_at_rate(clicks.send, load.rate_per_s, load.warm_s, TICK_S)
    first, before, broker_before_s, stolen_before_s = clicks.sent, usage(members), bench.broker_cpu_s(), stolen_cpu_s()
    behind_s = send_at_rate(clicks.send, load.rate_per_s, load.measured_s, TICK_S)
    after, broker_after_s, stolen_after_s = usage(members), bench.broker_cpu_s(), stolen_cpu_s()
    clicks.flush()
    numbers, due, came = enriched.await_all(first, clicks.sent, AFTER_S)
    time.sleep(REPEATS_S)
    return {
        **figures(clicks, enriched, first, (numbers, due, came), once=once),
        "cpu_share": (after.cpu_s - before.cpu_s) / load.measured_s,
        "broker_share": (broker_after_s - broker_before_s) / load.measured_s,
        "stolen_cores": (stolen_after_s - stolen_before_s) / load.measured_s,
        "peak_bytes": after.resident_bytes,
        "sender_behind_s": behind_s,
        "warm_s": load.warm_s,
        "measured_s": load.measured_s,
    }


def figures(
    clicks: Clicks, enriched: Enriched, first: int, arrivals: tuple[Ints, Ints, Ints], *, once: bool
) -> dict[str, Any]:
    """What the arrivals (``Enriched.arrays``) of the clicks from number ``first`` on say; void if one is lost or wrong or,
    with ``once``, came twice. ``since`` says from when a click's wait counts."""
    numbers, due, came = arrivals
    repeated = enriched.repeated(first)
    void = lost(clicks, first, numbers, enriched)
    if len(numbers) < clicks.sent - first:
        void += f" within {AFTER_S:.0f} s of the last"
    if once and repeated and not void:
        void = f"{repeated:,} clicks came more than once"
    if void:
        return {"void": void, "repeated": repeated}
    waits_ms = (came - due) / 1000
    quantiles = {"p50_ms": 50, "p90_ms": 90, "p99_ms": 99, "max_ms": 100}
    found = {name: float(np.percentile(waits_ms, part)) for name, part in quantiles.items()}
    return {"repeated": repeated, "since": "due", **found}
