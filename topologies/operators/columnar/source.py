"""Read a topic's records as columns: checks their bytes, and reads only the needed fields.

Values of a declared type are projected to the needed fields. If the projection is not certain about a record, the serde's
own decoder reads it. So the same records fail with the same messages as on rows, and in the same order: values first, then
keys. Values and keys of plain serdes stay bytes until they are used; equal ones are decoded once.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import numpy as np

from penstock.state.errors import SerdeError
from penstock.state.serdes.change_serde import RowChangeSerde
from penstock.state.serdes.serde import BYTES, FLOAT, INT, INT32, JSON, STRING, Serde
from penstock.topologies.columnar.avro_columns import AvroProjection, avro_form, why_not_avro
from penstock.topologies.columnar.change_columns import change_column, read_changes
from penstock.topologies.columnar.encoded_columns import EncodedColumn, ParsedColumn
from penstock.topologies.columnar.json_columns import JsonProjection, Projection
from penstock.topologies.columnar.kernels import Coder
from penstock.topologies.columnar.record_shapes import why_not_projected
from penstock.topologies.operator_api.batch import Batch, ColumnBatch
from penstock.topologies.operator_api.columns import BytesColumn, Column, Places
from penstock.topologies.operator_api.operator import OperatorContext
from penstock.topologies.operator_api.required_columns import InputMode, RequiredColumns, field_at, path_of
from penstock.topologies.operators.base.foreign_key_messages import all_written, are_messages
from penstock.topologies.operators.base.row_functions import decode_column, unreadable
from penstock.topologies.operators.columnar.declared_records import records_of
from penstock.topologies.operators.columnar.struct_keys import struct_keys

_WIDTHS = {INT.name: 8, FLOAT.name: 8, INT32.name: 4}
PLAIN = (BYTES, STRING, INT, INT32, FLOAT)
"""Serdes whose values stay bytes until they are used."""


def decoding_mode(serde: Serde[Any], needed: RequiredColumns) -> InputMode:
    """The input mode of a source for required columns of values of this serde. Keys are always columns."""
    if isinstance(serde, RowChangeSerde):
        return InputMode(needed, _why_no_changes(serde, needed))
    return InputMode(needed, None if serde in PLAIN else _why_whole(serde, needed))


def _why_whole(serde: Serde[Any], needed: RequiredColumns) -> str | None:
    """The reason why values are decoded whole; ``None`` if they are not."""
    if needed.listed:
        return "the next operator needs whole values"
    if are_messages(serde):
        return None
    if serde == JSON:
        return "its values have no declared type"
    decoder, fields = json_decoder(serde), sorted(needed.fields, key=path_of)
    if decoder is not None:
        why = why_not_projected(decoder.type, fields)
    elif (form := avro_form(serde)) is not None:
        why = why_not_avro(form, fields)
    else:
        return f"serde {serde.name} decodes whole values only"
    return None if why is None else f"fields of {serde.name} cannot be read apart: {why}"


def json_decoder(serde: Serde[Any]) -> msgspec.json.Decoder[Any] | None:
    """The decoder of a serde that reads JSON of a type and does nothing else."""
    decoder = getattr(serde.deserialize, "__self__", None)
    if not isinstance(decoder, msgspec.json.Decoder) or serde.deserialize != decoder.decode:
        return None
    return decoder if decoder.strict and decoder.dec_hook is None and decoder.float_hook is None else None


def _why_no_changes(serde: RowChangeSerde, needed: RequiredColumns) -> str | None:
    """The reason why changes are decoded whole. What is needed of them is of their rows."""
    rows, of_rows = serde.rows, _of_rows(needed)
    if needed.listed:
        return "the next operator needs whole values"
    if (records := records_of(rows)) is not None:
        return records.why_not(of_rows.fields)
    return None if rows in PLAIN else _why_whole(rows, of_rows)


def _of_rows(needed: RequiredColumns) -> RequiredColumns:
    """The requirements on the rows of changes."""
    fields = frozenset(field_at(path[1:]) for path in map(path_of, needed.fields) if len(path) > 1)
    return RequiredColumns(fields=fields, value=needed.value)


class _ChangeReader:
    """Reads changes of a table's rows by columns of both sides."""

    def __init__(self, serde: RowChangeSerde, needed: RequiredColumns) -> None:
        self._rows = serde.rows
        self._coder = Coder()
        self._projection: Projection | None = None
        of_rows, records = _of_rows(needed), records_of(serde.rows)
        if records is not None:
            self._projection = records.projection(sorted(of_rows.fields, key=path_of))
        elif self._rows not in PLAIN:
            self._projection = _projection_of(self._rows, of_rows)

    def read(self, column: BytesColumn) -> Column | None:
        """The changes; ``None``: decode them whole."""
        sides = read_changes(column)
        if sides is None:
            return None
        news, olds = map(self._side, sides)
        return None if news is None or olds is None else change_column(news, olds)

    def _side(self, column: BytesColumn) -> Column | None:
        if self._projection is not None:
            fields, failed = self._projection.read(column)
            return None if failed else ParsedColumn(column, self._rows, fields, column.nulls)
        if self._rows is BYTES:
            return column
        if self._rows not in PLAIN:
            return None
        return EncodedColumn(column, self._rows, self._coder) if _all_readable(column, self._rows) else None


def _projection_of(serde: Serde[Any], needed: RequiredColumns) -> Projection | None:
    """The reader of the required fields; ``None`` if values are read whole."""
    if serde in PLAIN or are_messages(serde) or _why_whole(serde, needed) is not None:
        return None
    decoder, form, fields = json_decoder(serde), avro_form(serde), sorted(needed.fields, key=path_of)
    if decoder is not None:
        return JsonProjection(decoder.type, fields, serde.deserialize)
    return None if form is None else AvroProjection(form, fields, serde.deserialize)


class Decoder:
    """Reads the batches of one source in columns."""

    def __init__(self, ctx: OperatorContext, key: Serde[Any], value: Serde[Any], needed: RequiredColumns) -> None:
        self._ctx = ctx
        self._key, self._value = key, value
        self._key_coder, self._value_coder = Coder(), Coder()
        self._projection: Projection | None = None
        self._changes: _ChangeReader | None = None
        if isinstance(value, RowChangeSerde):
            self._changes = _ChangeReader(value, needed)
        else:
            self._projection = _projection_of(value, needed)
        self._struct_keys = struct_keys(key)

    def read(self, batch: ColumnBatch) -> Batch | None:
        """Decode keys and values, as columns where possible. Returns ``None`` if the batch did not come as bytes."""
        keys, values = batch.key_column, batch.value_column
        if not isinstance(keys, BytesColumn) or not isinstance(values, BytesColumn):
            return None
        changes = self._changes_of(values)
        if changes is not None:
            out = batch.replace(values=changes)
        elif self._projection is not None:
            out = self._projected(batch, values, self._projection)
        else:
            out = self._side(batch, values, self._value, self._value_coder, "value")
        keys = out.key_column
        assert isinstance(keys, BytesColumn)
        return self._side(out, keys, self._key, self._key_coder, "key")

    def _changes_of(self, values: BytesColumn) -> Column | None:
        return None if self._changes is None else self._changes.read(values)

    def _side(
        self, batch: Batch, column: BytesColumn, serde: Serde[Any], coder: Coder, what: Literal["key", "value"]
    ) -> Batch:
        """Decode the keys or the values of a batch. Rows that cannot be decoded are left out."""
        if serde is BYTES:
            return batch
        found: Column | list[Any]
        structs = self._struct_keys.of(column) if what == "key" and self._struct_keys is not None else None
        if serde in PLAIN:
            found, batch = self._plain(batch, column, serde, coder, what)
        elif structs is not None:
            found = structs
        elif are_messages(serde) and all_written(column, serde):
            found = EncodedColumn(column, serde, coder)
        else:
            found, batch = decode_column(self._ctx, batch, serde, column.to_list(), what)
        return batch.replace(keys=found) if what == "key" else batch.replace(values=found)

    def _projected(self, batch: ColumnBatch, values: BytesColumn, projection: Projection) -> Batch:
        fields, failed = projection.read(values)
        out = batch.replace(values=ParsedColumn(values, self._value, fields, values.nulls))
        if not failed:
            return out
        for row, error in failed:
            data = values.slice(row, row + 1).to_list()[0]
            self._refuse(batch, row, self._value, "value", data, error)
        return out.pick(_others(len(batch), [row for row, _ in failed]))

    def _plain(
        self, batch: Batch, column: BytesColumn, serde: Serde[Any], coder: Coder, what: str
    ) -> tuple[Column, Batch]:
        """Decode a column of a plain serde. Returns it with the batch of the rows that could be decoded."""
        if _all_readable(column, serde):
            return EncodedColumn(column, serde, coder), batch
        found = coder.code(column)
        values: list[Any] = []
        errors: dict[int, Exception] = {}
        for code, data in enumerate(found.values):
            try:
                values.append(None if data is None else serde.deserialize(data))
            except Exception as exc:  # not swallowed: the policy applies below, at its rows
                values.append(None)
                errors[code] = exc
        wrong = [row for row, code in enumerate(found.codes.tolist()) if code in errors] if errors else []
        for row in wrong:
            code = int(found.codes[row])
            self._refuse(batch, row, serde, what, found.values[code], errors[code])
        if not wrong:
            return EncodedColumn.known(column, serde, coder, found.codes, found.values, values), batch
        kept = _others(len(batch), wrong)
        left = EncodedColumn.known(column.take(kept), serde, coder, found.codes[kept], found.values, values)
        return left, batch.pick(kept)

    def _refuse(self, batch: Batch, row: int, serde: Serde[Any], what: str, data: Any, error: Exception) -> None:
        try:
            raise unreadable(serde, what, data, error) from error
        except SerdeError as exc:
            self._ctx.failed(batch, row, exc)


def _others(rows: int, without: list[int]) -> Places:
    return np.delete(np.arange(rows), without)


def _all_readable(column: BytesColumn, serde: Serde[Any]) -> bool:
    """Whether the serde is known to read all values without checking single ones."""
    if serde == STRING:
        low, high = int(column.offsets[0]), int(column.offsets[-1])
        return bytes(memoryview(column.data)[low:high]).isascii()
    lengths = np.diff(column.offsets)
    width = _WIDTHS[serde.name]
    right = lengths == width
    return bool((right if column.nulls is None else right | column.nulls).all())
