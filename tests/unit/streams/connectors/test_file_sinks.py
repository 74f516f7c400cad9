"""Rows into files: the contract of exactly-once sinks for each format, and what happens between the two renames."""

from __future__ import annotations

import csv
import datetime
import decimal
import errno
import json
import os
import pickle
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet as parquet
import pytest

import penstock as ps
from penstock import connectors
from penstock.connectors import CsvSink, FileSink, JsonLinesSink, ParquetSink, Sink, SinkPartition, SinkRows
from penstock.state.errors import (
    EnvironmentFault,
    ProcessingError,
    RetriableError,
    SettingsError,
    TaskMigratedError,
    TopologyError,
)
from penstock.streams.connectors.committed_files import HIDDEN, FilePlace
from penstock.testing import ExactlyOnceSinkContract, SinkContract

OF = SinkPartition("app", "s", "t", "id", 0)


def folded(rows: Any) -> dict[str, list[int]]:
    out: dict[str, list[int]] = {}
    for key, n in rows:
        out.setdefault(key, []).append(int(n))
    return out


def shown(folder: Any, pattern: str = "*") -> list[Path]:
    return sorted(path for path in Path(folder).glob(pattern) if path.is_file())


def lines(folder: Any) -> list[Any]:
    return [json.loads(line) for path in shown(folder) for line in path.read_bytes().splitlines()]


class TestJsonLines(ExactlyOnceSinkContract):
    folds = False

    def sink(self) -> Sink:
        return JsonLinesSink(str(self.folder / "out"), key="k", roll_interval=0)

    def contents(self) -> dict[str, list[int]]:
        return folded((row["k"], row["n"]) for row in lines(self.folder / "out"))


class TestCsv(SinkContract):
    folds = False

    def sink(self) -> Sink:
        return CsvSink(str(self.folder / "out"), columns=["k", "n"], key="k", roll_interval=0)

    def contents(self) -> dict[str, list[int]]:
        rows = []
        for path in shown(self.folder / "out"):
            with path.open(newline="") as file:
                rows += [(row["k"], row["n"]) for row in csv.DictReader(file)]
        return folded(rows)


SCHEMA = pyarrow.schema({"k": pyarrow.string(), "n": pyarrow.int64()})


class TestParquet(ExactlyOnceSinkContract):
    folds = False

    def sink(self) -> Sink:
        return ParquetSink(str(self.folder / "out"), schema=SCHEMA, key="k", roll_interval=0)

    def contents(self) -> dict[str, list[int]]:
        rows = [row for path in shown(self.folder / "out") for row in parquet.read_table(path).to_pylist()]
        return folded((row["k"], row["n"]) for row in rows)


def rows(sink: Sink, first: int, stop: int) -> SinkRows:
    made = [sink.row(f"k{n}", {"n": n}, n, ()) for n in range(first, stop)]
    return SinkRows(made, list(range(first, stop)))


class Clock:
    """Time that stands still unless it is moved."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        monkeypatch.setattr("penstock.streams.connectors.file_sinks.monotonic", lambda: self.now_s)


def test_a_file_is_shown_when_it_is_old_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    sink = JsonLinesSink(str(tmp_path), roll_interval="1m")
    assert sink.spans_commits
    writer = sink.open(OF, 10)
    assert writer.write(rows(sink, 10, 12), 13) == 10 and not writer.due()
    clock.now_s += 59
    assert writer.write(rows(sink, 13, 14), 14) == 10 and shown(tmp_path) == []
    clock.now_s += 1
    assert writer.due()
    assert writer.write(SinkRows([], []), 14) == 14 and not writer.due()
    assert [row["n"] for row in lines(tmp_path)] == [10, 11, 13]
    (path,) = shown(tmp_path)
    assert path.name.startswith("t-0-") and path.name.endswith(f"-{10:019}-{14:019}.jsonl")
    writer.write(rows(sink, 14, 15), 15)
    writer.close()
    again = sink.open(OF, 0)
    assert again.position == 14 and len(lines(tmp_path)) == 3
    assert list(tmp_path.glob(f"{HIDDEN}/*/*.part")) == []
    again.close()


def test_a_file_is_shown_when_it_has_enough_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Clock(monkeypatch)
    sink = JsonLinesSink(str(tmp_path), roll_interval="1h", roll_rows=5)
    writer = sink.open(OF, 0)
    assert [writer.write(rows(sink, n, n + 2), n + 2) for n in range(0, 12, 2)] == [0, 0, 6, 6, 6, 12]
    writer.close()
    assert [len(path.read_bytes().splitlines()) for path in shown(tmp_path)] == [6, 6]


def test_a_position_moves_without_a_file(tmp_path: Path) -> None:
    writer = JsonLinesSink(str(tmp_path), roll_interval=0).open(OF, 3)
    assert writer.write(SinkRows([], []), 9) == 9
    writer.close()
    assert shown(tmp_path) == []


@pytest.mark.parametrize("lost", ["answer", "write"])
def test_a_committed_file_is_shown_by_the_next_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """The process ends between the two renames, or before the first one."""
    sink = JsonLinesSink(str(tmp_path), roll_interval=0)
    writer = sink.open(OF, 0)
    writer.write(rows(sink, 0, 2), 2)
    step = "_show" if lost == "answer" else "_keep"

    def fails(*_: object) -> None:
        raise OSError(errno.EIO, "gone")

    with monkeypatch.context() as context:
        context.setattr(FilePlace, step, fails)
        with pytest.raises(RetriableError, match="gone"):
            writer.write(rows(sink, 2, 5), 5)
    writer.close()
    assert len(lines(tmp_path)) == 2
    again = sink.open(OF, 0)
    assert again.position == (5 if lost == "answer" else 2)
    assert [row["n"] for row in lines(tmp_path)] == list(range(again.position))
    again.close()


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("step", ["_taken", "_show", "_tidy"])
def test_whatever_two_openings_and_a_commit_do_between_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, before: bool
) -> None:
    """Within the opening of a second writer, around each step of it, the first one commits and ends before it shows its
    file, and a third one is opened and commits. Every row is there once, and nothing of a newer writer is removed."""
    sink = JsonLinesSink(str(tmp_path), roll_interval=0)
    first = sink.open(OF, 0)
    first.write(rows(sink, 0, 3), 3)
    writers = [first]

    def others() -> None:
        with pytest.MonkeyPatch.context() as inner, suppress(TaskMigratedError):
            inner.setattr(FilePlace, "_show", lambda *_: None)
            first.write(rows(sink, 3, 5), 5)
        third = sink.open(OF, 0)
        writers.append(third)
        third.write(rows(sink, third.position, 8), 8)
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(FilePlace, "_show", lambda *_: None)
            third.write(rows(sink, 8, 9), 9)

    plain: Any = getattr(FilePlace, step)

    def within(place: Any, *given: Any) -> Any:
        monkeypatch.undo()
        if before:
            others()
        found = plain(place, *given)
        if not before:
            others()
        return found

    monkeypatch.setattr(FilePlace, step, within)
    with suppress(RetriableError):
        second = sink.open(OF, 0)
        writers.append(second)
        if second.position < 9:
            with pytest.raises(TaskMigratedError):
                second.write(rows(sink, second.position, 10), 10)
    last = sink.open(OF, 0)
    assert last.position == 9
    assert [row["n"] for row in lines(tmp_path)] == list(range(9))
    for writer in (*writers, last):
        writer.close()


@pytest.mark.parametrize("kind", ["lines", "parquet"])
def test_a_writer_whose_unfinished_file_was_removed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """A newer writer removes it at any moment: also between the rows and the end of the file."""
    clock = Clock(monkeypatch)
    sink: FileSink = JsonLinesSink(str(tmp_path), key="k")
    if kind == "parquet":
        sink = ParquetSink(str(tmp_path), schema=SCHEMA, key="k")
    old = sink.open(OF, 0)
    assert old.write(rows(sink, 0, 3), 3) == 0
    new = sink.open(OF, 0)
    clock.now_s += 60
    with pytest.raises(TaskMigratedError, match="another writer of s/t-0 was opened since"):
        old.write(rows(sink, 3, 4), 4)
    old.close()
    assert new.write(rows(sink, 0, 2), 2) == 2 or new.write(SinkRows([], []), 2) == 2
    new.close()
    assert len(shown(tmp_path)) == 1


def test_a_full_disk_is_waited_for_and_a_wrong_folder_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = JsonLinesSink(str(tmp_path / "out"), roll_interval=0)
    writer = sink.open(OF, 0)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as context:
        context.setattr("penstock.streams.connectors.committed_files.os.fsync", full)
        with pytest.raises(RetriableError, match="No space left"):
            writer.write(rows(sink, 0, 1), 1)
    writer.close()
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentFault, match="cannot write files to"):
        JsonLinesSink(str(tmp_path / "file")).open(OF, 0)


def test_names_say_which_rows_a_file_has(tmp_path: Path) -> None:
    """Partitions of several sinks in one folder never take each other's names."""
    sink = JsonLinesSink(str(tmp_path), roll_interval=0)
    places = [OF, OF._replace(sink="other"), OF._replace(topic_id="new"), OF._replace(partition=1)]
    for place in places:
        writer = sink.open(place, 0)
        writer.write(rows(sink, 0, 2), 2)
        writer.close()
    assert len(shown(tmp_path)) == len(places) and len(lines(tmp_path)) == 2 * len(places)


def test_rows_of_csv() -> None:
    sink = CsvSink("out", columns=["id", "n", "tags", "at"], key="id", timestamp="at", delimiter=";")
    assert sink.row("x;", {"n": None, "tags": ["a", True]}, 7, ()) == b'"x;";;"[""a"",true]";7\n'
    assert sink.row('"', {"n": 1.5}, 7, ()) == b'"""";1.5;;7\n'
    with pytest.raises(ValueError, match="the record has 'm', and the columns are id, n, tags, at"):
        sink.row("x", {"m": 1}, 0, ())
    with pytest.raises(ValueError, match="the value is null"):
        sink.row("x", None, 0, ())


def test_csv_is_read_by_the_source(tmp_path: Path) -> None:
    sink = CsvSink(str(tmp_path), columns=["k", "text"], key="k", roll_interval=0)
    texts = ["plain", "a,b", 'quo"te', "two\nlines", ""]
    writer = sink.open(OF, 0)
    writer.write(SinkRows([sink.row("k", {"text": text}, 0, ()) for text in texts], [*range(5)]), 5)
    writer.close()
    source = connectors.CsvSource(str(tmp_path / "*.csv"), key="k")
    (split,) = source.splits()
    reader = source.open(split, None)
    assert [r.value["text"] for r in reader.read(10).records] == [*texts[:4], None]
    reader.close()


def test_types_of_parquet(tmp_path: Path) -> None:
    schema = pyarrow.schema(
        {
            "id": pyarrow.int64(),
            "price": pyarrow.decimal128(9, 2),
            "at": pyarrow.timestamp("us", tz="UTC"),
            "raw": pyarrow.binary(),
            "tags": pyarrow.list_(pyarrow.string()),
        }
    )
    sink = ParquetSink(str(tmp_path), schema=schema, key="id", roll_interval=0)
    value = {
        "price": decimal.Decimal("1.50"),
        "at": datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC),
        "raw": b"\xff",
        "tags": ["a"],
    }
    writer = pickle.loads(pickle.dumps(sink)).open(OF, 0)
    writer.write(SinkRows([sink.row(1, value, 0, ()), sink.row(2, {}, 0, ())], [0, 1]), 2)
    with pytest.raises(ProcessingError, match=r"sink s/t-0: the schema refuses the row of offset 3 \(.*'many'"):
        writer.write(SinkRows([sink.row(3, {}, 0, ()), sink.row("many", {}, 0, ())], [2, 3]), 4)
    writer.close()
    (path,) = shown(tmp_path)
    missing = dict.fromkeys(value)
    assert parquet.read_table(path).to_pylist() == [{"id": 1, **value}, {"id": 2, **missing}]
    with pytest.raises(ValueError, match="the record has 'x', and the schema id, price"):
        sink.row(1, {"x": 1}, 0, ())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: JsonLinesSink(""), "folder is empty"),
        (lambda: JsonLinesSink("out", roll_rows=0), "roll_rows=0"),
        (lambda: CsvSink("out"), "columns is empty"),
        (lambda: CsvSink("out", columns=["a", "a"]), "a list of different ones"),
        (lambda: CsvSink("out", columns=["a"], delimiter=";;"), "give one character"),
        (lambda: ParquetSink("out"), "schema is missing; give pyarrow"),
    ],
)
def test_settings_that_cannot_work(make: Any, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        make()


def test_in_a_topology(tmp_path: Path) -> None:
    builder = ps.StreamsBuilder("t", key=str, value=dict)
    stream = builder.stream("in")
    stream.map(lambda k, v: (v["city"], v)).sink(JsonLinesSink(str(tmp_path), key="city"), name="facts")
    with ps.TopologyTestDriver(builder.build()) as driver:
        driver.pipe("in", "x", {"city": "Oslo", "n": 1})
        assert driver.read_sink("facts") == [b'{"city":"Oslo","n":1}\n']
    builder = ps.StreamsBuilder("t", key=str, value=dict)
    builder.stream("in").group_by_key().count(name="n").to_stream().sink(JsonLinesSink(str(tmp_path)), name="facts")
    with pytest.raises(TopologyError, match="cannot take upserts"):
        builder.build()


def test_it_describes_itself() -> None:
    sink: FileSink = CsvSink("/data/out", columns=["a"])
    assert sink.describe() == "CsvSink /data/out" and os.sep in sink.folder
