"""The topics that an application's sinks write."""

from __future__ import annotations

from penstock.topologies.graph.topology import Subtopology, Topology
from penstock.topologies.operators.records.source_sink import SinkSpec


def sink_topics(sink: SinkSpec, application_id: str) -> tuple[str, ...]:
    """The real names of all topics that a sink may write: a function chooses among ``topics``."""
    return sink.topics or (sink.topic_name(application_id),)


def written_topics(topology: Topology, application_id: str) -> dict[str, bool]:
    """Every topic that sinks write, and whether an operator before it in its sub-topology emits per commit. Partial
    aggregates are left out: commits decide what they hold, and the stores behind them tell whether they were right."""
    out: dict[str, bool] = {}
    for sub in topology.subtopologies:
        held = _held(topology, sub)
        for name in sub.sinks:
            sink = topology.sink(name)
            if sink.packs:
                continue
            for topic in sink_topics(sink, application_id):
                out[topic] = out.get(topic, False) or name in held
    return out


def _held(topology: Topology, sub: Subtopology) -> set[str]:
    """Operators that are, or come after, one that emits per commit. Operators are in topological order."""
    held: set[str] = set()
    for name in sub.operators:
        if topology.operators[name].emission == "per_commit":
            held.add(name)
        if name in held:
            held.update(child for _, child, _ in topology.children(name))
    return held
