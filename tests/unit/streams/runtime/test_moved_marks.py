"""An application that was moved, or whose state is being made, is refused by its marks; other marks are not looked at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from penstock.state.errors import SettingsError
from penstock.state.log import TopicPartition
from penstock.streams.ports.forwarding import ForwardingProducer
from penstock.streams.ports.log import LogProducer, OffsetAndMetadata, TopicSpec
from penstock.streams.runtime.fixed_fence import (
    BOOTSTRAPPED,
    FENCED,
    RUN_FIXED,
    FixedFence,
    Marks,
    fence_fixed,
    made_from,
    mark_fixed,
    maybe_run_fixed,
    moved_to,
    moving_to,
    numbers_of,
    refuse_moved,
)
from penstock.streams.testing.memory_clients import MemoryConsumer
from penstock.streams.testing.memory_log import MemoryLog
from penstock.streams.testing.memory_producer import MemoryProducer

A, B = TopicPartition("in", 0), TopicPartition("in", 1)


def marks(*texts: str | None) -> Marks:
    return {tp: None if t is None else OffsetAndMetadata(0, t) for tp, t in zip((A, B), texts, strict=True)}


def test_who_was_moved_is_told_where_and_who_is_being_made_is_told_to_wait() -> None:
    refuse_moved(marks(None, FENCED))
    refuse_moved(marks(RUN_FIXED, BOOTSTRAPPED))
    with pytest.raises(SettingsError, match=r"goes on as shop-3: .*start the workers of shop-3"):
        refuse_moved(marks(None, moved_to("shop-3")))
    with pytest.raises(SettingsError, match=r"being made from that of shop, and is not whole"):
        refuse_moved(marks(made_from("shop"), FENCED))


def test_the_job_that_set_a_mark_knows_it_and_no_other() -> None:
    refuse_moved(marks(moving_to("shop-3"), moved_to("shop-3")), (moving_to("shop-3"), moved_to("shop-3")))
    with pytest.raises(SettingsError, match="goes on as shop-3"):
        refuse_moved(marks(moving_to("shop-3"), None), (moving_to("shop-4"), moved_to("shop-4")))


@pytest.mark.parametrize(
    ("mark", "refused"),
    [(moving_to("shop-3"), True), (moved_to("shop-3"), True), (made_from("shop"), True), (RUN_FIXED, False)],
)
def test_a_worker_that_joins_reads_the_marks_and_a_job_leaves_them(mark: str, refused: bool) -> None:
    log = MemoryLog()
    log.create(TopicSpec("in", 2))
    mark_fixed(MemoryConsumer(log, "shop-fixed"), [A, B], mark)
    opened: list[int] = []

    def producer(partition: int) -> LogProducer:
        opened.append(partition)
        return MemoryProducer(log, transactional_id=f"shop-p{partition}")

    def found() -> Marks:
        return MemoryConsumer(log, "shop-fixed").committed([A, B])

    def texts() -> set[str]:
        return {m.metadata for m in found().values() if m is not None}

    fence_fixed(numbers_of(maybe_run_fixed(found())), producer, 1.0)
    assert opened == [0, 1]
    assert texts() == {mark}
    fence = FixedFence(
        [A, B], "shop-fixed", lambda: MemoryConsumer(log, "shop-fixed"), producer, lambda: None, timeout_s=1.0
    )
    if refused:
        with pytest.raises(SettingsError):
            fence.on_joined([A, B], afresh=True)
        assert texts() == {mark}
        return
    fence.on_joined([A, B], afresh=True)
    assert texts() == {FENCED}
    assert opened == [0, 1, 0, 1]
    assert maybe_run_fixed(found()) == set()


STEPS = 20
"""More than a worker has in which it can be frozen."""
TRANSACTION_ENDS_MS = 120_000


@pytest.mark.parametrize(("mark", "stays"), [(moved_to("shop-3"), False), (moved_to("shop-3"), True), ("other", True)])
def test_a_worker_that_was_frozen_while_it_fenced_does_not_replace_the_mark_of_a_job(mark: str, stays: bool) -> None:
    met = 0
    for frozen_at in range(STEPS):
        log = MemoryLog()
        log.create(TopicSpec("in", 2))
        mark_fixed(MemoryConsumer(log, "shop-fixed"), [A, B])
        worker = _Frozen(log, mark, frozen_at)
        look = worker.look if stays else worker.step
        fence = FixedFence([A, B], "shop-fixed", worker.consumer, worker.producer, look, timeout_s=1.0)
        try:
            fence.on_joined([A, B], afresh=True)
        except SettingsError:
            assert worker.ran
        texts = {m.metadata for m in MemoryConsumer(log, "shop-fixed").committed([A, B]).values() if m is not None}
        assert texts == ({mark} if worker.ran else {FENCED}), frozen_at
        met += worker.ran
    assert 6 < met < STEPS


class _Frozen:
    """The clients of a worker of the group, which is frozen before its step ``at`` while a job sets its mark."""

    def __init__(self, log: MemoryLog, mark: str, at: int) -> None:
        self.log, self.mark, self.left, self.ran = log, mark, at, False

    def step(self) -> None:
        if not self.left:
            self.ran = True
            self.log.advance(TRANSACTION_ENDS_MS)  # until then a job waits for the positions
            found = MemoryConsumer(self.log, "shop-fixed").committed([A, B])
            fence_fixed(numbers_of(maybe_run_fixed(found)), self._opened, 1.0)
            mark_fixed(MemoryConsumer(self.log, "shop-fixed"), [A, B], self.mark)
        self.left -= 1

    def look(self) -> None:
        """The job is still there."""
        self.step()
        if self.ran:
            raise SettingsError("a job does the work")

    def consumer(self) -> MemoryConsumer:
        self.step()
        return MemoryConsumer(self.log, "shop-fixed")

    def producer(self, partition: int) -> LogProducer:
        self.step()
        return _FrozenProducer(self._opened(partition), self.step)

    def _opened(self, partition: int) -> LogProducer:
        return MemoryProducer(self.log, transactional_id=f"shop-p{partition}")


class _FrozenProducer(ForwardingProducer):
    def __init__(self, inner: LogProducer, step: Callable[[], None]) -> None:
        super().__init__(inner)
        self._step = step

    def init_transactions(self, timeout_s: float) -> None:
        self._step()
        super().init_transactions(timeout_s)

    def send_offsets(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: Any, timeout_s: float) -> None:
        self._step()
        super().send_offsets(offsets, group, timeout_s)

    def commit(self, timeout_s: float) -> None:
        self._step()
        super().commit(timeout_s)
