"""What operators and clocks do to a running application: partitions are added, records expire, the clock is set."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]  # exported without the mark

from penstock.state.log import TopicPartition
from tests.integration.faults.workers import StruckApplication
from tests.integration.worker.application import PARTITIONS, until

LINES = 150
AT_ONCE = 3
UP_TO_THE_END = -1
SKEWED = """
import time
from penstock.streams.worker.system_clock import SystemClock
begun_s = time.monotonic()
plain = SystemClock.now_ms
def now_ms(self):
    turn = int((time.monotonic() - begun_s) // 1.0) % 3
    return plain(self) + {skew_ms} * (0, 1, -1)[turn]
SystemClock.now_ms = now_ms
"""
"""A wall clock that is set every second: right, ahead, behind."""


def added_partitions(kafka: str, folder: Path) -> None:
    """O1: the input gets more partitions under a running worker: no record of the old or the new ones is lost or doubled."""
    app = StruckApplication(kafka, "partitions", folder)
    app.add_lines(LINES)
    refresh = {"topic.metadata.refresh.interval.ms": 1_000}
    worker = app.worker("state", consumer=refresh)
    try:
        app.wait()
        admin = AdminClient({"bootstrap.servers": kafka})
        admin.create_partitions([NewPartitions(app.source, PARTITIONS + 2)])[app.source].result()
        app.add_lines(LINES)
        app.wait()
        worker.stop()
    finally:
        worker.kill()
    app.assert_exact()


def expired_input(kafka: str, folder: Path) -> None:
    """O3: retention has deleted records that were not read yet: the worker ends and names the place, and skips nothing."""
    app = StruckApplication(kafka, "expired", folder)
    app.add_lines(LINES)
    first = app.worker("state")
    try:
        app.wait()
        first.stop()
    finally:
        first.kill()
    app.add_lines(LINES)
    deleted = app.admin.delete_before({TopicPartition(app.source, p): UP_TO_THE_END for p in range(PARTITIONS)})
    until("they are deleted", lambda: deleted() is not None)
    assert not deleted()
    before = app.counts()
    second = app.worker("state")
    try:
        until("it ends", lambda: not second.alive or app.counts() != before)
        assert second.wait() == 2, second.said
        assert app.source in second.said
        assert "Traceback" not in second.said
    finally:
        second.kill()
    assert app.counts() == before


def clock_that_is_set(skew_ms: int) -> Callable[[str, Path], None]:
    """K1: five minutes ahead and back, again and again."""

    def case(kafka: str, folder: Path) -> None:
        app = StruckApplication(kafka, "clock", folder, before=SKEWED.format(skew_ms=skew_ms))
        app.add_lines(LINES)
        first = app.worker("state")
        try:
            app.wait()
            second = app.worker("other")
            until("both are members", lambda: app.admin.group_members(app.name) == 2)
            app.add_lines(LINES)
            app.wait()
            first.kill()
            app.add_lines(LINES)
            third = app.worker("state")
            app.wait()
            third.stop()
            second.stop()
        finally:
            first.kill()
        assert not [restore for restore in third.restores if restore[1] == 0], third.restores
        assert not third.reported("StoreQuarantined")
        app.assert_exact()

    return case


CASES: dict[str, Callable[[str, Path], None]] = {
    "O1 added partitions": added_partitions,
    "O3 expired input": expired_input,
    "K1 clock that is set": clock_that_is_set(300_000),
}


@pytest.fixture(scope="module")
def running(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[None]]]:
    """Every case, a few at once."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {name: pool.submit(CASES[name], kafka, tmp_path_factory.mktemp("operations")) for name in CASES}


@pytest.mark.parametrize("case", CASES)
def test_no_answer_is_wrong(case: str, running: dict[str, Future[None]]) -> None:
    running[case].result()
