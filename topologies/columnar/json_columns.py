"""Read JSON records of a declared type as columns of the needed fields.

The row decoder (``msgspec.json.Decoder`` of the type, by way of a serde) defines what every record is. The compiled
part, if in use, reads the records it is certain about; the decoder gets the others, or all of them, and returns the
values or the error. So the results are always the decoder's.

The parser is our own, and faster than those of sonic-rs, serde_json, simd-json and msgspec, because it guesses that a
record is laid out as the one before. Also, no Rust crate promises to accept exactly what msgspec accepts, and the crate
that skips unneeded fields does not check them, which msgspec does.

A reader may read the fields ahead, in its thread. It is given a projector of its own, which holds what it read.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from penstock.state.native import compiled
from penstock.topologies.columnar.kernels import Coder
from penstock.topologies.columnar.object_columns import (
    ObjectFinder,
    ObjectParts,
    TextParts,
    no_objects,
    serde_of_objects,
    settled,
    texts_of,
)
from penstock.topologies.columnar.record_shapes import FieldReader, Shape, shape_of
from penstock.topologies.operator_api.columns import BytesColumn, CodedColumn, Column, NumberColumn
from penstock.topologies.operator_api.required_columns import FieldPath, path_of

if TYPE_CHECKING:
    import penstock_native

TEXTS_BYTES_MAX = 1 << 20
"""How many bytes of a field's texts are kept from batch to batch."""
_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1
_DTYPES: dict[str, Any] = {"int": np.int64, "float": np.float64, "bool": np.bool_}
_TEXTS = ("str", "bytes")
_Part: TypeAlias = Column | ObjectParts | TextParts


class Projected(NamedTuple):
    """The columns of a batch of records, by field. In the row of a record that ``failed`` the columns' values are
    meaningless."""

    columns: dict[str, Column]
    failed: list[tuple[int, Exception]]


class Projection:
    """Reads the needed fields of records of one type. For one thread.

    ``decode`` is the row decoder, which raises for a record that is not of the type. A field of texts or bytes becomes a
    ``CodedColumn``, one of objects a ``ParsedColumn`` with those of its fields that are needed, others a ``NumberColumn``,
    or a ``CodedColumn`` in a batch where an integer needs more than 64 bits. A null record, or object, is null in every
    column.
    """

    def __init__(self, shape: Shape, fields: Sequence[FieldPath], decode: Callable[[bytes], Any]) -> None:
        paths = [path_of(f) for f in fields]
        self._only = shape.only(paths)
        # in the order of the type, as the compiled part returns them
        self._needed = self._only.fields
        self._order = list(dict.fromkeys(path[0] for path in paths))
        self._decode = decode
        self._finder: ObjectFinder | None = None
        self._coder = Coder()

    def _projected(self, column: BytesColumn) -> tuple[bytes | None, list[tuple[Any, ...]]] | None:
        """The result of ``JsonProjector.project``; ``None`` without the compiled part."""
        raise AssertionError(f"{type(self).__name__} does not read by the compiled part")

    def read(self, column: BytesColumn) -> Projected:
        """The needed fields of each record."""
        found = self._projected(column)
        parts: dict[str, _Part]
        if found is None:
            parts = {f.name: _blank(f, column) for f in self._needed}
            unsure = list(range(len(column)))
        else:
            status, read = found
            parts = {f.name: self._part(f, *one) for f, one in zip(self._needed, read, strict=True)}
            unsure = [] if status is None else np.flatnonzero(np.frombuffer(status, np.uint8)).tolist()
        failed: list[tuple[int, Exception]] = []
        if unsure:
            rows, records = self._decoded(column, unsure, failed)
            if rows:
                parts = settled(parts, column)
                self._patch(column, parts, rows, records)
        columns = {name: p if isinstance(p, Column) else p.column(column) for name, p in parts.items()}
        return Projected({name: columns[name] for name in self._order}, failed)

    def _part(
        self, field: FieldReader, data: bytes, second: Any, inner: Sequence[tuple[Any, ...]] | None = ()
    ) -> _Part:
        """The column for a field's result of the compiled part: codes and values for a text, or where it stands and nulls;
        places, nulls and fields for objects, else numbers and nulls."""
        if field.kind in _TEXTS and inner is not None:
            codes = np.frombuffer(data, np.int32)
            return CodedColumn(codes, second if second or not len(codes) else [None])
        nulls = None if second is None else np.frombuffer(second, np.bool_)
        if inner is None:
            return TextParts(np.frombuffer(data, np.int64), nulls, self._coder)
        if field.inner is not None:
            fields = {f.name: self._part(f, *one) for f, one in zip(field.inner.fields, inner, strict=True)}
            return ObjectParts(serde_of_objects(field), np.frombuffer(data, np.int64), nulls, fields)
        return NumberColumn(np.frombuffer(data, _DTYPES[field.kind]), nulls)

    def _patch(self, column: BytesColumn, parts: dict[str, _Part], rows: list[int], records: list[Any]) -> None:
        """Set what these rows hold."""
        texts = []
        if any(f.inner is not None for f in self._needed):
            self._finder = self._finder or ObjectFinder(self._only)
            texts = texts_of(column, rows)
        _patch_all(parts, self._only, self._finder, texts, rows, records)

    def _decoded(
        self, column: BytesColumn, rows: list[int], failed: list[tuple[int, Exception]]
    ) -> tuple[list[int], list[Any]]:
        """The rows that can be decoded, and their records."""
        read: list[int] = []
        records: list[Any] = []
        for row, data in zip(rows, column.take(np.array(rows, np.intp)).to_list(), strict=True):
            try:
                records.append(None if data is None else self._decode(data))
                read.append(row)
            except Exception as exc:  # whatever a decoder raises is for the caller's error policy
                failed.append((row, exc))
        return read, records


class JsonProjection(Projection):
    """Reads JSON. ``tp`` and ``fields`` must be such that ``why_not_projected`` returns ``None``."""

    def __init__(self, tp: Any, fields: Sequence[FieldPath], decode: Callable[[bytes], Any]) -> None:
        shape = shape_of(tp)
        assert not isinstance(shape, str), shape
        super().__init__(shape, fields, decode)
        self._shape = shape
        self._projector = self._made()
        self._ahead: penstock_native.JsonProjector | None = None

    def _made(self) -> penstock_native.JsonProjector | None:
        native = compiled()
        if native is None:
            return None
        specs, unknown_allowed = _specs(self._shape, self._only)
        made: penstock_native.JsonProjector = native.JsonProjector(specs, unknown_allowed, TEXTS_BYTES_MAX)
        return made

    def _projected(self, column: BytesColumn) -> tuple[bytes | None, list[tuple[Any, ...]]] | None:
        if self._projector is None:
            return None
        if column.ahead is not None:
            self._ahead = self._ahead or self._made()
            if (found := column.ahead.by(self._ahead)) is not None:
                return found
        return self._projector.project(*column.raw())


def _specs(shape: Shape, needed: Shape | None) -> tuple[list[dict[str, Any]], bool]:
    """The fields in the format of the compiled part, and whether records may have others."""
    wanted = {} if needed is None else {f.name: f for f in needed.fields}
    specs = []
    for field in shape.fields:
        of = wanted.get(field.name)
        inner = None if field.inner is None else _specs(field.inner, None if of is None else of.inner)
        specs.append({**field._asdict(), "name": field.key, "needed": of is not None, "inner": inner})
    return specs, shape.unknown_allowed


def _blank(field: FieldReader, records: BytesColumn) -> _Part:
    """A column of meaningless values."""
    rows = len(records)
    if field.inner is not None:
        fields = {f.name: _blank(f, records) for f in field.inner.fields}
        return ObjectParts(serde_of_objects(field), no_objects(records), None, fields)
    if field.kind in _TEXTS:
        return CodedColumn(np.zeros(rows, np.int32), [None] if rows else [])
    return NumberColumn(np.zeros(rows, _DTYPES[field.kind]))


def _patch_all(
    parts: dict[str, _Part],
    shape: Shape,
    finder: ObjectFinder | None,
    texts: Sequence[Any],
    rows: list[int],
    records: list[Any],
) -> None:
    """Set what these rows hold: the fields of the records, with their texts, where objects must be found."""
    value: Callable[[Any, str], Any] = operator.getitem if shape.mapping else getattr
    objects = {} if finder is None else finder.find(texts)
    for field in shape.fields:
        values = [None if r is None else value(r, field.name) for r in records]
        part = parts[field.name]
        if isinstance(part, Column):
            parts[field.name] = _patched(part, rows, values)
            continue
        assert isinstance(part, ObjectParts), "texts in place are columns by now"
        assert finder is not None and field.inner is not None
        found = objects[field.name]
        absent = [v is None for v in values]
        spans = [
            (start, start if null else start + len(text)) for (text, start), null in zip(found, absent, strict=True)
        ]
        part.put(rows, spans, absent)
        _patch_all(part.fields, field.inner, finder.within(field.name), found, rows, values)


def _patched(column: Column, rows: list[int], values: list[Any]) -> Column:
    """The column with these values in these rows."""
    if isinstance(column, CodedColumn):
        seen = {v: i for i, v in enumerate(column.values)}
        codes = column.codes.copy()
        codes[rows] = [seen.setdefault(v, len(seen)) for v in values]
        return CodedColumn(codes, list(seen))
    assert isinstance(column, NumberColumn)
    if any(type(v) is int and not _INT64_MIN <= v <= _INT64_MAX for v in values):
        whole = column.to_list()
        for row, value in zip(rows, values, strict=True):
            whole[row] = value
        return CodedColumn.of(whole)
    array = column.array.copy()
    array[rows] = [0 if v is None else v for v in values]
    nulls = column.nulls
    if None in values:
        nulls = np.zeros(len(array), np.bool_) if nulls is None else nulls.copy()
        nulls[rows] = [v is None for v in values]
    return NumberColumn(array, nulls)
