"""Files as sources: CSV and JSON lines. A position is the offset of a byte, and a checksum of what is before it.

Files may grow, and new ones may come: both are read on at the next run, or at once under ``follow``. What was read must
stay as it is: a file that is shorter than its position, or has other bytes before it, is refused.
"""

from __future__ import annotations

import csv
import glob
import os
import zlib
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from penstock.state.errors import EnvironmentFault, IncompatibleError, SettingsError
from penstock.streams.connectors.row_records import RowRecords, columns_of, line, unreadable
from penstock.streams.connectors.source import Source, SourceBatch, SourceReader, SourceRecord

_CHECKED_BYTES: Final = 4096


@dataclass(frozen=True)
class FileSource(Source):
    """Reads files, in the order of their names. ``path``: a file, or a pattern such as ``in/*.csv`` (``**``: folders
    below, too). Positions are kept by the path from the pattern's first folder on, so that the folder may move. ``key``:
    the column of the key, or several for a key with fields. ``timestamp``: the column of the event time: milliseconds, or
    ISO 8601, UTC where it names no zone. ``complete``: whether a last line without an end is a line; set it to ``False``
    while something still writes the files."""

    path: str
    _: KW_ONLY
    key: str | Sequence[str] | None = None
    timestamp: str | None = None
    complete: bool = True

    def __post_init__(self) -> None:
        if not self.path:
            raise SettingsError("path is empty; give a file, or a pattern such as in/*.csv")

    def splits(self) -> list[str]:
        if not glob.has_magic(self.path):
            if not os.path.isfile(self.path):
                raise SettingsError(f"there is no file {self.path}")
            return [os.path.basename(self.path)]
        found = [p for p in glob.glob(self.path, recursive=True) if os.path.isfile(p)]
        return sorted(os.path.relpath(p, self._folder()) for p in found)

    def _folder(self) -> str:
        """The folder to which the names of splits are relative."""
        parts = Path(self.path).parts
        fixed = next((i for i, part in enumerate(parts) if glob.has_magic(part)), len(parts) - 1)
        return str(Path(*parts[:fixed]))

    def open(self, split: str, position: str | None) -> SourceReader:
        path = os.path.join(self._folder(), split)
        try:
            return self.reader(path, position, RowRecords(columns_of(self.key), self.timestamp))
        except OSError as exc:
            raise EnvironmentFault(f"file {path} cannot be read: {exc.strerror}") from exc

    @abstractmethod
    def reader(self, path: str, position: str | None, records: RowRecords) -> SourceReader:
        """The reader of one file."""

    def describe(self) -> str:
        return f"{type(self).__name__} {self.path}"


@dataclass(frozen=True)
class CsvSource(FileSource):
    """CSV files with the names of the columns in the first line. An empty cell is null. Lines of another length than the
    first are unreadable. Cells are texts; numbers and dates are read from them where the ingestion's ``value`` is a class
    with such fields. See ``FileSource`` for the rest."""

    _: KW_ONLY
    delimiter: str = ","
    encoding: str = "utf-8"
    textual = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.delimiter) != 1 or self.delimiter in '"\r\n':
            raise SettingsError(f"delimiter={self.delimiter!r}; give one character")
        try:
            if "\n".encode(self.encoding) != b"\n":
                raise LookupError("lines do not end with one byte")
        except LookupError as exc:
            raise SettingsError(f"encoding={self.encoding!r}: {exc}; give utf-8, latin-1 or a like one") from exc

    def reader(self, path: str, position: str | None, records: RowRecords) -> SourceReader:
        return _CsvReader(path, position, records, self)


@dataclass(frozen=True)
class JsonLinesSource(FileSource):
    """Files with one JSON value on each line; empty lines are left out. See ``FileSource``."""

    def reader(self, path: str, position: str | None, records: RowRecords) -> SourceReader:
        return _JsonReader(path, position, records, self.complete)


class _LinePosition(msgspec.Struct):
    """``before``: the checksum of the bytes that end at the offset. ``line``: how many lines are before it."""

    offset: int
    before: int
    line: int


class _Lines(SourceReader):
    """Reads a file line by line, and knows the position behind each."""

    def __init__(self, path: str, position: str | None, records: RowRecords, complete: bool) -> None:
        self._path, self._records, self._complete = path, records, complete
        self._file = open(path, "rb")  # noqa: SIM115  # close closes it
        self._offset = self._line = 0
        self._stands_at_end = False
        try:
            if position is not None:
                self._go_to(msgspec.json.decode(position, type=_LinePosition))
            self._rows = self._read()
        except BaseException:
            self.close()
            raise

    def _go_to(self, at: _LinePosition) -> None:
        self._offset, self._line = at.offset, at.line
        if self._before() != at.before:
            raise IncompatibleError(
                f"file {self._path} is not the one that was read up to byte {at.offset}: what is before is gone or another. "
                "Give what is new in a file of another name, or start over with --from-beginning"
            )
        self._past_the_line()

    def _past_the_line(self) -> None:
        """Take the end of a line that had none when it was read as the last one."""
        if self._offset == 0:
            return
        self._file.seek(self._offset - 1)
        end = self._file.read(3)
        if len(end) > 1 and not end.startswith(b"\n"):
            added = 2 if end[1:] == b"\r\n" else 1
            if end[1:2] not in (b"\r", b"\n"):
                raise IncompatibleError(
                    f"file {self._path} goes on within its line {self._line}, which was read as its last; set "
                    "complete=False where files still grow, and start over with --from-beginning"
                )
            self._offset += added
        self._file.seek(self._offset)

    def _before(self) -> int | None:
        """The checksum of the bytes before the offset, where the file then stands; ``None`` if it is shorter."""
        length = min(self._offset, _CHECKED_BYTES)
        self._file.seek(self._offset - length)
        data = self._file.read(length)
        return zlib.crc32(data) if len(data) == length else None

    def read(self, max_records: int) -> SourceBatch:
        try:
            found = list(islice(self._rows, max_records))
        except OSError as exc:
            raise EnvironmentFault(f"file {self._path} cannot be read: {exc.strerror}") from exc
        ended = len(found) < max_records
        at = _LinePosition(self._offset, self._checksum(), self._line)
        if ended:
            self._rows = self._read()
        return SourceBatch(found, msgspec.json.encode(at).decode(), ended)

    def _checksum(self) -> int:
        here = self._file.tell()
        found = self._before()
        self._file.seek(here)
        return found or 0

    def _lines(self) -> Iterator[bytes]:
        """The lines from where the file stands; each moves the offset."""
        while data := self._file.readline():
            self._stands_at_end = not data.endswith(b"\n") or not self._file.peek(1)
            if not data.endswith(b"\n") and not self._complete:
                self._file.seek(-len(data), os.SEEK_CUR)
                return
            self._offset += len(data)
            self._line += 1
            yield data

    @abstractmethod
    def _read(self) -> Iterator[SourceRecord]:
        """The records from where the file stands."""

    def close(self) -> None:
        self._file.close()


class _JsonReader(_Lines):
    def _read(self) -> Iterator[SourceRecord]:
        for data in self._lines():
            if data.strip():
                yield self._record(data, line(self._line, self._path))

    def _record(self, data: bytes, place: str) -> SourceRecord:
        try:
            return self._records.record(msgspec.json.decode(data), place)
        except (msgspec.DecodeError, UnicodeDecodeError) as exc:
            return unreadable(place, f"it is not JSON ({exc}): {data!r:.100}")


class _CsvReader(_Lines):
    def __init__(self, path: str, position: str | None, records: RowRecords, source: CsvSource) -> None:
        self._source = source
        self._columns: list[str] = []
        self._undecodable = ""
        super().__init__(path, position, records, source.complete)

    def _read(self) -> Iterator[SourceRecord]:
        rows = self._parser(self._decoded())
        if not self._columns:
            self._columns = self._named(next(rows, [])) if self._offset == 0 else self._first_line()
        while True:
            start, number = self._offset, self._line
            try:
                cells = next(rows, None)
            except csv.Error as exc:
                if not self._complete and self._stands_at_end:
                    self._offset, self._line = start, number  # the rest of the row is still to come
                    self._file.seek(start)
                    return
                yield unreadable(line(number + 1, self._path), f"it is not CSV ({exc})")
                continue
            if cells is None:
                return
            if cells:
                yield self._record(cells, line(number + 1, self._path))

    def _record(self, cells: list[str], place: str) -> SourceRecord:
        if self._undecodable:
            why, self._undecodable = self._undecodable, ""
            return unreadable(place, why)
        if len(cells) != len(self._columns):
            names = ", ".join(self._columns)
            return unreadable(
                place, f"it has {len(cells)} cells, and the first line names {len(self._columns)}: {names}"
            )
        return self._records.record(dict(zip(self._columns, (cell or None for cell in cells), strict=True)), place)

    def _parser(self, lines: Iterator[str]) -> Iterator[list[str]]:
        return csv.reader(lines, delimiter=self._source.delimiter, strict=True)

    def _decoded(self) -> Iterator[str]:
        for data in self._lines():
            try:
                yield data.decode(self._source.encoding)
            except UnicodeDecodeError as exc:
                self._undecodable = f"it is not {self._source.encoding} ({exc.reason} at byte {exc.start} of the line)"
                yield data.decode(self._source.encoding, "replace")

    def _first_line(self) -> list[str]:
        with open(self._path, encoding=self._source.encoding, newline="") as file:
            return self._named(next(self._parser(file), []))

    def _named(self, cells: list[str]) -> list[str]:
        names = [cell.removeprefix("\ufeff") for cell in cells]
        if names and (not all(names) or len(set(names)) < len(names)):
            raise SettingsError(
                f"the first line of {self._path} must name the columns, and is {', '.join(names)!r:.200}"
            )
        return names
