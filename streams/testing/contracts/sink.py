"""The contract of external sinks: of all, and of those that keep positions and so are exactly-once."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from abc import ABC, abstractmethod
from typing import Any

import pytest

from penstock.state.errors import RetriableError, TaskMigratedError
from penstock.topologies.operator_api.external_sinks import Sink, SinkPartition, SinkRows, SinkWriter

OF = SinkPartition("app", "sink", "orders", "t1", 0)
KEYS = 5
KILLS = 4
BLOCKED_S = 1.0
"""The time after which a frozen writer is woken if no other one can be opened: it holds a lock."""

Content = dict[str, list[int]]


class SinkContract(ABC):
    """The contract of every sink. Subclass it, and say how one is made and what it holds::

        class TestMySink(SinkContract):
            def sink(self):
                return MySink(self.folder / "rows")

    ``folder``: a fresh one for each test."""

    @abstractmethod
    def sink(self) -> Sink:
        """A sink of this test, always of the same place. It must make each write durable at once. Keys are texts, and
        values ``{"n": number}``."""

    @abstractmethod
    def contents(self) -> Content:
        """The rows that the sink holds: by key, the numbers in the order of their arrival, or the last one if a row replaces
        the one before it."""

    @pytest.fixture(autouse=True)
    def _own_folder(self, tmp_path: Any) -> None:
        self.folder = tmp_path

    def rows(self, first: int, stop: int) -> SinkRows:
        """The rows of the records at these offsets."""
        return rows_of(self.sink(), first, stop)

    def test_a_sink_can_be_shipped(self) -> None:
        import pickle

        sink = pickle.loads(pickle.dumps(self.sink()))
        assert sink.describe() == self.sink().describe()

    def test_rows_arrive_in_order(self) -> None:
        writer = self.sink().open(OF, 0)
        assert writer.write(self.rows(0, 7), 7) == 7
        assert writer.write(self.rows(7, 20), 20) == 20
        writer.close()
        writer.close()
        assert self.contents() == self.expected(20)

    def test_a_position_moves_without_rows(self) -> None:
        writer = self.sink().open(OF, 4)
        assert writer.position == 4
        assert writer.write(SinkRows([], []), 9) == 9
        assert writer.position == 9
        writer.close()

    def expected(self, stop: int) -> Content:
        """The rows that it holds after the records before this offset."""
        return expected(stop, folds=self.folds)

    folds = True
    """Whether a row replaces the one of its key."""


class ExactlyOnceSinkContract(SinkContract):
    """The contract of a sink that keeps positions. Each row of a partition is applied once, by any of its writers."""

    def test_a_new_partition_begins_at_the_start_that_it_is_given(self) -> None:
        writer = self.sink().open(OF, 3)
        assert writer.position == 3
        writer.close()

    def test_it_stands_where_it_was_left(self) -> None:
        writer = self.sink().open(OF, 0)
        writer.write(self.rows(0, 7), 7)
        writer.close()
        again = self.sink().open(OF, 0)
        assert again.position == 7
        again.write(self.rows(7, 9), 12)
        again.close()
        last = self.sink().open(OF, 0)
        assert last.position == 12
        last.close()
        assert self.contents() == self.expected(9)

    def test_what_was_not_written_is_not_there(self) -> None:
        writer = self.sink().open(OF, 0)
        writer.write(self.rows(0, 7), 7)
        self.sink().open(OF, 0).close()
        assert self.contents() == self.expected(7)

    def test_an_older_writer_is_refused(self) -> None:
        old = self.sink().open(OF, 0)
        old.write(self.rows(0, 5), 5)
        new = self.sink().open(OF, 0)
        assert new.position == 5
        new.write(self.rows(5, 8), 8)
        with pytest.raises(TaskMigratedError):
            old.write(self.rows(5, 12), 12)
        new.write(self.rows(8, 15), 15)
        with pytest.raises(TaskMigratedError):
            old.write(SinkRows([], []), 12)
        old.close()
        new.close()
        assert self.contents() == self.expected(15)

    def test_rows_are_applied_once_whoever_comes_first(self) -> None:
        """An older writer, and one that has not written yet: one of them is refused, and the rows are there once."""
        old = self.sink().open(OF, 0)
        new = self.sink().open(OF, 0)
        done = sum(self._written(writer) for writer in (old, new))
        assert done == 1
        assert self.contents() == self.expected(6)

    def _written(self, writer: SinkWriter) -> bool:
        try:
            writer.write(self.rows(0, 6), 6)
        except TaskMigratedError:
            return False
        finally:
            writer.close()
        return True

    @pytest.mark.parametrize(
        "other",
        [
            OF._replace(partition=1),
            OF._replace(topic="payments"),
            OF._replace(topic_id="t2"),
            OF._replace(sink="second"),
            OF._replace(application_id="app2"),
        ],
        ids=["partition", "topic", "recreated", "sink", "application"],
    )
    def test_partitions_are_apart(self, other: SinkPartition) -> None:
        writer, second = self.sink().open(OF, 0), self.sink().open(other, 2)
        writer.write(self.rows(0, 3), 3)
        assert second.position == 2
        second.write(SinkRows([], []), 5)
        writer.write(self.rows(3, 6), 6)
        writer.close()
        second.close()
        again = self.sink().open(other, 0)
        assert again.position == 5
        again.close()

    def test_killed_writers_leave_whole_writes(self) -> None:
        rng = random.Random(1)
        for _ in range(KILLS):
            child = _child(self.sink())
            try:
                child.wait_for_writes(2)
                time.sleep(rng.uniform(0.0, 0.05))
            finally:
                child.end(signal.SIGKILL)
            writer = self.sink().open(OF, 0)
            assert self.contents() == self.expected(writer.position)
            writer.close()

    def test_a_frozen_writer_that_wakes_changes_nothing(self) -> None:
        child = _child(self.sink())
        try:
            child.wait_for_writes(2)
            os.kill(child.pid, signal.SIGSTOP)
            writer = self._opened_while_frozen(child.pid)
            first = writer.position
            assert self.contents() == self.expected(first)
            writer.write(self.rows(first, first + 11), first + 11)
            os.kill(child.pid, signal.SIGCONT)
            assert child.refused(), "the frozen writer was not refused"
            writer.write(self.rows(first + 11, first + 20), first + 20)
            writer.close()
            assert self.contents() == self.expected(first + 20)
        finally:
            child.end(signal.SIGKILL)

    def _opened_while_frozen(self, pid: int) -> SinkWriter:
        deadline = time.monotonic() + BLOCKED_S
        while True:
            try:
                return self.sink().open(OF, 0)
            except RetriableError:
                if time.monotonic() > deadline:
                    os.kill(pid, signal.SIGCONT)  # its lock is the process's own, and no one else can end it


def rows_of(sink: Sink, first: int, stop: int) -> SinkRows:
    """The rows of the records at these offsets, one each."""
    made = [sink.row(f"k{n % KEYS}", {"n": n}, 1_000 + n, ()) for n in range(first, stop)]
    return SinkRows(made, list(range(first, stop)))


def expected(stop: int, *, folds: bool) -> Content:
    """The rows that a sink holds after the records before an offset."""
    out: Content = {}
    for n in range(stop):
        if folds:
            out[f"k{n % KEYS}"] = [n]
        else:
            out.setdefault(f"k{n % KEYS}", []).append(n)
    return out


class _WriterProcess:
    """A process that writes until it is refused or killed."""

    def __init__(self, process: Any, writes: Any, refused: Any) -> None:
        self._process, self._writes, self._refused = process, writes, refused

    @property
    def pid(self) -> int:
        return int(self._process.pid)

    def wait_for_writes(self, count: int) -> None:
        before, deadline = self._writes.value, time.monotonic() + 60
        while self._writes.value < before + count:
            assert self._process.is_alive(), "the writing process has ended"
            assert time.monotonic() < deadline, "the writing process does not write"
            time.sleep(0.005)

    def refused(self) -> bool:
        self._process.join(60)
        return bool(self._refused.value)

    def end(self, number: int) -> None:
        if self._process.is_alive():
            os.kill(self.pid, number)
        self._process.join(60)


def _child(sink: Sink) -> _WriterProcess:
    context = multiprocessing.get_context("spawn")
    writes, refused = context.Value("i", 0), context.Value("i", 0)
    process = context.Process(target=_write_on, args=(sink, writes, refused), daemon=True)
    process.start()
    return _WriterProcess(process, writes, refused)


def _write_on(sink: Sink, writes: Any, refused: Any) -> None:
    writer = sink.open(OF, 0)
    while True:
        stop = writer.position + random.randint(1, 40)
        try:
            writer.write(rows_of(sink, writer.position, stop), stop)
        except TaskMigratedError:
            refused.value = 1
            return
        except RetriableError:
            writer.close()
            writer = sink.open(OF, 0)
        writes.value += 1
