"""Which topics an application writes, and how their records can be compared with a batch's."""

from __future__ import annotations

import dataclasses

from penstock.topologies.graph.topology import Subtopology, Topology
from penstock.topologies.operators.records.source_sink import SinkSpec


@dataclasses.dataclass(frozen=True)
class Slack:
    """Rows that only one side may have without a difference. ``stream_before``: the stream's, before the range, if
    its first output offset is known only roughly. ``batch_before``: the batch's, if the topic has lost its first
    records. ``stream_after``: the stream's, if the application has continued."""

    stream_before: bool = False
    batch_before: bool = False
    stream_after: bool = False

    @property
    def at_begin(self) -> bool:
        """Whether the two sides may begin at different rows, so that places count from the end."""
        return self.stream_before or self.batch_before

    @property
    def floats(self) -> bool:
        """Whether the sides have neither end in common: then rows have no comparable place and can only be counted."""
        return self.at_begin and self.stream_after


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
