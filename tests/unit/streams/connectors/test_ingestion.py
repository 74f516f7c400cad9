"""Ingestions on the log in memory: each record once, whatever fails; what is refused, and what is skipped."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from penstock.connectors import Ingestion, Source, SourceBatch, SourceReader, SourceRecord
from penstock.state.errors import (
    IncompatibleError,
    ProcessingError,
    RetriableError,
    SettingsError,
    TaskMigratedError,
)
from penstock.streams.connectors.ingestion_run import IngestionRun, Progress
from penstock.streams.ports.log import AbortableError, TopicSpec, UnknownOutcomeError
from penstock.streams.testing.memory_log import MemoryLog
from tests.memory_worker_log import MemoryWorkerLog


@dataclasses.dataclass
class Listed(Source):
    """Splits of values in lists; positions count. ``strike`` is called before each read."""

    content: dict[str, list[Any]]
    keeps: bool = True
    strike: Any = None

    def splits(self) -> list[str]:
        return sorted(self.content)

    def open(self, split: str, position: str | None) -> SourceReader:
        return _ListReader(self, split, int(position or 0))


class _ListReader(SourceReader):
    def __init__(self, source: Listed, split: str, at: int) -> None:
        self._source, self._split, self._at = source, split, at

    def read(self, max_records: int) -> SourceBatch:
        if self._source.strike is not None:
            self._source.strike()
        values = self._source.content[self._split]
        found = values[self._at : self._at + max_records]
        self._at += len(found)
        records = [
            value if isinstance(value, SourceRecord) else SourceRecord(str(value), value, 1_000, place=f"row {value}")
            for value in found
        ]
        return SourceBatch(records, str(self._at) if self._source.keeps else None, self._at >= len(values))


class World:
    def __init__(self, **content: list[Any]) -> None:
        self.log = MemoryLog()
        self.log.create(TopicSpec("numbers", 3))
        self.source = Listed(content)
        self.pauses = list[float]()

    def ingestion(self, **given: Any) -> Ingestion:
        return Ingestion("in", self.source, "numbers", **{"value": int, "batch_records": 3} | given)

    def begun(self, ingestion: Ingestion | None = None, **given: Any) -> IngestionRun:
        log: Any = MemoryWorkerLog(self.log)
        given = {"now_ms": lambda: 5, "pause": self.pauses.append} | given
        return IngestionRun(ingestion or self.ingestion(), log, **given)

    def run(self, ingestion: Ingestion | None = None, **given: Any) -> Progress:
        return self.begun(ingestion).run(**given)

    def written(self) -> list[int]:
        return sorted(int.from_bytes(entry.value or b"") for _, _, entry in self.log.read("numbers"))


def test_records_keep_their_keys_times_and_order() -> None:
    world = World(a=[1, 2, 3, 4], b=[5])
    done = world.run()
    assert (done.records, done.split, done.position) == (5, "b", "1")
    assert world.written() == [1, 2, 3, 4, 5]
    assert {entry.key for _, _, entry in world.log.read("numbers")} == {b"1", b"2", b"3", b"4", b"5"}
    assert {entry.timestamp_ms for _, _, entry in world.log.read("numbers")} == {1_000}


def test_a_second_run_writes_what_is_new() -> None:
    world = World(a=[1, 2, 3, 4])
    world.run()
    world.source.content["a"].append(5)
    world.source.content["c"] = [6]
    assert world.run().records == 2
    assert world.run().records == 0
    assert world.written() == [1, 2, 3, 4, 5, 6]


FAULTS = [
    ("init", RetriableError("away")),
    ("begin", RetriableError("away")),
    ("send", AbortableError("refused")),
    ("flush", RetriableError("away")),
    ("commit_before", UnknownOutcomeError("no answer")),
    ("commit_after", UnknownOutcomeError("no answer")),
    ("poll", RetriableError("away")),
]


@pytest.mark.parametrize("nth", [1, 2, 3])
@pytest.mark.parametrize(("point", "error"), FAULTS, ids=[point for point, _ in FAULTS])
def test_each_record_is_written_once_whatever_fails(point: str, error: Exception, nth: int) -> None:
    world = World(a=list(range(8)), b=[8, 9])
    if point == "poll":
        world.run()  # there are positions to be read
    world.source.content["b"] += [10, 11]
    before = world.log.passages[point]
    struck = list[int]()

    def strike() -> None:
        struck.append(world.log.passages[point] - before)
        raise error

    world.log.fault(point, nth if point not in ("init", "poll") else 1, strike)
    world.run()
    assert struck
    assert world.pauses, "it waited before it began again"
    assert world.written() == list(range(12))


def test_a_source_that_does_not_answer_is_opened_again() -> None:
    world = World(a=[1, 2, 3, 4])
    failing = iter([None, RetriableError("the server is away"), None])

    def strike() -> None:
        error = next(failing, None)
        if error is not None:
            raise error

    world.source.strike = strike
    seen = list[str]()
    world.begun(report=lambda progress: seen.append(progress.waiting)).run()
    assert world.written() == [1, 2, 3, 4]
    assert seen == ["", "the server is away", ""]


def test_a_run_that_was_frozen_is_fenced_by_the_next_one() -> None:
    world = World(a=[1, 2, 3, 4, 5])
    reads = 0

    def strike() -> None:
        nonlocal reads
        reads += 1
        if reads == 2:  # while the first run is about to read its second batch, another one does all
            world.source.strike = None
            world.run()

    world.source.strike = strike
    with pytest.raises(TaskMigratedError):
        world.run()
    assert world.written() == [1, 2, 3, 4, 5]


def test_what_does_not_pass_by_itself_ends_the_run() -> None:
    world = World(a=[1, SourceRecord("k", "x" * 2_000_000)])
    with pytest.raises(AbortableError, match="refused"):
        world.run(world.ingestion(value=str, batch_records=1, on_error="skip"))
    assert world.log.read("numbers") == []  # the number is no text, and was skipped


def test_a_record_that_does_not_fit_ends_the_run_with_its_place() -> None:
    world = World(a=[1, 2, SourceRecord("k", "three", place="a.csv, line 4"), 4])
    with pytest.raises(
        ProcessingError, match=r"ingestion in: a.csv, line 4: its value: Expected `int`, got `str`.*on_error=\"skip\""
    ):
        world.run(world.ingestion(batch_records=2))
    assert world.written() == [1, 2], "the batches before it are there"
    done = world.run(world.ingestion(on_error="skip"))
    assert world.written() == [1, 2, 4]
    assert (done.skipped, done.last_skipped.partition(":")[0]) == (1, "a.csv, line 4")
    assert world.run(world.ingestion(on_error="skip")).skipped == 0, "its place was passed"


def test_a_record_that_the_source_cannot_read_says_why() -> None:
    world = World(a=[SourceRecord(None, None, place="line 1", error="it is not JSON")])
    with pytest.raises(ProcessingError, match="line 1: it is not JSON"):
        world.run()


def test_another_topic_is_refused_and_so_is_one_that_was_made_again() -> None:
    world = World(a=[1])
    world.run()
    world.log.create(TopicSpec("others", 1))
    with pytest.raises(IncompatibleError, match=r"up to 1 to topic numbers; .*missing in others"):
        world.run(dataclasses.replace(world.ingestion(), topic="others"))
    world.log.make_again("numbers")
    with pytest.raises(IncompatibleError, match=r"to a topic numbers that was deleted since.*--from-beginning"):
        world.run()
    world.run(from_beginning=True)
    assert world.written() == [1]
    assert world.run().records == 0


@pytest.mark.parametrize("point", ["commit_before", "commit_after"])
def test_starting_over_writes_all_again_once(point: str) -> None:
    world = World(a=[1, 2, 3, 4], b=[5])
    world.run()
    for nth in (1, 2):
        world.log.fault(point, nth, UnknownOutcomeError("no answer"))
    world.run(from_beginning=True)
    assert world.written() == sorted([1, 2, 3, 4, 5] * 2)


def test_a_source_without_positions_is_written_by_each_run() -> None:
    world = World(a=[1, 2])
    world.source.keeps = False
    assert [world.run().records, world.run().records] == [2, 2]
    assert world.log.read("in-positions") == []


def test_it_follows_a_source_until_it_is_stopped() -> None:
    world = World(a=[1])
    ends = iter([False] * 6 + [True] * 9)

    def pause(seconds: float) -> None:
        assert seconds == 0.25
        world.source.content["a"].append(2)

    run = world.begun(world.ingestion(follow=True, poll_interval="250ms"), pause=pause, stop=lambda: next(ends))
    assert run.run().records >= 2
    assert world.written()[:2] == [1, 2]


@dataclasses.dataclass
class Order:
    city: str
    cents: int
    note: str | None = None


@pytest.mark.parametrize("textual", [True, False])
def test_rows_become_the_class_that_is_given(textual: bool) -> None:
    row = {"city": "Rome", "cents": "12" if textual else 12, "note": None}
    world = World(a=[SourceRecord("7" if textual else 7, row)])
    world.source.textual = textual
    world.run(world.ingestion(key=int, value=Order))
    ((_, _, entry),) = world.log.read("numbers")
    assert entry.key == (7).to_bytes(8)
    assert entry.value == b'{"city":"Rome","cents":12,"note":null}'
    assert entry.timestamp_ms == 5, "without a time of its own it has the time at which it was written"


def test_texts_are_not_numbers_where_the_source_has_numbers() -> None:
    world = World(a=[SourceRecord("k", {"city": "Rome", "cents": "12"}, place="line 1")])
    with pytest.raises(ProcessingError, match=r"line 1: its value: Expected `int`, got `str` - at `\$\.cents`"):
        world.run(world.ingestion(value=Order))


def test_a_time_before_1970_is_named() -> None:
    world = World(a=[SourceRecord("k", 1, -1, place="line 1")])
    with pytest.raises(ProcessingError, match="line 1: its time -1 ms is before 1970"):
        world.run()


def test_a_topic_that_is_missing_is_named() -> None:
    world = World(a=[1])
    with pytest.raises(SettingsError, match="topic nowhere does not exist; create it first"):
        world.run(dataclasses.replace(world.ingestion(), topic="nowhere"))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"on_error": "stop"}, "choose fail or skip"),
        ({"batch_records": 0}, "one or more"),
        ({"name": "a b"}, "letters"),
    ],
)
def test_wrong_settings_are_named(given: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        Ingestion(**{"name": "in", "source": Listed({}), "topic": "t"} | given)
