"""The committer by itself: who gives way to whom."""

from __future__ import annotations

import pytest

from penstock.state.errors import TaskMigratedError
from penstock.streams.runtime.commit_protocol import Committer
from penstock.streams.testing.memory_clients import MemoryConsumer
from penstock.streams.testing.memory_log import MemoryLog
from penstock.streams.testing.memory_producer import MemoryProducer


@pytest.mark.parametrize("yields", [True, False])
def test_who_was_fenced_gives_way_only_where_no_group_tells_who_owns_what(yields: bool) -> None:
    """As after a transaction that was doomed by a long halt, during which another took over."""
    log = MemoryLog()
    opened: list[MemoryProducer] = []

    def open_producer() -> MemoryProducer:
        opened.append(MemoryProducer(log, transactional_id="id"))
        return opened[-1]

    consumer = MemoryConsumer(log, "group")
    committer = Committer("exactly_once", consumer, open_producer, lambda: "group", lambda *_: b"", yields=yields)
    committer.open()
    committer._ready()
    newer = open_producer()
    newer.init_transactions(1)
    if yields:
        with pytest.raises(TaskMigratedError):
            committer.abort([])
        newer.begin()
        newer.commit(1)
    else:
        committer.abort([])
    assert len(opened) == (2 if yields else 3)


def test_commit_without_positions_proves_no_ownership() -> None:
    """The broker checks the membership with the positions only."""
    log = MemoryLog()
    consumer = MemoryConsumer(log, "group")
    committer = Committer(
        "exactly_once", consumer, lambda: MemoryProducer(log, transactional_id="id"), lambda: "group", lambda *_: b""
    )
    committer._ready()
    assert committer.commit([], 5)
    assert committer._proved_ms is None
