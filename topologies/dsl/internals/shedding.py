"""Shedding load."""

from __future__ import annotations

from penstock.state.errors import TopologyError
from penstock.topologies.dsl.wiring import Flow
from penstock.topologies.operators.records.load_shedding import LoadSheddingSpec, rate_store
from penstock.topologies.windows import Duration, duration_ms


def shed(flow: Flow, max_latency: Duration, settle: Duration, name: str | None) -> Flow:
    """Keep all records while event time is near the clock, else a sample of them."""
    wiring = flow.wiring
    name = wiring.name(flow, "shed", name)
    max_latency_ms, settle_ms = duration_ms(max_latency), duration_ms(settle)
    if max_latency_ms < 1:
        raise TopologyError(f"operator {name!r}: max_latency={max_latency!r}; give at least 1 ms")
    wiring.add(
        name, LoadSheddingSpec(stores=(rate_store(name),), max_latency_ms=max_latency_ms, settle_ms=settle_ms), flow
    )
    return flow.behind(name)
