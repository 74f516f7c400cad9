"""Records on their way between sub-topologies are neither lost nor misread where the topology has changed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import penstock as ps
from penstock.state.errors import IncompatibleError
from penstock.state.log import TopicPartition
from penstock.streams.ports.log import LogConsumer, OffsetAndMetadata, TopicSpec
from penstock.streams.runtime.topic_setup import prepare_topics
from penstock.streams.runtime.unread_internal_topics import (
    check_unread_internal_topics,
    first_unread,
    refuse_other_form,
)
from penstock.streams.task.commit_metadata import CommitMetadata
from penstock.streams.task.task_watermarks import WatermarkMark
from penstock.streams.testing.memory_clients import MemoryAdmin, MemoryConsumer
from penstock.streams.testing.memory_log import LogEntry, MemoryLog, Transaction
from penstock.topologies.graph.topology import Topology

APP = "app"
PARTIALS = f"{APP}-counts-partials-repartition"


def counted(*, combine: bool | None = None, emission: str = "per_commit", minutes: int | None = None) -> Topology:
    builder = ps.StreamsBuilder("t", emission=emission)
    grouped = builder.stream("events").group_by(lambda key, event: event["kind"])
    if minutes is None:
        grouped.count(name="counts", combine=combine).to_stream().to("out")
    else:
        windows = ps.tumbling(f"{minutes}m", grace="1m")
        counts = grouped.windowed_by(windows).count(name="counts", combine=combine)
        counts.to_stream(lambda window, count: window.key).to("out")
    return builder.build()


@pytest.fixture
def log() -> MemoryLog:
    """The topics of the application as it ran: combining."""
    made = MemoryLog()
    for name in ("events", "out"):
        made.create(TopicSpec(name, 2))
    prepare_topics(counted(), APP, MemoryAdmin(made))
    return made


def opener(log: MemoryLog) -> Callable[[], LogConsumer]:
    return lambda: MemoryConsumer(log, APP)


def check(log: MemoryLog, topology: Topology, application_id: str = APP) -> None:
    check_unread_internal_topics(
        topology, application_id, MemoryAdmin(log), lambda: MemoryConsumer(log, application_id)
    )


def write(log: MemoryLog, topic: str = PARTIALS, partition: int = 1, count: int = 1) -> None:
    for _ in range(count):
        log.append(TopicPartition(topic, partition), LogEntry(None, b"packed", 1))


def commit(log: MemoryLog, offset: int, topic: str = PARTIALS, partition: int = 1) -> None:
    log.group(APP).offsets[TopicPartition(topic, partition)] = OffsetAndMetadata(offset, "")


@pytest.mark.parametrize("changed", [counted(combine=False), counted(emission="every_update")])
def test_unread_records_of_a_topic_that_is_read_no_longer_are_refused(log: MemoryLog, changed: Topology) -> None:
    write(log, count=3)
    commit(log, 2)
    with pytest.raises(IncompatibleError, match=f"{PARTIALS}, partition 1, holds records from offset 2 on") as caught:
        check(log, changed)
    assert f"penstock topics delete {PARTIALS}" in str(caught.value)
    commit(log, 3)
    check(log, changed)


def test_records_that_nobody_has_committed_a_position_of_are_found(log: MemoryLog) -> None:
    write(log)
    with pytest.raises(IncompatibleError, match="from offset 0 on"):
        check(log, counted(combine=False))


def test_switching_the_other_way_is_refused_too(log: MemoryLog) -> None:
    plain = counted(combine=False)
    prepare_topics(plain, APP, MemoryAdmin(log))
    (topic,) = (t for t in plain.source_topics(APP) if t.startswith(APP))
    write(log, topic, partition=0)
    with pytest.raises(IncompatibleError, match=topic):
        check(log, counted())


def test_the_same_topology_goes_on(log: MemoryLog) -> None:
    write(log, count=3)
    commit(log, 1)
    check(log, counted())


def test_watermarks_and_control_records_are_no_loss(log: MemoryLog) -> None:
    tp = TopicPartition(PARTIALS, 1)
    write(log)
    commit(log, 1)
    log.append(tp, LogEntry(None, None, 1, WatermarkMark(0, 1, 5, False).headers))
    done = Transaction("x", 0, 0, 0)
    log.append(tp, LogEntry(None, b"v", 1, transaction=done))
    log.end(done, "aborted")
    check(log, counted(combine=False))
    assert first_unread(opener(log), {tp: 1}) is None
    assert first_unread(opener(log), {tp: 0}) == (tp, 0)


def test_topics_of_an_application_whose_name_begins_alike_are_its_own(log: MemoryLog) -> None:
    theirs = f"{APP}-two"
    prepare_topics(counted(), theirs, MemoryAdmin(log))
    write(log, f"{theirs}-counts-partials-repartition")
    log.group(theirs).offsets[TopicPartition("events", 0)] = OffsetAndMetadata(1, "")
    check(log, counted(combine=False))
    with pytest.raises(IncompatibleError, match=f"{theirs}-counts-partials-repartition"):
        check(log, counted(combine=False), theirs)


def test_records_of_another_form_in_the_same_topic_are_refused(log: MemoryLog) -> None:
    tp = TopicPartition(PARTIALS, 1)
    was, now = counted(minutes=1), counted(minutes=5)
    write(log, count=2)
    before = was.source("counts-partials-repartition")
    after = now.source("counts-partials-repartition")
    noted = CommitMetadata(form=before.form)
    refuse_other_form(before, tp, (1, noted), opener(log))
    with pytest.raises(IncompatibleError, match="from offset 1 on that were written for other windows or serdes"):
        refuse_other_form(after, tp, (1, noted), opener(log))
    refuse_other_form(after, tp, (2, noted), opener(log))
    refuse_other_form(after, tp, (1, CommitMetadata()), opener(log))
    assert now.source("events").form == ""
