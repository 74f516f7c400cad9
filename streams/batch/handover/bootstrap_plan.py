"""Decisions of a bootstrap: where the topology's outputs go meanwhile, up to where its inputs are read, and whether the
application may be bootstrapped at all.

A bootstrap builds the stores of an application that has never run from the history in its inputs. What the topology emits
meanwhile is of the past, so it is dropped, or goes to topics where it can be looked at.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from penstock.state.errors import SettingsError
from penstock.state.log import TopicPartition
from penstock.streams.batch.cluster import CommittedInput
from penstock.streams.batch.output_topics import sink_topics
from penstock.streams.runtime.fixed_fence import BOOTSTRAPPED, Marks
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operators.records.external_sink import ExternalSinkSpec


def outputs_of(topology: Topology, application_id: str, dead_letter_topic: str | None) -> list[str]:
    """The topics that the application writes and that are not its own."""
    sinks = [topology.sink(n) for sub in topology.subtopologies for n in sub.sinks]
    found = {t for s in sinks if not s.internal for t in sink_topics(s, application_id)}
    return sorted(found if dead_letter_topic is None else {*found, dead_letter_topic})


def diverted(
    topology: Topology, application_id: str, dead_letter_topic: str | None, wanted: Mapping[str, str]
) -> dict[str, str | None]:
    """Where each output goes: to the topic that ``wanted`` names, or nowhere. Raises ``SettingsError`` for topics that the
    application does not write, and for external sinks, whose rows would go out."""
    outside = [n for n, spec in topology.operators.items() if isinstance(spec, ExternalSinkSpec)]
    if outside:
        raise SettingsError(
            f"external sink {outside[0]!r} would be written with all of history, since only topics can be left out; write "
            "to a topic, and from there to the sink with an application of its own"
        )
    outputs = outputs_of(topology, application_id, dead_letter_topic)
    if unknown := sorted(wanted.keys() - set(outputs)):
        raise SettingsError(
            f"the topology does not write {', '.join(unknown)}; it writes: {', '.join(outputs) or 'no topic'}"
        )
    read = {topology.source(n).topic for sub in topology.subtopologies for n in sub.sources}
    if taken := sorted(set(wanted.values()) & {*outputs, *read}):
        raise SettingsError(f"outputs cannot go to {', '.join(taken)} meanwhile: the application reads or writes it")
    return {topic: wanted.get(topic) for topic in outputs}


def unequal_counts(outputs: Mapping[str, str | None], counts: Mapping[str, int]) -> list[str]:
    """Outputs whose other topic has another number of partitions, in words."""
    return [
        f"{other} has {counts[other]} partitions and {topic} has {counts[topic]}"
        for topic, other in sorted(outputs.items())
        if other is not None and counts[other] != counts[topic]
    ]


def refuse_live(application_id: str, committed: Mapping[TopicPartition, CommittedInput], marks: Marks) -> None:
    """Raises ``SettingsError`` if anything but a bootstrap has committed positions of the application: the outputs of what
    it has still to read would be lost."""
    for tp, found in sorted(committed.items()):
        mark = marks.get(tp)
        if found.metadata.owner or mark is None or mark.metadata != BOOTSTRAPPED:
            raise SettingsError(
                f"{application_id} has run: it stands at offset {found.offset} of {tp.topic} [{tp.partition}], and a "
                "bootstrap would lose outputs. Bootstrap a new application id, or work off its backlog: penstock catchup"
            )


def stops_beside(
    wanted: Mapping[TopicPartition, int],
    other: Mapping[TopicPartition, CommittedInput],
    other_topics: Collection[str],
    ends: Mapping[TopicPartition, tuple[int, int]],
) -> dict[TopicPartition, int]:
    """Where to stop in each input, next to another application: at the ``wanted`` offset, never beyond what the other one
    has committed. Inputs that it does not read (``other_topics``: those it does) are read to their ends."""
    out: dict[TopicPartition, int] = {}
    for tp, (_, end) in ends.items():
        if tp.topic not in other_topics:
            out[tp] = end
        elif tp in other:
            out[tp] = min(wanted.get(tp, other[tp].offset), other[tp].offset)
    return out


def refuse_ahead(
    application_id: str,
    own: Mapping[TopicPartition, CommittedInput],
    other_id: str,
    other: Mapping[TopicPartition, CommittedInput],
    ends: Mapping[TopicPartition, tuple[int, int]],
) -> None:
    """Raises ``SettingsError`` if the application has read what the one that it replaces has not: nobody would write the
    outputs of that. ``own``: its positions in inputs of both; ``ends``: first and end offset of these."""
    for tp, found in sorted(own.items()):
        behind = other[tp].offset if tp in other else ends[tp][0]
        if found.offset > behind:
            raise SettingsError(
                f"{application_id} stands at offset {found.offset} of {tp.topic} [{tp.partition}], beyond {other_id}, which "
                f"stands at {behind}: outputs in between would be missing. Let {other_id} come there first, or bootstrap "
                "again under a new application id"
            )


def begin_cautions(
    inputs: Iterable[TopicPartition],
    committed: Mapping[TopicPartition, CommittedInput],
    ends: Mapping[TopicPartition, tuple[int, int]],
) -> list[str]:
    """Cautions about inputs whose first records are gone, before they are read."""
    later: dict[str, list[str]] = {}
    for tp in inputs:
        if tp not in committed and ends[tp][0] > 0:
            later.setdefault(tp.topic, []).append(f"[{tp.partition}] {ends[tp][0]}")
    return [
        f"{topic} no longer begins at offset 0 but at {', '.join(places)}: what was before is not in the stores"
        for topic, places in sorted(later.items())
    ]
