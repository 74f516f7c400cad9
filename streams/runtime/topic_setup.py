"""Before a worker runs: check and create what the topology needs in the cluster.

Refuses, with what to do: missing topics, inputs of one sub-topology with unequal partition counts, and stores that a
guarantee cannot keep. Pure except for the admin port.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping

from penstock.state.errors import IncompatibleError, SettingsError, TopologyError
from penstock.state.recovery.changelog import (
    REPARTITION_RETENTION_MS,
    TAIL_KEPT_MS,
    changelog_configs,
    changelog_topic,
    guarded,
    journal_configs,
    journal_topic,
    kept_settings,
    repartition_configs,
)
from penstock.streams.ports.log import LogAdmin, TopicSpec
from penstock.streams.runtime.commit_protocol import Guarantee
from penstock.streams.task.error_policies import Policies
from penstock.topologies.graph.topology import Subtopology, Topology
from penstock.topologies.operators.records.external_sink import ExternalSinkSpec
from penstock.topologies.operators.records.source_sink import SourceSpec

JOURNAL_RETENTION_DEFAULT_MS = 7 * 86_400_000


@dataclasses.dataclass(frozen=True)
class TopicLayout:
    """Partition counts: ``tasks`` per sub-topology, ``topics`` of every topic that is written."""

    tasks: tuple[int, ...]
    topics: Mapping[str, int]


def needs_journal(topology: Topology, sub: Subtopology) -> bool:
    """Whether the order of its tasks depends on more than one partition's log."""
    idle = any(s.watermark is not None and s.watermark.idle_ms is not None for s in map(topology.source, sub.sources))
    specs = [topology.operators[n] for n in sub.operators]
    return len(sub.sources) > 1 or idle or any(s.uses_wall_time or s.makes_external_calls for s in specs)


def check_guarantee(topology: Topology, guarantee: Guarantee) -> None:
    """Refuse topologies that the guarantee does not support. Raises ``TopologyError``."""
    unlogged = [s.name for s in topology.stores if not s.changelog and s.source_topic is None]
    if guarantee == "exactly_once" and unlogged:
        raise TopologyError(
            f"store {unlogged[0]!r} has no changelog, so its contents could not be brought back after a crash as "
            "exactly_once promises; give it a changelog, or run at_least_once"
        )
    outside = [n for n, spec in topology.operators.items() if isinstance(spec, ExternalSinkSpec)]
    if guarantee == "at_most_once" and outside:
        raise TopologyError(
            f"at_most_once commits before it processes, so external sink {outside[0]!r} could miss rows: run at_least_once, "
            "under which sinks that keep positions are exactly-once too, or exactly_once"
        )
    if guarantee == "at_most_once" and topology.stores:
        raise TopologyError(
            f"at_most_once commits before it processes, so store {topology.stores[0].name!r} could miss records; "
            "at_most_once takes stateless topologies only: run at_least_once or exactly_once"
        )


def check_policies(topology: Topology, policies: Policies) -> None:
    """Refuse dead letters without a topic, and policies of a table over its own topic under which it could not be
    restored: the topic still has the records that the table refused, and those refused by stream time cannot be
    recognized again once the topic was compacted. Raises ``SettingsError``."""
    policies.check(topology.on_error)
    sources = {s.topic: name for name, s in topology.operators.items() if isinstance(s, SourceSpec)}
    for table in topology.stores:
        if table.source_topic is None:
            continue
        own = policies.of_source(topology.on_error.get(sources[table.source_topic]))
        chosen = {"deserialization": own.deserialization, "timestamp": own.timestamp}
        lenient = [f"{kind}={policy}" for kind, policy in chosen.items() if policy != "fail"]
        if lenient:
            raise SettingsError(
                f"table {table.name!r} is restored from its own topic {table.source_topic!r}, where the records lie that "
                f"{' and '.join(lenient)} would refuse: a restored table would have them. Leave its on_error out, or read "
                f"the topic as builder.stream({table.source_topic!r}, …).to_table(), which has a changelog of its own"
            )


def layout_of(topology: Topology, application_id: str, counts: Mapping[str, int]) -> TopicLayout:
    """The number of tasks of each sub-topology, and of partitions of each internal topic.

    ``counts``: partition counts of the existing source topics. A repartition topic has the count that it requests,
    else that of the other inputs that it is joined with, else the largest of the sub-topologies that write it.
    """
    tasks: dict[int, int] = {}
    internal: dict[str, int] = {}
    for _ in range(len(topology.subtopologies) + 1):
        for sub in topology.subtopologies:
            found = _tasks_of(topology, sub, application_id, counts, internal)
            if found is not None:
                tasks[sub.number] = found
        for sub in topology.subtopologies:
            if sub.number in tasks:
                for n in sub.sources:
                    source = topology.source(n)
                    if source.internal:
                        internal[source.topic_name(application_id)] = tasks[sub.number]
    for sub in topology.subtopologies:
        if sub.number not in tasks:
            names = ", ".join(sub.sources)
            raise TopologyError(f"nothing says how many partitions {names} should have; give repartition partitions=…")
    return TopicLayout(tuple(tasks[s.number] for s in topology.subtopologies), internal)


def _tasks_of(
    topology: Topology,
    sub: Subtopology,
    application_id: str,
    counts: Mapping[str, int],
    internal: Mapping[str, int],
    asking: frozenset[int] = frozenset(),
) -> int | None:
    """``asking``: the sub-topologies that led here. They form a cycle if they write each other's topics, as both
    sides of a foreign-key join do; the known counts come from outside the cycle."""
    external = {
        t: counts[t]
        for n in sub.sources
        if not topology.source(n).internal and (t := topology.source(n).topic) in counts
    }
    if len(set(external.values())) > 1:
        listed = ", ".join(f"{t} has {c}" for t, c in external.items())
        raise IncompatibleError(
            f"inputs that are joined must have the same number of partitions, but {listed}; "
            "recreate one of the topics, or send it through repartition(partitions=…) first"
        )
    asked = {
        source.partitions
        for n in sub.sources
        if (source := topology.source(n)).internal and source.partitions is not None
    }
    if external:
        count = next(iter(external.values()))
        if asked and asked != {count}:
            raise TopologyError(
                f"a repartition asks for {asked.pop()} partitions but is joined with {next(iter(external))}, which has "
                f"{count}; ask for {count} or leave partitions out"
            )
        return count
    if asked:
        return asked.pop()
    upstream = [
        _tasks_of(topology, other, application_id, counts, internal, asking | {sub.number})
        for other in topology.subtopologies
        if other is not sub and other.number not in asking and _writes(topology, other, sub)
    ]
    return max((u for u in upstream if u is not None), default=None)


def _writes(topology: Topology, producer: Subtopology, consumer: Subtopology) -> bool:
    read = {topology.source(n).topic for n in consumer.sources if topology.source(n).internal}
    written = {topology.sink(n).topic for n in producer.sinks if topology.sink(n).internal}
    return bool(read & written)


def existing_layout(
    topology: Topology, application_id: str, admin: LogAdmin, dead_letter_topic: str | None = None
) -> tuple[TopicLayout, dict[str, int]]:
    """The layout that follows from the user's topics, and the partition counts of those that are written. Creates nothing.
    Raises ``IncompatibleError`` for a topic that does not exist."""
    sources = [topology.source(n) for sub in topology.subtopologies for n in sub.sources]
    sinks = [topology.sink(n) for sub in topology.subtopologies for n in sub.sinks]
    external = [s.topic for s in sources if not s.internal]
    written = [t for s in sinks if not s.internal for t in s.topics or (s.topic,)]
    if dead_letter_topic is not None:
        written.append(dead_letter_topic)
    counts = admin.partition_counts(sorted({*external, *written}))
    missing = [t for t in dict.fromkeys([*external, *written]) if t not in counts]
    if missing:
        raise IncompatibleError(
            f"these topics do not exist: {', '.join(missing)}; create them first, for example "
            f"penstock topics create {missing[0]} --partitions 4"
        )
    return layout_of(topology, application_id, counts), {t: counts[t] for t in written}


def prepare_topics(
    topology: Topology,
    application_id: str,
    admin: LogAdmin,
    *,
    replication_factor: int = -1,
    repartition_retention_ms: int = REPARTITION_RETENTION_MS,
    dead_letter_topic: str | None = None,
    guarantee: Guarantee = "exactly_once",
) -> TopicLayout:
    """Check the user's topics, create the application's own, and return the layout."""
    tails = guarantee == "at_least_once"
    layout, counts = existing_layout(topology, application_id, admin, dead_letter_topic)
    wanted = [
        TopicSpec(t, n, replication_factor, repartition_configs(repartition_retention_ms))
        for t, n in layout.topics.items()
    ]
    for sub, tasks in zip(topology.subtopologies, layout.tasks, strict=True):
        wanted += [
            TopicSpec(changelog_topic(application_id, s), tasks, replication_factor, changelog_configs(s, tails=tails))
            for s in sub.stores
            if s.changelog and s.source_topic is None
        ]
        if needs_journal(topology, sub):
            inputs = [topology.source(n).topic_name(application_id) for n in sub.sources]
            retention = _longest_retention_ms(admin, inputs, repartition_retention_ms)
            wanted.append(
                TopicSpec(
                    journal_topic(application_id, sub.number), tasks, replication_factor, journal_configs(retention)
                )
            )
    _keep_what_is_needed(topology, application_id, admin, tails=tails)
    admin.create_topics(wanted)
    # a windowed key is put where its inner key belongs, which takes the count of the user's topic too
    return dataclasses.replace(layout, topics={**layout.topics, **counts})


def _keep_what_is_needed(topology: Topology, application_id: str, admin: LogAdmin, *, tails: bool) -> None:
    """Give existing changelogs the retention of new ones: those of windows and of versions are kept forever, and
    under at-least-once the newest records of all that brokers clean."""
    logged = [s for s in topology.stores if s.changelog and s.source_topic is None]
    specs = {changelog_topic(application_id, s): s for s in logged if kept_settings(s) or (tails and guarded(s))}
    for topic in admin.partition_counts(list(specs)):
        config, wanted = admin.topic_config(topic), kept_settings(specs[topic])
        other = {name: value for name, value in wanted.items() if config.get(name, "-1") != value}
        if tails and guarded(specs[topic]) and int(config.get("min.compaction.lag.ms", 0)) < TAIL_KEPT_MS:
            other["min.compaction.lag.ms"] = str(TAIL_KEPT_MS)
        if other:
            admin.set_topic_config(topic, other)


def _longest_retention_ms(admin: LogAdmin, topics: list[str], of_new_ms: int) -> int:
    """The retention of the inputs; -1 (forever) if one of them is kept forever or compacted. Missing ones are the
    application's own, and will keep their records for ``of_new_ms``."""
    existing = admin.partition_counts(topics)
    longest = 0
    for topic in topics:
        config = admin.topic_config(topic) if topic in existing else repartition_configs(of_new_ms)
        retention = int(config.get("retention.ms", JOURNAL_RETENTION_DEFAULT_MS))
        if retention < 0 or "delete" not in config.get("cleanup.policy", "delete"):
            return -1
        longest = max(longest, retention)
    return longest or JOURNAL_RETENTION_DEFAULT_MS


def fingerprint(topology: Topology, layout: TopicLayout) -> str:
    """A fingerprint of what stored state depends on: stores, their serdes and sizes, and how many tasks hold them. A
    folder or snapshot with another fingerprint belongs to another topology."""
    parts = [
        f"{sub.number}/{tasks}/{s.name}/{s.kind}/{s.key_serde.name}/{s.value_serde.name}/{s.window_size_ms}"
        for sub, tasks in zip(topology.subtopologies, layout.tasks, strict=True)
        for s in sub.stores
    ]
    return hashlib.sha256("\n".join(sorted(parts)).encode()).hexdigest()[:32]


def check_application_id(application_id: str) -> str:
    """The id becomes part of topic names, folder names and ids."""
    allowed = all(c.isascii() and (c.isalnum() or c in "._-") for c in application_id)
    if not application_id or not allowed or len(application_id) > 100:
        raise SettingsError(
            f"application_id={application_id!r}: use 1 to 100 letters, digits, '.', '_' and '-'; it names topics and folders"
        )
    return application_id
