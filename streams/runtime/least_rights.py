"""The rights that the workers of an application need in Kafka, and no others. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from penstock.state.recovery.changelog import changelog_topic, journal_topic
from penstock.streams.runtime.changelog_marks import marked_topics
from penstock.streams.runtime.commit_protocol import Guarantee
from penstock.streams.runtime.own_topics import groups_of, input_topics, output_topics, repartition_topics
from penstock.streams.runtime.repartition_purging import purgeable_topics
from penstock.streams.runtime.topic_setup import needs_journal
from penstock.streams.runtime.topology_record import record_topic
from penstock.topologies.graph.topology import Topology

ResourceKind = Literal["topic", "group", "transactional-id"]
_OWN = ("CREATE", "READ", "WRITE")


class Right(NamedTuple):
    """The rights of a principal to a resource; ``prefixed``: with every one whose name begins so. ``READ`` and ``WRITE``
    include ``DESCRIBE``, as in Kafka. ``why``: what the worker does with it."""

    kind: ResourceKind
    name: str
    operations: tuple[str, ...]
    why: str
    prefixed: bool = False


def least_rights(
    topology: Topology,
    application_id: str,
    guarantee: Guarantee,
    *,
    dead_letter_topic: str | None = None,
    purges: bool = False,
    fixed: bool = False,
) -> list[Right]:
    """All rights of a worker, topics first. ``purges``: it deletes consumed repartition records; ``fixed``: it runs with
    ``--partitions``, outside the group."""
    return [
        *_users_topics(topology, dead_letter_topic),
        *_own_topics(topology, application_id, purges=purges),
        *_groups(application_id, fixed=fixed),
        *_transactional_ids(application_id, guarantee, fixed=fixed),
    ]


def _users_topics(topology: Topology, dead_letter_topic: str | None) -> Iterable[Right]:
    tables = {s.source_topic for s in topology.stores}
    journaled = {
        topology.source(n).topic for sub in topology.subtopologies if needs_journal(topology, sub) for n in sub.sources
    }
    written = {*output_topics(topology), *([dead_letter_topic] if dead_letter_topic else [])}
    for topic in sorted({*input_topics(topology), *written}):
        operations, why = [], []
        if topic in input_topics(topology):
            operations.append("READ")
            why.append("restores a table from it" if topic in tables else "reads it")
            if topic in tables or topic in journaled:
                operations.append("DESCRIBE_CONFIGS")
        if topic in written:
            operations.append("WRITE")
            why.append("sends dead letters" if topic == dead_letter_topic else "writes it")
        yield Right("topic", topic, tuple(operations), ", ".join(why))


def _own_topics(topology: Topology, application_id: str, *, purges: bool) -> Iterable[Right]:
    expiring = marked_topics(topology, application_id)
    for store in topology.stores:
        if store.changelog and store.source_topic is None:
            topic = changelog_topic(application_id, store)
            more = ("DELETE",) if topic in expiring else ()
            operations = (*_OWN, "DESCRIBE_CONFIGS", "ALTER_CONFIGS", *more)
            yield Right("topic", topic, operations, f"changelog of store {store.name}")
    deleted = purgeable_topics(topology, application_id) if purges else frozenset()
    read_with_others = {
        topology.source(n).topic_name(application_id)
        for sub in topology.subtopologies
        if needs_journal(topology, sub)
        for n in sub.sources
    }
    for topic in repartition_topics(topology, application_id):
        described = ("DESCRIBE_CONFIGS",) if topic in read_with_others else ()
        purged = ("DELETE",) if topic in deleted else ()
        yield Right("topic", topic, (*_OWN, *described, *purged), "between two sub-topologies")
    for sub in topology.subtopologies:
        if needs_journal(topology, sub):
            yield Right("topic", journal_topic(application_id, sub.number), _OWN, "order of its inputs")
    yield Right("topic", record_topic(application_id), _OWN, "record of the topology")


def _groups(application_id: str, *, fixed: bool) -> Iterable[Right]:
    group, fixed_group = groups_of(application_id)
    yield Right("group", group, ("READ",), "commits positions" if fixed else "joins it, commits positions")
    if fixed:
        yield Right("group", fixed_group, ("READ",), "shows that it is there")
    else:
        yield Right("group", fixed_group, ("DESCRIBE",), "looks whether workers with --partitions run")


def _transactional_ids(application_id: str, guarantee: Guarantee, *, fixed: bool) -> Iterable[Right]:
    if guarantee == "exactly_once" or fixed:
        yield Right("transactional-id", f"{application_id}-", ("WRITE",), "commits in transactions", prefixed=True)
