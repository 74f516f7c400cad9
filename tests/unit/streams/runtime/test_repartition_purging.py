"""When what was read is deleted, and of which topics."""

from __future__ import annotations

from collections.abc import Mapping

import penstock as ps
from penstock.state.log import TopicPartition
from penstock.streams.ports.log import Deletion
from penstock.streams.runtime.repartition_purging import Purger, purgeable_topics
from penstock.streams.testing.memory_clients import MemoryAdmin
from penstock.streams.testing.memory_log import MemoryLog
from tests.simulation.programs import clicks_per_region, clicks_world
from tests.simulation.world import APP

A, B, USERS = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("users", 0)


class Admin:
    """Deletions that end when they are told how."""

    def __init__(self) -> None:
        self.asked: list[dict[TopicPartition, int]] = []
        self.outcome: Mapping[TopicPartition, str] | None = {}

    def delete(self, offsets: Mapping[TopicPartition, int]) -> Deletion:
        self.asked.append(dict(offsets))
        return lambda: self.outcome


def test_each_interval_what_was_committed_meanwhile_of_own_topics() -> None:
    admin = Admin()
    purger = Purger(["a"], 1_000, admin.delete, lambda tp, why: None)
    at = {A: 5, USERS: 7}
    for now_s in (0.0, 0.5, 0.9):
        purger.turn(now_s, lambda: at)
    assert admin.asked == []
    purger.turn(1.0, lambda: at)
    assert admin.asked == [{A: 5}]
    at[B] = 2
    purger.turn(1.9, lambda: at)
    purger.turn(2.0, lambda: at)
    assert admin.asked == [{A: 5}, {B: 2}]
    purger.turn(9.0, lambda: at)
    assert len(admin.asked) == 2


def test_one_request_at_a_time_and_failures_are_reported_and_tried_again() -> None:
    admin = Admin()
    admin.outcome = None
    reported: list[tuple[TopicPartition, str]] = []
    purger = Purger(["a"], 1_000, admin.delete, lambda tp, why: reported.append((tp, why)))
    for now_s in (0.0, 1.0, 2.0, 3.0):
        purger.turn(now_s, lambda: {A: 5, B: 5})
    assert len(admin.asked) == 1
    admin.outcome = {B: "denied"}
    purger.turn(3.1, lambda: {A: 5, B: 5})
    assert reported == [(B, "denied")]
    assert admin.asked == [{A: 5, B: 5}, {B: 5}]


def test_a_partition_that_is_gone_is_reported() -> None:
    reported: list[TopicPartition] = []
    purger = Purger(["a"], 1_000, MemoryAdmin(MemoryLog()).delete_before, lambda tp, why: reported.append(tp))
    for now_s in (0.0, 1.0, 1.1):
        purger.turn(now_s, lambda: {A: 5})
    assert reported == [A]


def test_topics_that_stores_are_restored_from_and_users_topics_are_left_alone() -> None:
    (topic,) = purgeable_topics(clicks_per_region(), APP)
    assert topic.startswith(f"{APP}-") and topic.endswith("-repartition")
    builder = ps.StreamsBuilder("t", key=str, value=str)
    builder.table("users").to_stream().to("out")
    assert purgeable_topics(builder.build(), APP) == frozenset()


def test_only_commits_that_are_known_to_have_happened_count() -> None:
    """The positions that a task says are committed are never ahead of the log's."""
    world = clicks_world("exactly_once")
    node = world.node("a")
    seen = 0
    for _ in range(60):
        node.turn()
        for task in node.runtime.tasks.values():
            for tp, offset in task.committed_positions.items():
                assert offset <= world.log.group(APP).offsets[tp].offset
                seen += 1
    assert seen
