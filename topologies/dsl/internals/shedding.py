"""Shedding load, and estimates: aggregates that come out scaled, with the interval in which the whole stream's would lie."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.state.errors import TopologyError
from penstock.topologies import estimates
from penstock.topologies.dsl.wiring import Flow, check_function
from penstock.topologies.operators.aggregates.sample_weights import SampleWeightSpec
from penstock.topologies.operators.records.load_shedding import LoadSheddingSpec, rate_store
from penstock.topologies.windows import duration_ms


def shed(flow: Flow, max_latency: int | str, settle: int | str, name: str | None) -> Flow:
    """All records while event time is near the clock, else a sample of them."""
    wiring = flow.wiring
    name = wiring.name(flow, "shed", name)
    max_latency_ms, settle_ms = duration_ms(max_latency), duration_ms(settle)
    if max_latency_ms < 1:
        raise TopologyError(f"operator {name!r}: max_latency={max_latency!r}; give at least 1 ms")
    wiring.add(
        name, LoadSheddingSpec(stores=(rate_store(name),), max_latency_ms=max_latency_ms, settle_ms=settle_ms), flow
    )
    return flow.behind(name)


def weighed(
    flow: Flow, number: Any, distinct: Any, quantiles: Sequence[float], name: str | None
) -> tuple[str, Flow, Callable[[Any], dict[str, Any] | None]]:
    """The estimate's name, what it folds by ``add_weighed``, and the function of the totals that gives its results."""
    name = flow.wiring.name(flow, "estimate", name)
    if quantiles and number is None:
        raise TopologyError(f"operator {name!r}: quantiles of what? give number=, a function of the value")
    if any(not 0 <= q <= 1 for q in quantiles):
        raise TopologyError(f"operator {name!r}: quantiles={list(quantiles)}; they lie between 0 and 1")
    numbered = None if number is None else check_function(number, name)
    told_apart = None if distinct is None else check_function(distinct, name)

    def results(totals: estimates.Totals | None) -> dict[str, Any] | None:
        if totals is None:
            return None
        made: dict[str, Any] = {"count": estimates.count(totals)}
        if numbered is not None:
            made |= {"sum": estimates.total(totals), "mean": estimates.mean(totals)}
        if quantiles:
            made["quantiles"] = estimates.quantiles(totals, quantiles)
        if told_apart is not None:
            made["distinct"] = estimates.distinct(totals)
        return made

    flow.wiring.add(f"{name}-weighed", SampleWeightSpec(number=numbered, distinct=told_apart), flow)
    return name, flow.behind(f"{name}-weighed", value=list), results


def add_weighed(key: Any, value: list[Any], totals: estimates.Totals) -> estimates.Totals:
    """The totals with one weighed record more."""
    x, what, rate, place = value
    return estimates.added(totals, x, what, rate, place.encode())
