"""Write columns, and typed values, as Avro records without a dict of each.

The serde defines the bytes: it writes the first record of each batch, whose frame also names the schema, and the
compiled part must give the same bytes for it. All others of the batch follow by that schema. A batch with a value that a
field does not hold exactly is left to the serde, with its errors.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from inspect import getattr_static
from types import MemberDescriptorType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.state.native import compiled
from penstock.state.serdes.serde import Serde, is_immutable
from penstock.topologies.columnar.avro_columns import AvroForm, AvroProjection, avro_form, flat_fields, why_not_avro
from penstock.topologies.columnar.json_writing import DictOf, InstanceOf
from penstock.topologies.columnar.record_shapes import PLAIN_AND_BYTES, Shape, shape_of
from penstock.topologies.operator_api.columns import BytesColumn, CodedColumn, Column, Mask, NumberColumn, StructColumn

_FRAME_BYTES = 5
_FEWEST = 8
"""For fewer values the serde is as fast."""
_NUMBERS: dict[str, tuple[type, Any]] = {
    "int": (int, np.int64),
    "long": (int, np.int64),
    "float": (float, np.float64),
    "double": (float, np.float64),
    "boolean": (bool, np.bool_),
}
_NONE = type(None)


def writes_avro(serde: Serde[Any]) -> bool:
    """Whether ``avro_writer`` may write its values."""
    form = avro_form(serde)
    return form is not None and form.written is not None


def avro_writer(serde: Serde[Any]) -> AvroWriter | None:
    """For serdes of Avro; ``None`` for others, and without the compiled part."""
    form = avro_form(serde)
    if form is None or form.written is None or getattr(compiled(), "write_avro", None) is None:
        return None
    return AvroWriter(serde, form)


class AvroWriter:
    """Writes values of one serde; see ``avro_writer``. Each method returns ``None`` for what the serde must write."""

    def __init__(self, serde: Serde[Any], form: AvroForm) -> None:
        self._serde = serde
        self._form = form
        self._fields: dict[int, list[tuple[str, str, int, list[bytes | None]]] | None] = {}
        shape = None if form.type is None else shape_of(form.type, PLAIN_AND_BYTES, objects=False)
        self._shape = shape if isinstance(shape, Shape) and _writes_all(form.type, shape) else None
        self._reader = None if self._shape is None else self._whole_reader(self._shape)

    def _whole_reader(self, shape: Shape) -> AvroProjection | None:
        """Reads all fields of immutable values."""
        names = [f.name for f in shape.fields]
        if not is_immutable(self._form.type) or why_not_avro(self._form, names) is not None:
            return None
        return AvroProjection(self._form, names, self._serde.deserialize)

    def of(self, texts: BytesColumn) -> BytesColumn | None:
        """Records that the serde can read, as it writes them."""
        if self._reader is None or self._shape is None or not len(texts):
            return None
        columns, failed = self._reader.read(texts)
        if failed:
            return None

        def value(row: int) -> Any:
            data = texts.slice(row, row + 1).to_list()[0]
            assert data is not None
            return self._serde.deserialize(data)

        return self._written({f.key: columns[f.name] for f in self._shape.fields}, texts.nulls, len(texts), value)

    def of_structs(self, column: StructColumn) -> BytesColumn | None:
        """Records that an expression makes: dicts, or instances of the serde's type."""
        build, fields = column.build, column.fields
        if type(build) is InstanceOf and build.python is self._form.type and self._shape is not None:
            keys = {f.name: f.key for f in self._shape.fields}
            if fields.keys() != keys.keys():
                return None
            fields = {keys[name]: field for name, field in fields.items()}
        elif type(build) is not DictOf or self._form.type is not None:
            return None
        return self._written(fields, column.nulls, len(column), lambda row: column.slice(row, row + 1).to_list()[0])

    def of_values(self, values: list[Any]) -> BytesColumn | None:
        """Instances of the serde's type, or dicts where it has none, or null."""
        if len(values) < _FEWEST or (self._shape is None and self._form.type is not None):
            return None
        kinds = set(map(type, values))
        kinds.discard(_NONE)
        if kinds != {dict if self._form.type is None else self._form.type}:
            return None
        nulls, some = None, values
        if None in values:
            nulls = np.fromiter((v is None for v in values), np.bool_, len(values))
            whole = next(v for v in values if v is not None)
            some = [whole if v is None else v for v in values]
        try:
            fields = self._apart(some)
        except (AttributeError, KeyError):
            return None
        return None if fields is None else self._written(fields, nulls, len(values), values.__getitem__)

    def _apart(self, values: list[Any]) -> dict[str, Column] | None:
        """The fields of values of one kind. Raises ``AttributeError`` or ``KeyError`` where one is missing."""
        held: list[dict[str, Any]] | None = None
        if self._shape is None:
            held, names = values, [(name, name) for name in values[0]]
            if set(map(len, values)) != {len(names)}:
                return None
        else:
            names = [(f.key, f.name) for f in self._shape.fields]
            if not hasattr(self._form.type, "__struct_fields__") and hasattr(values[0], "__dict__"):
                held = list(map(vars, values))  # what was deleted from an instance is not taken from its class
        if held is None:
            return {key: _Listed(list(map(operator.attrgetter(name), values))) for key, name in names}
        return {key: _Listed(list(map(operator.itemgetter(name), held))) for key, name in names}

    def _written(
        self, columns: Mapping[str, Column], nulls: Mask | None, count: int, value: Callable[[int], Any]
    ) -> BytesColumn | None:
        write = getattr(compiled(), "write_avro", None)
        first = 0 if nulls is None else int(np.argmin(nulls))
        if write is None or not count or (nulls is not None and nulls[first]):
            return None
        try:
            sample = self._serde.serialize(value(first))
        except Exception:  # raised again at its row
            return None
        framed = self._form.framed
        fields = self._fields_of(int.from_bytes(sample[1:_FRAME_BYTES]) if framed else 0)
        if fields is None or len(fields) != len(columns) or any(name not in columns for name, *_ in fields):
            return None
        parts = [_part(columns[name], kind) for name, kind, *_ in fields]
        if None in parts:
            return None
        flags = None if nulls is None else np.ascontiguousarray(nulls).view(np.uint8)
        prefix = sample[:_FRAME_BYTES] if framed else b""
        found = write(prefix, [(kind, *more) for _, kind, *more in fields], parts, flags, count)
        if found is None:
            return None
        column = BytesColumn(found[0], np.frombuffer(found[1], np.int64), nulls)
        return column if column.slice(first, first + 1).to_list() == [sample] else None

    def _fields_of(self, number: int) -> list[tuple[str, str, int, list[bytes | None]]] | None:
        """The fields of the schema that values are written by, in order."""
        assert self._form.written is not None
        if number not in self._fields:
            try:
                schema = self._form.written(number)
            except Exception:  # the registry did answer for the record; perhaps it does the next time
                return None
            self._fields[number] = None if schema is None else flat_fields(schema)
        return self._fields[number]


class _Listed(Column):
    """Values as they are."""

    __slots__ = ("values",)

    def __init__(self, values: list[Any]) -> None:
        self.values = values


def _part(column: Column, kind: str) -> tuple[Any, ...] | None:
    """The column in the format of ``penstock_native.write_avro``; ``None`` if the kind of field does not hold it."""
    python, dtype = _NUMBERS.get(kind, (None, None))
    if isinstance(column, NumberColumn):
        return _numbers(column.array, column.nulls) if column.array.dtype == dtype else None
    if isinstance(column, BytesColumn):
        return column.raw() if kind == "bytes" else None
    if isinstance(column, _Listed):
        codes, values = None, column.values
    elif isinstance(column, CodedColumn):
        codes, values = column.codes, column.values
    else:
        return None
    kinds = set(map(type, values))
    has_null = _NONE in kinds
    kinds.discard(_NONE)
    if kinds == {python}:
        nulls = np.fromiter((v is None for v in values), np.bool_, len(values)) if has_null else None
        try:
            array = np.array([0 if v is None else v for v in values] if has_null else values, dtype)
        except OverflowError:
            return None
        if codes is not None:
            array, nulls = array[codes], None if nulls is None else nulls[codes]
        return _numbers(array, nulls)
    if kinds - ({bytes} if kind == "bytes" else {str}):
        return None
    return np.arange(len(values), dtype=np.int32) if codes is None else np.ascontiguousarray(codes), values


def _numbers(array: NDArray[Any], nulls: Mask | None) -> tuple[Any, ...]:
    array = np.ascontiguousarray(array)
    flags = None if nulls is None else np.ascontiguousarray(nulls).view(np.uint8)
    return array.view(np.uint8) if array.dtype == np.bool_ else array, flags


def _writes_all(tp: Any, shape: Shape) -> bool:
    """Whether what is written of an object are all its attributes, also those with their defaults or of private names."""
    config = getattr(tp, "__struct_config__", None)
    names = [f.name for f in shape.fields]
    if shape.mapping or any(name.startswith("_") for name in names):
        return False
    if config is None:  # a dataclass, which the shape has looked at
        return True
    plain = all(isinstance(getattr_static(tp, name), MemberDescriptorType) for name in names)
    return plain and not config.omit_defaults and tp.__getattribute__ is object.__getattribute__
