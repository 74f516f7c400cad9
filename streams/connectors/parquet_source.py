"""Parquet files as a source. A position is the number of rows that were read, and a checksum of the file's footer."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import msgspec
import pyarrow
import pyarrow.parquet as parquet

from penstock.state.errors import EnvironmentFault, IncompatibleError
from penstock.streams.connectors.file_sources import FileSource
from penstock.streams.connectors.row_records import RowRecords
from penstock.streams.connectors.source import SourceBatch, SourceReader, SourceRecord

_FOOTER_BYTES: Final = 4096
_ROWS: Final = 4096
"""How many rows are decoded at once."""


@dataclass(frozen=True)
class ParquetSource(FileSource):
    """Parquet files. A file is read once it is there, so move it to its place when it is complete. ``complete`` has no
    effect. See ``FileSource`` for the rest."""

    def reader(self, path: str, position: str | None, records: RowRecords) -> SourceReader:
        return _ParquetReader(path, position, records)


class _RowPosition(msgspec.Struct):
    rows: int
    footer: int


class _ParquetReader(SourceReader):
    def __init__(self, path: str, position: str | None, records: RowRecords) -> None:
        self._path, self._records = path, records
        self._footer = _checksum(path)
        self._row = 0
        if position is not None:
            at = msgspec.json.decode(position, type=_RowPosition)
            if at.footer != self._footer:
                raise IncompatibleError(
                    f"file {path} is not the one of which {at.rows} rows were read; give what is new in a file of another "
                    "name, or start over with --from-beginning"
                )
            self._row = at.rows
        try:
            self._file = parquet.ParquetFile(path)
        except pyarrow.ArrowInvalid as exc:
            raise EnvironmentFault(f"file {path} is not a complete Parquet file: {exc}") from exc
        self._rows = self._decoded(self._row)

    def read(self, max_records: int) -> SourceBatch:
        first = self._row
        rows = list(islice(self._rows, max_records))
        self._row += len(rows)
        records: list[SourceRecord] = [
            self._records.record(row, f"{self._path}, row {number}") for number, row in enumerate(rows, first + 1)
        ]
        position = msgspec.json.encode(_RowPosition(self._row, self._footer)).decode()
        return SourceBatch(records, position, len(rows) < max_records)

    def _decoded(self, skipped: int) -> Iterator[dict[str, Any]]:
        """The rows after the ``skipped`` first ones, without decoding the row groups before them."""
        for group in range(self._file.num_row_groups):
            count = self._file.metadata.row_group(group).num_rows
            if skipped >= count:
                skipped -= count
                continue
            for batch in self._file.iter_batches(_ROWS, row_groups=[group]):
                left = batch.slice(skipped) if skipped else batch
                skipped = max(skipped - batch.num_rows, 0)
                yield from left.to_pylist()

    def close(self) -> None:
        self._file.close()


def _checksum(path: str) -> int:
    with open(path, "rb") as file:
        size = file.seek(0, 2)
        file.seek(max(size - _FOOTER_BYTES, 0))
        return zlib.crc32(file.read(), size & 0xFFFFFFFF)
