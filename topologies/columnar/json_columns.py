"""Read JSON records of a declared type as columns of the needed fields.

The row decoder (``msgspec.json.Decoder`` of the type, by way of a serde) defines what every record is. The compiled
part, if in use, reads the records it is certain about; the decoder gets the others, or all of them, and returns the
values or the error. So the results are always the decoder's.

The parser is our own, and faster than those of sonic-rs, serde_json, simd-json and msgspec, because it guesses that a
record is laid out as the one before. Also, no Rust crate promises to accept exactly what msgspec accepts, and the crate
that skips unneeded fields does not check them, which msgspec does.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Sequence
from inspect import getattr_static
from types import MemberDescriptorType
from typing import Any, NamedTuple

import msgspec
import numpy as np
from msgspec import inspect

from penstock.state.native import compiled
from penstock.state.serdes.models import is_model
from penstock.topologies.operator_api.columns import BytesColumn, CodedColumn, Column, NumberColumn

_FIELDS_MAX = 64
TEXTS_BYTES_MAX = 1 << 20
"""How many bytes of a field's texts are kept from batch to batch."""
_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1
_DTYPES: dict[str, Any] = {"int": np.int64, "float": np.float64, "bool": np.bool_}
_KINDS: dict[str, type] = {"str": str, "bytes": bytes, "int": int, "float": float, "bool": bool}
_TEXTS = ("str", "bytes")
# Of types without constraints; one with constraints is not equal to any.
_PLAIN: tuple[tuple[inspect.Type, str], ...] = (
    (inspect.StrType(), "str"),
    (inspect.IntType(), "int"),
    (inspect.FloatType(), "float"),
    (inspect.BoolType(), "bool"),
    (inspect.AnyType(), "any"),
)
PLAIN_AND_BYTES = (*_PLAIN, (inspect.BytesType(), "bytes"))
"""The kinds of fields, of forms that have bytes too."""


class Projected(NamedTuple):
    """The columns of a batch of records. In the row of a record that ``failed`` the columns' values are meaningless."""

    columns: dict[str, Column]
    failed: list[tuple[int, Exception]]


class FormPart(NamedTuple):
    """A field of an object: the text before its value, the value's kind (``str``, ``int``, ``bool``), whether it may be
    null."""

    before: bytes
    kind: str
    nullable: bool


class FieldReader(NamedTuple):
    """A field of a type: its attribute, the key in a record, and the kind (``str``, ``int``, ``float``, ``bool``, ``bytes``;
    ``any`` cannot be read apart)."""

    name: str
    key: str
    kind: str
    nullable: bool
    required: bool
    default: Any


class Shape(NamedTuple):
    """The fields of a type. ``mapping``: its values are dicts."""

    fields: list[FieldReader]
    unknown_allowed: bool
    mapping: bool


def why_not_projected(tp: Any, fields: Sequence[str]) -> str | None:
    """Why records of the type cannot be read into columns of these fields; ``None`` if they can."""
    found = shape_of(tp)
    return found if isinstance(found, str) else why_not_apart(found, fields)


def why_not_apart(shape: Shape, fields: Sequence[str]) -> str | None:
    """Why these fields cannot be read apart; ``None`` if they can."""
    kinds = {f.name: f.kind for f in shape.fields}
    for name in fields:
        if name not in kinds:
            return f"it has no field {name}"
        if kinds[name] == "any":
            return f"its field {name} is of any type"
    return None


class Projection:
    """Reads the needed fields of records of one type. For one thread.

    ``decode`` is the row decoder, which raises for a record that is not of the type. A field of texts or bytes becomes a
    ``CodedColumn``, others a ``NumberColumn``, or a ``CodedColumn`` in a batch where an integer needs more than 64 bits. A
    null record is null in every column.
    """

    def __init__(self, shape: Shape, fields: Sequence[str], decode: Callable[[bytes], Any]) -> None:
        needed = set(fields)
        # in the order of the type, as the compiled part returns them
        self._needed = [f for f in shape.fields if f.name in needed]
        self._order = list(dict.fromkeys(fields))
        self._decode = decode
        self._value: Callable[[Any, str], Any] = operator.getitem if shape.mapping else getattr

    def _projected(self, column: BytesColumn) -> tuple[bytes | None, list[tuple[Any, Any]]] | None:
        """The result of ``JsonProjector.project``; ``None`` without the compiled part."""
        raise AssertionError(f"{type(self).__name__} does not read by the compiled part")

    def read(self, column: BytesColumn) -> Projected:
        """The needed fields of each record."""
        found = self._projected(column)
        if found is None:
            columns: dict[str, Column] = {f.name: _blank(f, len(column)) for f in self._needed}
            unsure = list(range(len(column)))
        else:
            status, parts = found
            columns = {f.name: _column(f, *part) for f, part in zip(self._needed, parts, strict=True)}
            unsure = [] if status is None else np.flatnonzero(np.frombuffer(status, np.uint8)).tolist()
        failed: list[tuple[int, Exception]] = []
        if unsure:
            rows, records = self._decoded(column, unsure, failed)
            for field in self._needed:
                values = [None if r is None else self._value(r, field.name) for r in records]
                columns[field.name] = _patched(columns[field.name], rows, values)
        return Projected({name: columns[name] for name in self._order}, failed)

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

    def __init__(self, tp: Any, fields: Sequence[str], decode: Callable[[bytes], Any]) -> None:
        shape = shape_of(tp)
        assert not isinstance(shape, str), shape
        super().__init__(shape, fields, decode)
        native = compiled()
        if native is None:
            self._projector = None
        else:
            needed = {f.name for f in self._needed}
            specs = [{**f._asdict(), "name": f.key, "needed": f.name in needed} for f in shape.fields]
            self._projector = native.JsonProjector(specs, shape.unknown_allowed, TEXTS_BYTES_MAX)

    def _projected(self, column: BytesColumn) -> tuple[bytes | None, list[tuple[Any, Any]]] | None:
        return None if self._projector is None else self._projector.project(*column.raw())


def _blank(field: FieldReader, rows: int) -> CodedColumn | NumberColumn:
    """A column of meaningless values."""
    if field.kind in _TEXTS:
        return CodedColumn(np.zeros(rows, np.int32), [None] if rows else [])
    return NumberColumn(np.zeros(rows, _DTYPES[field.kind]))


def _column(field: FieldReader, data: bytes, second: Any) -> CodedColumn | NumberColumn:
    """The column for a field's result of the compiled part: codes and values for a text, else numbers and nulls."""
    if field.kind in _TEXTS:
        codes = np.frombuffer(data, np.int32)
        return CodedColumn(codes, second if second or not len(codes) else [None])
    return NumberColumn(
        np.frombuffer(data, _DTYPES[field.kind]), None if second is None else np.frombuffer(second, np.bool_)
    )


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


def written_form(tp: Any) -> list[FormPart] | None:
    """How an encoder writes objects of the type: all fields in order, and only numbers with a single notation.
    ``None``: not known."""
    shape = shape_of(tp)
    config = getattr(tp, "__struct_config__", None)
    if isinstance(shape, str) or config is None or config.omit_defaults:
        return None
    if any(f.kind not in ("str", "int", "bool") for f in shape.fields):
        return None
    names = [msgspec.json.encode(f.key) for f in shape.fields]
    return [
        FormPart((b"," if i else b"{") + name + b":", f.kind, f.nullable)
        for i, (name, f) in enumerate(zip(names, shape.fields, strict=True))
    ]


def shape_of(tp: Any, plain: tuple[tuple[inspect.Type, str], ...] = _PLAIN) -> Shape | str:
    """The type's fields, or why it cannot be read by field. ``plain``: the kinds of fields that can."""
    try:
        info = inspect.type_info(tp)
    except (TypeError, NameError) as exc:
        return f"its annotations cannot be read ({exc})"
    if isinstance(info, inspect.StructType):
        if info.array_like or info.tag is not None or info.tag_field is not None:
            return "its JSON is an array, or has a tag"
        if hasattr(info.cls, "__post_init__"):
            return "it has a __post_init__, which must run for each record"
        unknown_allowed = not info.forbid_unknown_fields
    elif isinstance(info, inspect.DataclassType):
        why = _why_not_read(info)
        if why is not None:
            return why
        unknown_allowed = True
    elif isinstance(info, inspect.TypedDictType):
        unknown_allowed = True
    else:
        return "it is neither a msgspec Struct nor a dataclass nor a TypedDict"
    if not 1 <= len(info.fields) <= _FIELDS_MAX:
        return f"it has {len(info.fields)} fields, not 1 to {_FIELDS_MAX}"
    fields: list[FieldReader] = []
    for field in info.fields:
        found = _field(field, plain)
        if isinstance(found, str):
            return f"its field {field.name} {found}"
        fields.append(found)
    return Shape(fields, unknown_allowed, isinstance(info, inspect.TypedDictType))


def _why_not_read(info: inspect.DataclassType) -> str | None:
    """Why an instance's attributes may differ from the decoded fields."""
    cls = info.cls
    if is_model(cls):
        return "it is pydantic's, whose validators must run"
    if not dataclasses.is_dataclass(cls):
        return "it is an attrs class, whose validators must run"
    if hasattr(cls, "__post_init__"):
        return "it has a __post_init__, which must run for each record"
    if cls.__getattribute__ is not object.__getattribute__ or hasattr(cls, "__getattr__"):
        return "it customizes attribute access"
    if cls.__new__ is not object.__new__:
        return "it has a __new__, which must run for each record"
    for field in info.fields:
        held = getattr_static(cls, field.name, msgspec.NODEFAULT)
        if held is not field.default and not isinstance(held, MemberDescriptorType):
            return f"its attribute {field.name} is not a plain field"
    return None


def _field(field: inspect.Field, known: tuple[tuple[inspect.Type, str], ...]) -> FieldReader | str:
    """The field, or what is wrong with it."""
    parts = field.type.types if isinstance(field.type, inspect.UnionType) else (field.type,)
    plain = [t for t in parts if not isinstance(t, inspect.NoneType)]
    kind = next((name for tp, name in known if plain == [tp]), None)
    if kind is None:
        return "is not a plain string, number or boolean"
    if field.default_factory is not msgspec.NODEFAULT:
        return "has a default_factory"
    if not field.required and field.default is msgspec.NODEFAULT:
        return "may be missing and has no default"
    default = None if field.required else field.default
    if kind != "any" and default is not None and type(default) is not _KINDS[kind]:
        return "has a default of another type"
    if kind == "int" and default is not None and not _INT64_MIN <= default <= _INT64_MAX:
        return "has a default of more than 64 bits"
    nullable = len(plain) < len(parts)
    return FieldReader(
        field.name, field.encode_name, kind, nullable, field.required, None if kind == "any" else default
    )
