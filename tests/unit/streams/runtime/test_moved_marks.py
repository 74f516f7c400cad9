"""An application that was moved, or whose state is being made, is refused by its marks; other marks are not looked at."""

from __future__ import annotations

import pytest

from penstock.state.errors import SettingsError
from penstock.state.log import TopicPartition
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

    fence_fixed(maybe_run_fixed(found()), producer, 1.0)
    assert opened == [0, 1]
    assert texts() == {mark}
    fence = FixedFence([A, B], lambda: MemoryConsumer(log, "shop-fixed"), producer, 1.0)
    if refused:
        with pytest.raises(SettingsError):
            fence.on_joined([A, B], afresh=True)
        assert texts() == {mark}
        return
    fence.on_joined([A, B], afresh=True)
    assert texts() == {FENCED}
    assert opened == [0, 1, 0, 1]
    assert maybe_run_fixed(found()) == set()
