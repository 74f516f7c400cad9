"""Rows into Parquet files of a folder, exactly once: see ``file_sinks``."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
from pathlib import Path
from typing import Any, Final

import pyarrow
import pyarrow.parquet as parquet

from penstock.state.errors import ProcessingError, SettingsError
from penstock.state.log import Headers
from penstock.state.machine.atomic_files import sync_file
from penstock.streams.connectors.file_sinks import FileSink, RowFile
from penstock.topologies.operator_api.external_sinks import SinkPartition, SinkRows

_GROUP_ROWS: Final = 50_000
"""The rows of a row group, unless the file ends."""


@dataclasses.dataclass(frozen=True)
class ParquetSink(FileSink):
    """Parquet files: ``.parquet``. ``schema`` is pyarrow's; a field that is missing is null. A record with a field that the
    schema lacks is an error of the record, and a value that its column cannot hold ends the worker with its offset. Dates,
    times, decimals and bytes stay what they are. Needs the extra ``parquet``. See ``FileSink``."""

    _: dataclasses.KW_ONLY
    schema: pyarrow.Schema = None
    compression: str = "zstd"
    suffix = ".parquet"
    kept = (bytes, datetime.datetime, datetime.date, datetime.time, datetime.timedelta, decimal.Decimal)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.schema, pyarrow.Schema) or not len(self.schema):
            raise SettingsError('schema is missing; give pyarrow.schema({"city": pyarrow.string(), …})')

    def row(self, key: Any, value: Any, timestamp_ms: int, headers: Headers) -> dict[str, Any]:
        found = self.columns_of(key, value, timestamp_ms)
        unknown = next((name for name in found if name not in self.schema.names), None)
        if unknown is not None:
            raise ValueError(f"the record has {unknown!r}, and the schema {', '.join(self.schema.names)}")
        return found

    def file(self, path: Path) -> RowFile:
        return _ParquetFile(path, self)


class _ParquetFile(RowFile):
    def __init__(self, path: Path, sink: ParquetSink) -> None:
        self._path, self._schema = path, sink.schema
        self._writer = parquet.ParquetWriter(path, sink.schema, compression=sink.compression)
        self._batches: list[pyarrow.RecordBatch] = []
        self._rows = 0

    def add(self, rows: SinkRows, partition: SinkPartition) -> None:
        try:
            batch = self._batch(rows.rows)
        except Exception as exc:
            raise self._refused(rows, partition) or exc from exc
        self._batches.append(batch)
        self._rows += len(rows)
        if self._rows >= _GROUP_ROWS:
            self._write()

    def _batch(self, rows: list[dict[str, Any]]) -> pyarrow.RecordBatch:
        return pyarrow.RecordBatch.from_pylist(rows, schema=self._schema)

    def _refused(self, rows: SinkRows, partition: SinkPartition) -> ProcessingError | None:
        """The error of the first row that the schema refuses."""
        for row, offset in zip(rows.rows, rows.offsets, strict=True):
            try:
                self._batch([row])
            except Exception as exc:
                return ProcessingError(
                    f"sink {partition}: the schema refuses the row of offset {offset} ({exc}): {row!r:.200}. Change the "
                    "schema or the record, or filter such records out"
                )
        return None

    def _write(self) -> None:
        if self._batches:
            self._writer.write_table(pyarrow.Table.from_batches(self._batches))
            self._batches, self._rows = [], 0

    def finish(self) -> None:
        self._write()
        self._writer.close()
        sync_file(self._path)

    def close(self) -> None:
        self._batches = []
        self._writer.close()
