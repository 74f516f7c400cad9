"""Shedding load, and aggregates that come out scaled, with the interval in which the whole stream's would lie."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from penstock.state.errors import TopologyError
from penstock.topologies import estimates
from penstock.topologies.dsl.handle import Handle
from penstock.topologies.dsl.wiring import check_function
from penstock.topologies.operators.aggregates.sample_weights import SampleWeightSpec
from penstock.topologies.operators.records.load_shedding import LoadSheddingSpec, rate_store
from penstock.topologies.windows import duration_ms

if TYPE_CHECKING:
    from penstock.topologies.dsl.stream import KStream
    from penstock.topologies.dsl.table import KTable


class SheddingMethods(Handle):
    """Methods of ``KStream``."""

    def shed(self, max_latency: int | str, *, settle: int | str = "1s", name: str | None = None) -> KStream:
        """All records while event time is at most ``max_latency`` behind the clock; else a sample of them, at a rate that
        is halved as long as that goes on, and doubled when it is over, at most once per ``settle``. Each record bears
        its rate (``rate_of(headers)``); ``estimate`` reckons with it. See
        ``penstock.topologies.operators.records.load_shedding``."""
        wiring = self._flow.wiring
        name = wiring.name(self._flow, "shed", name)
        max_latency_ms, settle_ms = duration_ms(max_latency), duration_ms(settle)
        if max_latency_ms < 1:
            raise TopologyError(f"operator {name!r}: max_latency={max_latency!r}; give at least 1 ms")
        spec = LoadSheddingSpec(stores=(rate_store(name),), max_latency_ms=max_latency_ms, settle_ms=settle_ms)
        wiring.add(name, spec, self._flow)
        return self._stream(self._behind(name))

    def estimate(
        self,
        *,
        number: Callable[[Any], float | None] | None = None,
        distinct: Callable[[Any], Any] | None = None,
        quantiles: Sequence[float] = (),
        windows: Any = None,
        emission: Any = None,
        name: str | None = None,
    ) -> KTable:
        """Per key (and window): what the whole stream's ``count`` is, and, of ``number(value)``, the ``sum``, ``mean``
        and ``quantiles``, and of ``distinct(value)`` how many there are, each as ``{"value", "low", "high"}`` with its
        95 % interval (``penstock.topologies.estimates``). Exact, and without width, where nothing was shed; quantiles of
        more than 2,048 values are of a sample of them."""
        name = self._flow.wiring.name(self._flow, "estimate", name)
        if quantiles and number is None:
            raise TopologyError(f"operator {name!r}: quantiles of what? give number=, a function of the value")
        if any(not 0 <= q <= 1 for q in quantiles):
            raise TopologyError(f"operator {name!r}: quantiles={list(quantiles)}; they lie between 0 and 1")
        numbered = None if number is None else check_function(number, name)
        told = None if distinct is None else check_function(distinct, name)

        def adder(key: Any, value: list[Any], totals: estimates.Totals) -> estimates.Totals:
            x, what, rate, place = value
            return estimates.added(totals, x, what, rate, place.encode())

        def results(totals: estimates.Totals | None) -> dict[str, Any] | None:
            if totals is None:
                return None
            made: dict[str, Any] = {"count": estimates.count(totals)}
            if numbered is not None:
                made |= {"sum": estimates.total(totals), "mean": estimates.mean(totals)}
            if quantiles:
                made["quantiles"] = estimates.quantiles(totals, quantiles)
            if told is not None:
                made["distinct"] = estimates.distinct(totals)
            return made

        self._flow.wiring.add(f"{name}-weighed", SampleWeightSpec(number=numbered, distinct=told), self._flow)
        grouped = self._stream(self._behind(f"{name}-weighed", value=list)).group_by_key()
        if windows is not None:
            grouped = grouped.windowed_by(windows)
        table = grouped.aggregate(estimates.nothing, adder, value=dict, name=name, emission=emission)
        return table.map_values(results, value=dict, name=f"{name}-results")
