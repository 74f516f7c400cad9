"""Who is fenced for dead, and that nothing goes wrong but time where that cannot be found out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest

from penstock.state.errors import PenstockError, RetriableError, TaskMigratedError
from penstock.state.log import TopicPartition
from penstock.streams.events.facts import DeadWorkerFenced
from penstock.streams.ports.log import OffsetAndMetadata
from penstock.streams.runtime.abandoned_transactions import LIMIT_S, AbandonedTransactions
from penstock.streams.task import commit_metadata
from penstock.streams.task.commit_metadata import CommitMetadata
from tests.recorder import Recorder

PLACES = [TopicPartition("in", p) for p in range(4)]


def noted(*owners: str | None) -> dict[TopicPartition, OffsetAndMetadata | None]:
    """One for each place; ``None``: nothing is committed there."""
    return {
        tp: None
        if owner is None
        else OffsetAndMetadata(7, commit_metadata.encode(CommitMetadata(version=1, owner=owner)))
        for tp, owner in zip(PLACES, owners, strict=True)
    }


class Brokers:
    """What they answer; an error is raised instead."""

    def __init__(self, positions: Mapping[TopicPartition, OffsetAndMetadata | None], *members: str) -> None:
        self.positions: Mapping[TopicPartition, OffsetAndMetadata | None] | PenstockError = positions
        self.members: Iterable[str] | PenstockError = members
        self.refuses: dict[str, PenstockError] = {}
        self.asked: list[str] = []
        self.now_s = 0.0
        self.takes_s = 0.0
        self.events = Recorder()
        self.under_test = AbandonedTransactions(
            "me", self._noted, self._members, self._fence, lambda: self.now_s, self.events
        )

    def _noted(self) -> Mapping[TopicPartition, OffsetAndMetadata | None]:
        if isinstance(self.positions, PenstockError):
            raise self.positions
        return self.positions

    def _members(self) -> Iterable[str]:
        if isinstance(self.members, PenstockError):
            raise self.members
        return self.members

    def _fence(self, name: str, limit_s: float) -> None:
        assert 0 < limit_s <= LIMIT_S
        self.asked.append(name)
        self.now_s += self.takes_s
        if name in self.refuses:
            raise self.refuses[name]

    @property
    def told(self) -> list[str]:
        return [fact.worker for fact in self.events.of(DeadWorkerFenced)]


def test_those_that_are_noted_and_no_members_are_fenced_the_given_partitions_first() -> None:
    brokers = Brokers(noted("gone", "alive", "lost", "me"), "me", "alive")
    brokers.under_test.on_joined([PLACES[2]])
    assert brokers.asked == brokers.told == ["lost", "gone"]


def test_positions_without_a_name_are_nobodys() -> None:
    brokers = Brokers({**noted(None, "", "", "me"), PLACES[1]: OffsetAndMetadata(3, "")}, "me")
    brokers.under_test.on_joined(PLACES)
    assert brokers.asked == []


@pytest.mark.parametrize("members", [(), ("alive",), ("rdkafka",)])
def test_who_is_not_seen_among_the_members_fences_nobody(members: tuple[str, ...]) -> None:
    """The group's answer is then not what it seems, or names mean something else there."""
    brokers = Brokers(noted("gone", "gone", None, "me"), *members)
    brokers.under_test.on_joined(PLACES)
    assert brokers.asked == []


def test_a_dead_worker_is_fenced_once_until_it_was_a_member_again() -> None:
    brokers = Brokers(noted("gone", "me", "me", "me"), "me")
    for _ in range(3):
        brokers.under_test.on_joined(PLACES)
    assert brokers.asked == ["gone"]
    brokers.members = ["me", "gone"]
    brokers.under_test.on_joined(PLACES)
    brokers.members = ["me"]
    brokers.under_test.on_joined(PLACES)
    assert brokers.asked == ["gone", "gone"]


@pytest.mark.parametrize("what", ["positions", "members"])
def test_brokers_that_do_not_say_who_is_there_keep_nobody_from_going_on(what: str) -> None:
    brokers = Brokers(noted("gone", "me", "me", "me"), "me")
    setattr(brokers, what, RetriableError("no answer"))
    brokers.under_test.on_joined(PLACES)
    assert brokers.asked == []


def test_one_that_another_worker_fences_too_is_fenced() -> None:
    brokers = Brokers(noted("gone", "lost", "me", "me"), "me")
    brokers.refuses["gone"] = TaskMigratedError("fenced by another")
    brokers.under_test.on_joined(PLACES)
    assert brokers.told == ["gone", "lost"]


def test_one_that_cannot_be_fenced_now_is_tried_again_later() -> None:
    brokers = Brokers(noted("gone", "lost", "me", "me"), "me")
    brokers.refuses["gone"] = RetriableError("no answer")
    brokers.under_test.on_joined(PLACES)
    assert (brokers.asked, brokers.told) == (["gone", "lost"], ["lost"])
    brokers.refuses.clear()
    brokers.under_test.on_joined(PLACES)
    assert brokers.told == ["lost", "gone"]


def test_the_time_for_it_is_bounded() -> None:
    brokers = Brokers(noted("a", "b", "c", "d"), "me")
    brokers.takes_s = LIMIT_S / 2
    brokers.under_test.on_joined(PLACES)
    assert brokers.asked == ["a", "b"]
