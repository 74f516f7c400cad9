"""Writing a stream to an external sink."""

from __future__ import annotations

from typing import Any

from penstock.state.errors import TopologyError
from penstock.topologies.dsl.wiring import Flow
from penstock.topologies.operator_api.edge_kinds import NO_RETRACTIONS, EdgeKind
from penstock.topologies.operator_api.external_sinks import Sink
from penstock.topologies.operators.records.external_sink import ExternalSinkSpec, only_source


def written_outside(flow: Flow, sink: Any, on_error: Any, name: str | None) -> None:
    """Give the records to a sink. They go through a repartition topic unless each follows from one record of one source,
    and if keys may have changed and the sink needs equal keys in one partition."""
    name = flow.wiring.name(flow, "sink", name)
    if not isinstance(sink, Sink):
        raise TopologyError(
            f"operator {name!r} needs a sink, not {sink!r:.100}; make one with penstock.connectors, or derive a class from "
            "its Sink. To write a topic, use to()"
        )
    source = _source_of(flow)
    if source is None or (sink.by_key and flow.rekeyed):
        flow = flow.wiring.repartition(flow)
        source = flow.operator
    accepts: frozenset[EdgeKind] = frozenset({"insert"}) if sink.append_only else NO_RETRACTIONS
    flow.wiring.add(name, ExternalSinkSpec(sink=sink, source=source, accepts=accepts), flow)
    if on_error is not None:
        flow.wiring.graph.set_on_error(name, on_error)


def _source_of(flow: Flow) -> str | None:
    graph = flow.wiring.graph
    return only_source({name: graph.operator(name) for name in graph.upstream(flow.operator)})
