"""Shedding load."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.state.errors import TopologyError
from penstock.topologies.dsl.handle import Handle
from penstock.topologies.operators.records.load_shedding import LoadSheddingSpec, rate_store
from penstock.topologies.windows import duration_ms

if TYPE_CHECKING:
    from penstock.topologies.dsl.stream import KStream


class SheddingMethods(Handle):
    """Methods of ``KStream``."""

    def shed(self, max_latency: int | str, *, settle: int | str = "1s", name: str | None = None) -> KStream:
        """All records while event time is at most ``max_latency`` behind the clock; else a sample of them, at a rate that
        is halved as long as that goes on, and doubled when it is over, at most once per ``settle``. Each record bears
        its rate (``rate_of(headers)``), and stands for as many as one divided by it. See
        ``penstock.topologies.operators.records.load_shedding``."""
        wiring = self._flow.wiring
        name = wiring.name(self._flow, "shed", name)
        max_latency_ms, settle_ms = duration_ms(max_latency), duration_ms(settle)
        if max_latency_ms < 1:
            raise TopologyError(f"operator {name!r}: max_latency={max_latency!r}; give at least 1 ms")
        spec = LoadSheddingSpec(stores=(rate_store(name),), max_latency_ms=max_latency_ms, settle_ms=settle_ms)
        wiring.add(name, spec, self._flow)
        return self._stream(self._behind(name))
