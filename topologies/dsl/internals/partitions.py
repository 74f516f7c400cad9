"""Where records go: repartition topics, the user's topics, and processors, after which keys may have changed."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Any

from penstock.state.errors import TopologyError
from penstock.state.serdes.window_keys import WindowedSerde
from penstock.state.stores.store import StoreSpec
from penstock.topologies.dsl.internals.combining import Grouping
from penstock.topologies.dsl.internals.stateless import with_selected_key
from penstock.topologies.dsl.wiring import Flow, check_function
from penstock.topologies.operator_api.edge_kinds import NO_RETRACTIONS, EdgeKind
from penstock.topologies.operators.processors.processor import ProcessorSpec, processor_spec
from penstock.topologies.operators.records.source_sink import Route, SinkSpec


def repartitioned(flow: Flow, by: Any, *, key: Any, value: Any, partitions: int | None, name: str | None) -> Flow:
    """Send the records through a repartition topic."""
    flow = flow.with_serdes(key, value)
    if not (by in ("key", "shuffle", "broadcast", "one") or callable(by)):
        raise TopologyError(
            f"repartition of {flow.out!r}: by={by!r:.60} is unknown; use key, shuffle, broadcast, one or a function"
        )
    if by == "one":
        by, partitions = "key", 1
    route: Route = by
    return flow.wiring.repartition(flow, partitions=partitions, name=name, route=route)


def grouped_by(flow: Flow, fn: Any, *, key: Any, partitions: int | None, name: str | None) -> Grouping:
    """Group by ``fn(key, value)``, always through a repartition topic."""
    keyed = with_selected_key(flow, "group-by", fn, key, name)
    send = partial(keyed.wiring.repartition, keyed, partitions=partitions)
    return Grouping(keyed, send, partitions=partitions, sends=True)


def grouped_by_key(flow: Flow) -> Grouping:
    """Group by the key, through a repartition topic only if keys may have changed."""
    return Grouping(flow, partial(flow.wiring.by_key, flow), partitions=None, sends=flow.rekeyed)


def written(
    flow: Flow,
    topic: Any,
    topics: Sequence[str],
    *,
    key: Any,
    value: Any,
    append_only: bool,
    retractions: bool,
    on_error: Any,
    name: str | None,
) -> None:
    """Write the records to a topic, or to topics that a function chooses."""
    name = flow.wiring.name(flow, "to", name)
    if callable(topic) != bool(topics):
        raise TopologyError(
            f"operator {name!r}: if a function chooses the topic, topics= must list all that it may choose; only "
            "then is it allowed"
        )
    flow = flow.with_serdes(key, value)
    inner = flow.key.inner if isinstance(flow.key, WindowedSerde) else None
    accepts: frozenset[EdgeKind] = frozenset({"insert"}) if append_only else NO_RETRACTIONS
    spec = SinkSpec(
        topic=topics[0] if callable(topic) else topic,
        topic_of=topic if callable(topic) else None,
        topics=tuple(topics),
        key_serde=flow.key,
        value_serde=flow.value,
        inner_key=inner,
        accepts=accepts | {"retract"} if retractions else accepts,
    )
    flow.wiring.add(name, spec, flow)
    if on_error is not None:
        flow.wiring.graph.set_on_error(name, on_error)


def processed(
    flow: Flow,
    factory: Any,
    *,
    stores: tuple[StoreSpec, ...],
    key: Any,
    value: Any,
    keeps_key: bool,
    name: str | None,
) -> tuple[Flow, tuple[str, ...]]:
    """Add a processor; return the flow of its first out port, and the names of all its ports."""
    wiring = flow.wiring
    name = wiring.name(flow, "process", name)
    spec = processor_spec(check_function(factory, name), stores=stores, name=name)
    graph = wiring.graph
    lent = {
        s.name
        for s in spec.stores
        if any(not isinstance(graph.operator(n), ProcessorSpec) for n in graph.users(s.name))
    }
    wiring.add(name, dataclasses.replace(spec, lent=frozenset(lent)), flow)
    port = spec.out_ports[0] if len(spec.out_ports) > 1 else None
    return flow.behind(name, port=port, key=key, value=value, rekeyed=not keeps_key), spec.out_ports


def port_of(flow: Flow, ports: tuple[str, ...], name: str, key: Any, value: Any) -> Flow:
    """Return the flow of the named out port of the processor that ``flow`` comes from."""
    if name not in ports:
        raise TopologyError(
            f"operator {flow.operator!r} has no out port {name!r}; it declares: {', '.join(ports) or 'none'}"
        )
    return flow.behind(flow.operator, port=name if len(ports) > 1 else None, key=key, value=value)
