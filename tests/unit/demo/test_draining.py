"""Watching a drain, on positions that are made up: who is killed and when, what a take-over is, and when it is over."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any, cast

import pytest

from demo import draining
from demo.draining import Watch
from demo.workers import WorkerProcess
from penstock.state.errors import PenstockError
from penstock.state.log import TopicPartition
from penstock.streams.kafka.group_view import GroupView

STREAM = [TopicPartition("events", p) for p in range(2)]
INTERNAL = [TopicPartition("app-map-repartition", 0)]
END = 1000


class Worker:
    """A worker that lives until it is killed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True

    def kill(self) -> None:
        self.alive = False

    def require_alive(self) -> None:
        if not self.alive:
            raise PenstockError(f"{self.name} ended")


class World:
    """Two workers with a partition each. Every look at the positions is a step of time; a dead worker's partition stands
    still until ``session_steps`` have gone by."""

    def __init__(self, session_steps: int = 30) -> None:
        self.workers = [Worker("a"), Worker("b")]
        self.speed = {"a": 40, "b": 20}
        self.owner = dict(zip(STREAM, "ab", strict=True))
        self.at = dict.fromkeys(STREAM, 0)
        self.dead_for = 0
        self.session_steps = session_steps
        self.closed = False

    def owners(self) -> dict[TopicPartition, str]:
        return dict(self.owner)

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        alive = {w.name for w in self.workers if w.alive}
        self.dead_for += len(alive) < 2
        if self.dead_for > self.session_steps:
            self.owner = dict.fromkeys(STREAM, min(alive))
        for tp, owner in self.owner.items():
            if owner in alive:
                self.at[tp] = min(self.at[tp] + self.speed[owner], END)
        now = {**self.at, INTERNAL[0]: sum(self.at.values())}
        return {tp: now[tp] for tp in partitions}

    def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        # The markers at a repartition topic's end are never committed.
        return {tp: END if tp in STREAM else sum(self.at.values()) + 3 for tp in partitions}

    def close(self) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same, in a tenth of a second."""
    for name, value in {"SAMPLE_S": 0.002, "SETTLED_S": 0.01, "QUIET_S": 0.02, "LIMIT_S": 120.0}.items():
        monkeypatch.setattr(draining, name, value)


def watch(world: World) -> Watch:
    return Watch(cast(GroupView, world), STREAM, INTERNAL)


def workers(world: World) -> list[Any]:
    return cast("list[WorkerProcess]", world.workers)


def test_halfway_the_worker_with_more_before_it_is_killed_and_its_partition_is_followed() -> None:
    world = World()
    drain = watch(world).run(workers(world), kill=True)
    assert [w.alive for w in world.workers] == [True, False]
    assert drain.kill is not None and drain.kill.worker == "b"
    assert 1000 <= drain.kill.done < 1200
    assert set(drain.kill.left) == {"events [1]"} and 500 < drain.kill.left["events [1]"] < 700
    assert drain.takeover_s is not None and drain.takeover_s > 30 * 0.002
    assert drain.kill.all_moved
    # The look that is taken when the watch is made is a step too.
    assert (drain.records, world.closed) == (2000 - 60, True)
    assert drain.of_stream(drain.samples[-1]) == 2000


def test_without_a_kill_all_stay() -> None:
    world = World()
    drain = watch(world).run(workers(world), kill=False)
    assert [w.alive for w in world.workers] == [True, True]
    assert drain.kill is None and drain.records_per_s > 0


def test_what_was_committed_before_is_not_counted() -> None:
    world = World()
    world.at = dict.fromkeys(STREAM, 400)
    begun = watch(world)
    left = sum(END - at for at in world.at.values())
    assert begun.run(workers(world), kill=False).records == left < 1200


def test_partitions_that_never_move_again_end_it_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draining, "LIMIT_S", 3.0)
    world = World(session_steps=10**9)
    with pytest.raises(PenstockError, match=r"have committed 1,\d+ of 2,000 records"):
        watch(world).run(workers(world), kill=True)
    assert world.closed


def test_a_slow_machine_may_take_as_long_as_it_likes(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = itertools.count()
    monkeypatch.setattr(Watch, "_now", lambda self: float(next(seconds)))
    world = World()
    world.speed = {"a": 5, "b": 5}
    drain = watch(world).run(workers(world), kill=False)
    assert drain.of_stream(drain.samples[-1]) == 2000
    assert drain.done_s > draining.LIMIT_S, "each look takes a second here"


def test_a_worker_that_dies_by_itself_ends_it_with_its_error() -> None:
    world = World()
    world.workers[0].kill()
    with pytest.raises(PenstockError, match="a ended"):
        watch(world).run(workers(world), kill=True)
