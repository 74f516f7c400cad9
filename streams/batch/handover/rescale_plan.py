"""The plan of a rescaling: the same topology under two application ids and two numbers of partitions, or why that cannot be.

The new application has the old one's operators and stores, by name; its inputs may be other topics, of another number
of partitions. A sub-topology *moves* if its number of tasks or one of its topics is another one. What cannot be moved
provably is refused by name (``rescaling``), before anything is changed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping

from penstock.state.errors import SettingsError
from penstock.state.log import TopicPartition
from penstock.state.recovery.changelog import changelog_topic
from penstock.state.stores.store import StoreSpec
from penstock.streams.batch.handover.rekeying import StorePlacing, placings, subscribers
from penstock.streams.runtime.topic_setup import TopicLayout
from penstock.topologies.graph.topology import Subtopology, Topology
from penstock.topologies.operators.records.external_sink import ExternalSinkSpec


@dataclasses.dataclass(frozen=True)
class ScaledSide:
    """One of the two applications, and how many partitions it has."""

    topology: Topology
    application_id: str
    layout: TopicLayout

    def tasks(self, subtopology: int) -> int:
        """The number of tasks of a sub-topology."""
        return self.layout.tasks[subtopology]

    def topic(self, source: str) -> str:
        """The real name of the topic that a source operator reads."""
        return self.topology.source(source).topic_name(self.application_id)


@dataclasses.dataclass(frozen=True)
class Rescaling:
    """``moved``: the sub-topologies that move. ``renamed``: the user's topics that are read from other topics, old to new.
    ``placings``: how the entries of moved stores find their partitions. ``answers``: stores of foreign-key subscriptions,
    with the sub-topology to whose tasks answers go."""

    old: ScaledSide
    new: ScaledSide
    moved: frozenset[int]
    renamed: Mapping[str, str]
    placings: Mapping[str, StorePlacing]
    answers: Mapping[str, int]

    @property
    def tables(self) -> dict[str, str]:
        """The topics among ``renamed`` that are the changelogs of tables, old to new."""
        return {o: n for o, n in self.renamed.items() if any(s.source_topic == o for s in self.old.topology.stores)}

    def stores(self) -> Iterator[tuple[Subtopology, StoreSpec]]:
        """The new application's stores whose entries must be written, with their sub-topologies. A table over a topic that
        both applications read has them already."""
        for sub in self.new.topology.subtopologies:
            for spec in sub.stores:
                if spec.source_topic is None or spec.source_topic in self.renamed.values():
                    yield sub, spec

    def written(self) -> dict[TopicPartition, str]:
        """The partitions to which these entries go, with the store."""
        return {
            TopicPartition(changelog_topic(self.new.application_id, spec), p): spec.name
            for sub, spec in self.stores()
            for p in range(self.new.tasks(sub.number))
        }


def rescaling(old: ScaledSide, new: ScaledSide) -> Rescaling:
    """The plan. Raises ``SettingsError`` naming everything that stands in the way."""
    wrong = list(_differences(old.topology, new.topology))
    if wrong:
        raise SettingsError(
            f"{new.application_id} must be {old.application_id} with other partitions, but {'; '.join(wrong)}. Give "
            'sources the names that they had, such as builder.stream("orders-3", name="orders"); for a changed topology '
            "see penstock bootstrap"
        )
    topology = old.topology
    pairs = {
        n: (topology.source(n).topic, new.topology.source(n).topic) for s in topology.subtopologies for n in s.sources
    }
    renamed = {o: n for name, (o, n) in pairs.items() if o != n and not topology.source(name).internal}
    moved = frozenset(
        s.number
        for s in topology.subtopologies
        if old.tasks(s.number) != new.tasks(s.number) or any(pairs[n][0] in renamed for n in s.sources)
    )
    wrong = [*_never(topology), *_read_back(topology, renamed)]
    found: dict[str, StorePlacing] = {}
    for sub in (topology.subtopologies[n] for n in sorted(moved)):
        placed, why = placings(topology, sub)
        found |= placed
        wrong += [*why, *_by_clock(topology, sub)]
    if not moved:
        wrong.append("neither a number of partitions nor a topic is another one")
    if wrong:
        raise SettingsError(
            f"{old.application_id} cannot be rescaled: {'; '.join(wrong)}. Build {new.application_id} from history instead, "
            "with penstock bootstrap, or give such a part a topology of its own"
        )
    return Rescaling(old, new, moved, renamed, found, subscribers(topology))


def _differences(old: Topology, new: Topology) -> Iterator[str]:
    """Name what the two topologies do not have in common, functions excepted, which cannot be compared."""
    names = [tuple(s.operators) for s in old.subtopologies]
    if names != [tuple(s.operators) for s in new.subtopologies]:
        mine, other = ({n for s in t.subtopologies for n in s.operators} for t in (old, new))
        one_side = ", ".join(sorted(mine ^ other)) or "their order"
        yield f"their operators differ: {one_side}"
        return
    if {(s.out, s.ins) for s in old.streams} != {(s.out, s.ins) for s in new.streams}:
        yield "their operators are connected in another way"
    for name, spec in old.operators.items():
        if spec.kind != new.operators[name].kind:
            yield f"operator {name} was {spec.kind} and is {new.operators[name].kind}"
    for sub, other_sub in zip(old.subtopologies, new.subtopologies, strict=True):
        if [_form(s) for s in sub.stores] != [_form(s) for s in other_sub.stores]:
            yield f"stores of sub-topology {sub.number} have another kind, serde, window or retention"
        for name in sub.sources:
            was, now = old.source(name), new.source(name)
            if was.internal != now.internal or (was.internal and was.topic != now.topic):
                yield f"source {name} reads another kind of topic"
            if (was.key_serde.name, was.value_serde.name, was.form) != (
                now.key_serde.name,
                now.value_serde.name,
                now.form,
            ):
                yield f"source {name} has other serdes"


def _form(spec: StoreSpec) -> tuple[object, ...]:
    serdes = spec.key_serde.name, spec.value_serde.name
    own = spec.changelog, spec.source_topic is None
    return spec.name, spec.kind, *serdes, spec.window_size_ms, spec.retention_ms, *own


def _never(topology: Topology) -> Iterator[str]:
    """Parts of a topology that have state outside of its stores and positions, or among their tasks."""
    for name, spec in topology.operators.items():
        if isinstance(spec, ExternalSinkSpec):
            yield f"external sink {name} keeps positions under the old application id"
    for source in (topology.source(n) for s in topology.subtopologies for n in s.sources):
        if source.watermark is not None:
            yield f"source {source.topic} has a watermark strategy, and tasks behind it know how far each of its tasks is"
        if source.loop_rounds:
            yield f"topic {source.topic} feeds back, so that its records never end"
        if source.waits_for_writers:
            yield f"topic {source.topic} is read as a bootstrap until its writers have caught up, whose number changes"


def _read_back(topology: Topology, renamed: Iterable[str]) -> Iterator[str]:
    sinks = [topology.sink(n) for s in topology.subtopologies for n in s.sinks]
    written = {t for s in sinks if not s.internal for t in s.topics or (s.topic,)}
    for topic in sorted(written & set(renamed)):
        yield f"topic {topic} is written and read, so that its records would go on to the old topic"


def _by_clock(topology: Topology, sub: Subtopology) -> Iterator[str]:
    """Operators of a sub-topology whose state is of their task's time, not of their own."""
    for name in sub.operators:
        spec = topology.operators[name]
        if spec.timed or spec.uses_wall_time or spec.reads_wall_time:
            yield f"operator {name} ({spec.kind}) has timers of its task's time"
