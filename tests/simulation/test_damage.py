"""Stores that are found damaged while their task runs: they are set aside and restored, and no answer changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Literal

import pytest

from penstock.state.errors import StateCorruptedError
from penstock.state.log import TaskId
from penstock.state.stores.memory_backend import MemoryBackend
from penstock.state.stores.store import StateBackend, StoreSpec, StoreWrites
from penstock.streams.runtime.assignment import StartPositions
from penstock.streams.runtime.commit_group import ABORTS_MAX
from penstock.streams.runtime.runtime import Runtime
from penstock.streams.task.task import Task
from tests.simulation.programs import clicks_world
from tests.simulation.world import Disk, World

OUTPUTS = ("joined", "counted")
Touch = Literal["read", "range", "commit", "flush"]


class Block:
    """One bad block: met by the ``nth`` touch of its kind, by whichever task; ``again``: by those after it too."""

    def __init__(self, touch: Touch, nth: int, *, again: bool = False) -> None:
        self.touch = touch
        self.left = nth
        self.again = again

    def met(self, touch: Touch) -> bool:
        self.left -= touch == self.touch
        return touch == self.touch and (self.left == 0 or (self.left < 0 and self.again))


class Breaking(MemoryBackend):
    """Stores on a disk with a bad block; damaged ones answer nothing any more."""

    def __init__(self, stores: Sequence[StoreSpec | str], block: Block) -> None:
        super().__init__(stores, keep_flushed=True)
        self._block = block

    def _touched(self, touch: Touch) -> None:
        if self.damaged is None and self._block.met(touch):
            self.damaged = f"a {touch} met a bad block"
        if self.damaged is not None:
            raise StateCorruptedError(self.damaged)

    def is_empty(self, store: str) -> bool:
        """Nothing is certain, so that every store is read."""
        return False

    def get_many(self, store: str, keys: Sequence[bytes]) -> list[bytes | None]:
        self._touched("read")
        return super().get_many(store, keys)

    def range(
        self, store: str, low: bytes | None, high: bytes | None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        self._touched("range")
        return super().range(store, low, high, reverse=reverse)

    def commit(self, writes: Sequence[StoreWrites]) -> None:
        self._touched("commit")
        super().commit(writes)

    def flush(self, stores: Sequence[str] | None = None) -> None:
        self._touched("flush")
        super().flush(stores)


class BadDisk(Disk):
    """A disk with a bad block."""

    def __init__(self, block: Block) -> None:
        super().__init__()
        self.block = block
        self.made = 0

    def make(self, stores: Sequence[StoreSpec]) -> MemoryBackend:
        self.made += 1
        return Breaking(stores, self.block)


@cache
def undisturbed() -> tuple[dict[str, Counter[Any]], dict[tuple[TaskId, str], dict[bytes, bytes]]]:
    """Outputs and stores of the run that nothing happens to."""
    world = clicks_world("exactly_once")
    node = world.node("a")
    world.settle(node)
    return {t: world.rows(t) for t in OUTPUTS}, world.stores(node)


def damaged(world: World, block: Block) -> tuple[bool, dict[tuple[TaskId, str], dict[bytes, bytes]]]:
    """Run to the end on such a disk; whether the block was met, and the stores."""
    disk = BadDisk(block)
    node = world.node("a", disk)
    world.settle(node)
    met = block.left <= 0
    block.touch, block.left, block.again = "read", -1, False  # no more of it
    return met, world.stores(node)


@pytest.mark.parametrize("touch", ["read", "commit", "flush"])
def test_exactly_once_equals_the_undisturbed_run(touch: Touch) -> None:
    """Among the commits are those that the log has already, and other tasks of the unit as well."""
    outputs, stores = undisturbed()
    nth, met = 0, True
    while met and nth < 60:
        nth += 1
        world = clicks_world("exactly_once")
        met, left = damaged(world, Block(touch, nth))
        assert {t: world.rows(t) for t in OUTPUTS} == outputs, f"{touch} number {nth}"
        assert left == stores, f"{touch} number {nth}"
    assert nth > 3


@pytest.mark.parametrize("touch", ["read", "commit"])
def test_at_least_once_loses_nothing(touch: Touch) -> None:
    outputs, _ = undisturbed()
    for nth in range(1, 20):
        world = clicks_world("at_least_once")
        damaged(world, Block(touch, nth))
        assert not outputs["joined"] - world.rows("joined"), f"{touch} number {nth}"


def test_a_disk_that_breaks_everything_ends_the_run() -> None:
    world = clicks_world("exactly_once")
    disk = BadDisk(Block("read", 1, again=True))
    node = world.node("a", disk)
    with pytest.raises(StateCorruptedError, match="bad block"):
        world.settle(node)
    assert disk.made <= 4 + 4 * (ABORTS_MAX + 1)


@pytest.mark.parametrize("times", [1, 2])
def test_damage_that_is_met_when_a_task_begins(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """Once it is restored again; a second time in a row ends the run."""
    outputs, stores = undisturbed()
    opened, left = Runtime._open_task, [times]

    def open_task(runtime: Runtime, task_id: TaskId, backend: StateBackend, start: StartPositions) -> Task:
        if task_id == TaskId(0, 1) and left[0]:
            left[0] -= 1
            backend.damaged = "an operator met a bad block"
            raise StateCorruptedError(backend.damaged)
        return opened(runtime, task_id, backend, start)

    monkeypatch.setattr(Runtime, "_open_task", open_task)
    world = clicks_world("exactly_once")
    node = world.node("a")
    if times == 2:
        with pytest.raises(StateCorruptedError, match="bad block"):
            world.settle(node)
        return
    world.settle(node)
    assert {t: world.rows(t) for t in OUTPUTS} == outputs
    assert world.stores(node) == stores
