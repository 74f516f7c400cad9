"""Which topics belong to an application: what it makes itself, and may delete."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from penstock.state.recovery.changelog import changelog_topic, journal_topic
from penstock.streams.runtime.topology_record import record_topic
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operator_api.internal_names import INTERNAL_SUFFIXES

FIXED_SUFFIX = "-fixed"
"""The end of the name of the group of workers that were given their partitions."""
OWN_SUFFIXES = ("-changelog", "-journal", *INTERNAL_SUFFIXES)
"""The ends of the names of topics that applications make."""


def groups_of(application_id: str) -> tuple[str, str]:
    """The group of workers that share partitions, and that of workers that were given theirs."""
    return application_id, f"{application_id}{FIXED_SUFFIX}"


def own_topics(topology: Topology, application_id: str) -> list[str]:
    """The changelogs, repartition topics, journals and the record that the application may have made, sorted."""
    names = {changelog_topic(application_id, s) for s in topology.stores if s.source_topic is None}
    names |= {journal_topic(application_id, sub.number) for sub in topology.subtopologies}
    names |= set(repartition_topics(topology, application_id))
    return sorted({*names, record_topic(application_id)})


def changelog_topics(topology: Topology, application_id: str) -> list[str]:
    """The topics that hold the changes of stores, those of tables over their own topics too."""
    logged = [s for s in topology.stores if s.changelog or s.source_topic is not None]
    return [changelog_topic(application_id, store) for store in logged]


def repartition_topics(topology: Topology, application_id: str) -> list[str]:
    """The topics between its sub-topologies, sorted."""
    sources = [topology.source(n) for sub in topology.subtopologies for n in sub.sources]
    return sorted({s.topic_name(application_id) for s in sources if s.internal})


def input_topics(topology: Topology) -> list[str]:
    """The user's topics that the topology reads, sorted."""
    sources = [topology.source(n) for sub in topology.subtopologies for n in sub.sources]
    return sorted({s.topic for s in sources if not s.internal})


def output_topics(topology: Topology) -> list[str]:
    """The user's topics that the topology writes, sorted."""
    sinks = [topology.sink(n) for sub in topology.subtopologies for n in sub.sinks]
    return sorted({topic for s in sinks if not s.internal for topic in s.topics or (s.topic,)})


def owner_of(topic: str, application_ids: Iterable[str]) -> str | None:
    """The application that made a topic, by name: the longest that it begins with, since the topics of ``counts-2`` begin
    with ``counts-`` too."""
    return max((name for name in application_ids if topic.startswith(f"{name}-")), key=len, default=None)


def left_over(
    topology: Topology, application_id: str, topics: Iterable[str], application_ids: Collection[str]
) -> list[str]:
    """Topics that an earlier topology of the application seems to have made, and this one does not use."""
    own = set(own_topics(topology, application_id))
    names = {*application_ids, application_id}
    return sorted(
        t for t in topics if t not in own and t.endswith(OWN_SUFFIXES) and owner_of(t, names) == application_id
    )
