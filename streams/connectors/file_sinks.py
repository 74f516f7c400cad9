"""Rows into files of a folder, exactly once: JSON lines and CSV. How files appear whole and once: ``committed_files``."""

from __future__ import annotations

import csv
import dataclasses
import io
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import Any, ClassVar

import msgspec

from penstock.state.errors import RetriableError, SettingsError
from penstock.state.log import Headers
from penstock.streams.connectors.committed_files import FilePlace, translated
from penstock.streams.connectors.table_rows import RowShape, names_of
from penstock.topologies.operator_api.external_sinks import Sink, SinkPartition, SinkRows, SinkWriter
from penstock.topologies.windows.durations import Duration, duration_ms


class RowFile(ABC):
    """A file that rows are added to."""

    @abstractmethod
    def add(self, rows: SinkRows, partition: SinkPartition) -> None:
        """Add rows. Raises ``ProcessingError`` naming one that the file cannot hold."""

    @abstractmethod
    def finish(self) -> None:
        """Complete it, and bring it to the disk."""

    @abstractmethod
    def close(self) -> None:
        """Release it. Idempotent."""


@dataclasses.dataclass(frozen=True)
class FileSink(Sink):
    """Writes files to ``folder``, exactly once, under either guarantee of the worker. Each has rows of one partition,
    in their order, and its name says which: ``<topic>-<partition>-<digest>-<first offset>-<offset behind the last>``.
    It appears when it is complete, and never changes.

    A file is completed at the first commit after ``roll_interval``, or when it has ``roll_rows``. Until then its rows
    are not there, and the group's positions wait for it, so that its task can have no operators with state:
    ``repartition()`` before ``sink()`` gives it a task of its own. ``roll_interval=0``: each commit makes a file of
    its own.

    Columns are the fields of the value; ``key`` names columns for the key, ``timestamp`` one for the record's time in
    milliseconds, and ``value`` that of a value without fields. A record with a null value makes no row: it is an error
    of the record. Positions are in the folder, below ``.penstock``. It must be on a file system with atomic renames
    that all workers share."""

    folder: str
    _: dataclasses.KW_ONLY
    key: str | Sequence[str] = ()
    value: str = "value"
    timestamp: str | None = None
    roll_interval: Duration = "1m"
    roll_rows: int = 1_000_000

    by_key = False
    append_only = True
    suffix: ClassVar[str] = ""
    kept: ClassVar[tuple[Any, ...]] = (bytes,)
    """Types of values that its files hold as they are."""

    def __post_init__(self) -> None:
        if not self.folder:
            raise SettingsError("folder is empty; give the folder that the files are written to")
        object.__setattr__(self, "key", names_of(self.key, "key") if self.key else ())
        object.__setattr__(self, "roll_interval", duration_ms(self.roll_interval))
        if self.roll_rows < 1:
            raise SettingsError(f"roll_rows={self.roll_rows}; give a number of rows above 0")

    @property
    def spans_commits(self) -> bool:  # type: ignore[override]  # follows from the interval
        return self.roll_interval != 0

    def columns_of(self, key: Any, value: Any, timestamp_ms: int) -> dict[str, Any]:
        """The columns of a record. Raises ``ValueError`` or ``TypeError`` for one that makes no row."""
        shape = RowShape(names_of(self.key, "key") if self.key else (), self.value, self.timestamp, self.kept)
        found = shape.row(key, value, timestamp_ms).columns
        if found is None:
            raise ValueError("the value is null, and files have no rows to delete; filter such records out")
        return found

    def open(self, partition: SinkPartition, start: int) -> SinkWriter:
        return _FileWriter(self, partition, start)

    @abstractmethod
    def file(self, path: Path) -> RowFile:
        """A new file."""

    def describe(self) -> str:
        return f"{type(self).__name__} {self.folder}"


@dataclasses.dataclass(frozen=True)
class JsonLinesSink(FileSink):
    """Files with one JSON object on each line: ``.jsonl``. Bytes are base64, as in all JSON of records. See ``FileSink``."""

    suffix = ".jsonl"

    def row(self, key: Any, value: Any, timestamp_ms: int, headers: Headers) -> bytes:
        return msgspec.json.encode(self.columns_of(key, value, timestamp_ms)) + b"\n"

    def file(self, path: Path) -> RowFile:
        return _LinesFile(path)


@dataclasses.dataclass(frozen=True)
class CsvSink(FileSink):
    """CSV files with the names of the ``columns`` in the first line: ``.csv``. A field that is missing or null is an empty
    cell; lists and fields within fields are JSON. A record with a field that is none of the columns is an error of the
    record. ``CsvSource`` reads them. See ``FileSink``."""

    _: dataclasses.KW_ONLY
    columns: Sequence[str] = ()
    delimiter: str = ","
    suffix = ".csv"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "columns", names_of(self.columns, "columns"))
        if not self.columns:
            raise SettingsError("columns is empty; name the columns, in the order that they have in the files")
        if len(self.delimiter) != 1 or self.delimiter in '"\r\n':
            raise SettingsError(f"delimiter={self.delimiter!r}; give one character")

    def row(self, key: Any, value: Any, timestamp_ms: int, headers: Headers) -> bytes:
        found = self.columns_of(key, value, timestamp_ms)
        unknown = next((name for name in found if name not in self.columns), None)
        if unknown is not None:
            raise ValueError(f"the record has {unknown!r}, and the columns are {', '.join(self.columns)}")
        return self.line([_cell(found.get(name)) for name in self.columns])

    def line(self, cells: Sequence[str]) -> bytes:
        """A line of the file."""
        text = io.StringIO()
        csv.writer(text, delimiter=self.delimiter, lineterminator="\n").writerow(cells)
        return text.getvalue().encode()

    def file(self, path: Path) -> RowFile:
        return _LinesFile(path, self.line(self.columns))


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode().strip('"')


class _LinesFile(RowFile):
    """Rows are lines."""

    def __init__(self, path: Path, first: bytes = b"") -> None:
        self._file = path.open("xb")
        self._file.write(first)

    def add(self, rows: SinkRows, partition: SinkPartition) -> None:
        self._file.writelines(rows.rows)

    def finish(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def close(self) -> None:
        self._file.close()


class _FileWriter(SinkWriter):
    def __init__(self, sink: FileSink, partition: SinkPartition, start: int) -> None:
        self._sink, self._partition = sink, partition
        self._place: FilePlace | None = FilePlace(Path(sink.folder), partition, start, sink.suffix)
        self.position = self._held_to = self._place.position
        self._interval_s = duration_ms(sink.roll_interval) / 1000
        self._due_s = monotonic() + self._interval_s
        self._part: tuple[Path, RowFile] | None = None
        self._held = 0

    def write(self, rows: SinkRows, position: int) -> int:
        place = self._place
        if place is None:
            raise RetriableError(f"sink {self._partition} is closed")
        with translated(f"write files to {self._sink.folder}"):
            try:
                if len(rows):
                    self._opened(place).add(rows, self._partition)
                self._held += len(rows)
                self._held_to = max(position, self._held_to)
                if self._held < self._sink.roll_rows and monotonic() < self._due_s:
                    return self.position
                if self._part is not None:
                    self._part[1].finish()
            except FileNotFoundError as exc:
                raise place.lost() from exc
        part, self._part = self._part, None  # from here on it may be what the position names, so that close leaves it
        place.commit(self._held_to, None if part is None else part[0])
        self._held, self.position = 0, place.position
        self._due_s = monotonic() + self._interval_s
        return self.position

    def _opened(self, place: FilePlace) -> RowFile:
        if self._part is None:
            path = place.new_part()
            self._part = path, self._sink.file(path)
        return self._part[1]

    def due(self) -> bool:
        return self._held_to > self.position and monotonic() >= self._due_s

    def close(self) -> None:
        self._place = None
        if self._part is not None:
            path, file = self._part
            self._part = None
            file.close()
            path.unlink(missing_ok=True)
