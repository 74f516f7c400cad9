"""Keep the record of an application's topology in the log, and compare a topology with it before anything is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.state.errors import IncompatibleError, RetriableError
from penstock.state.log import TopicPartition
from penstock.state.recovery.changelog import OWN_TIMES, changelog_topic
from penstock.streams.ports.log import LogAdmin, LogConsumer, LogProducer, TopicSpec
from penstock.streams.runtime.topology_record import (
    TopologyChange,
    TopologyRecord,
    changes,
    decode,
    encode,
    record_topic,
)
from penstock.streams.task import commit_metadata
from penstock.topologies.graph.topology import Topology

_KEY: Final = b"topology"
_POLLS_MAX: Final = 300
_POLL_S: Final = 0.2
_WRITE_S: Final = 30.0


def read_record(
    application_id: str, admin: LogAdmin, open_consumer: Callable[[], LogConsumer]
) -> TopologyRecord | None:
    """The record of the topology that ran last; ``None`` where there is none that this release can read. Raises
    ``RetriableError`` when the log does not answer."""
    topic = record_topic(application_id)
    if topic not in admin.partition_counts([topic]):
        return None
    consumer, place, last = open_consumer(), TopicPartition(topic, 0), None
    try:
        begin, end = consumer.watermarks(place)
        if begin >= end:
            return None
        consumer.assign_at({place: begin})
        for _ in range(_POLLS_MAX):
            fetched = consumer.poll(1_000, _POLL_S)
            for chunk in fetched.chunks:
                last = chunk.values[-1]
                begin = int(chunk.offsets[-1]) + 1
            if begin >= end or fetched.ends.get(place, 0) >= end:
                return None if last is None else decode(last)
    finally:
        consumer.close()
    raise RetriableError(f"{topic} could not be read; see whether the brokers are up")


def changes_of(before: TopologyRecord | None, after: TopologyRecord, admin: LogAdmin) -> list[TopologyChange]:
    """The changes since the topology was recorded; none if there is no record."""
    if before is None or before == after:
        return []
    named = [s.changelog for s in after.stores if s.changelog is not None]
    return changes(before, after, admin.partition_counts(named))


def write_record(
    application_id: str,
    record: TopologyRecord,
    admin: LogAdmin,
    open_producer: Callable[[], LogProducer],
    *,
    now_ms: int,
    replication_factor: int = -1,
) -> None:
    """Keep the record, in a topic that is made for it."""
    topic = record_topic(application_id)
    admin.create_topics([TopicSpec(topic, 1, replication_factor, {"cleanup.policy": "compact", **OWN_TIMES})])
    producer = open_producer()
    try:
        producer.send(topic, [_KEY], [encode(record)], [now_ms], partition=0)
        producer.flush(_WRITE_S)
    finally:
        producer.close()


def refuse_missing_changelogs(
    topology: Topology, application_id: str, admin: LogAdmin, open_consumer: Callable[[], LogConsumer]
) -> None:
    """Raises ``IncompatibleError`` where the group has committed positions together with what a store held, and the
    store's changelog does not exist. ``open_consumer``: one of the group, which does not join."""
    wanted = {
        (sub.number, s.name): changelog_topic(application_id, s)
        for sub in topology.subtopologies
        for s in sub.stores
        if s.changelog and s.source_topic is None
    }
    there = admin.partition_counts(sorted(set(wanted.values())))
    missing = {place: topic for place, topic in wanted.items() if topic not in there}
    if not missing:
        return
    inputs = {topic: sub for topic, (sub, _) in topology.source_topics(application_id).items()}
    counts = admin.partition_counts(sorted(t for t, sub in inputs.items() if any(sub == m for m, _ in missing)))
    places = [TopicPartition(topic, number) for topic, count in counts.items() for number in range(count)]
    if not places:
        return
    consumer = open_consumer()
    try:
        found = consumer.committed(places)
    finally:
        consumer.close()
    for place, at in found.items():
        if at is None:
            continue
        held = commit_metadata.decode(at.metadata).changelogs
        for (sub, store), topic in missing.items():
            if inputs[place.topic] == sub and held.get(store, 0) > 0:
                raise IncompatibleError(
                    f"topic {topic} does not exist, but group {application_id} has committed position {at.offset} of "
                    f"{place.topic} [{place.partition}] together with {held[store]} offsets of it: store {store} "
                    "is lost, and going on would answer wrongly. Start over with: penstock reset MODULE:TOPOLOGY "
                    f"--application-id {application_id}, or bring the topic back"
                )
