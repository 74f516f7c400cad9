"""Write columns as JSON records without building the records: a template joins the text of each field.

The serde's own encoder writes all values except integers and plain texts, each distinct value once. Both encoders that
serdes use write an object as its fields' texts with commas between, so the bytes equal those of the whole record. This
is several times faster than building and encoding a dict per record, since each call of an encoder allocates a large
buffer.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
import numpy as np
import orjson
from numpy.typing import NDArray

from penstock.state.native import compiled
from penstock.state.serdes.serde import STRING, Serde, check_finite
from penstock.topologies.columnar.decimal_columns import PLAIN_SCALE_MAX, DecimalColumn, quoted_by
from penstock.topologies.columnar.encoded_columns import EncodedColumn, WrittenColumn, decoded
from penstock.topologies.columnar.text_columns import TextColumn
from penstock.topologies.operator_api.columns import BytesColumn, CodedColumn, Column, Mask, NumberColumn, StructColumn

Encode = Callable[[Any], bytes]
_MSGSPEC = msgspec.json.Encoder()
_TEXTS = frozenset({str, type(None)})
_SEEN = 16


class DictOf:
    """Builds a dict of a record's fields."""

    __slots__ = ("names",)

    def __init__(self, names: Iterable[str]) -> None:
        self.names = tuple(names)

    def __call__(self, *values: Any) -> dict[str, Any]:
        return dict(zip(self.names, values, strict=True))


class InstanceOf:
    """Builds an instance of a class of a record's fields."""

    __slots__ = ("_in_order", "names", "python")

    def __init__(self, names: Iterable[str], python: type) -> None:
        self.names = tuple(names)
        self.python = python
        self._in_order = _takes_in_order(python, self.names)

    def __call__(self, *values: Any) -> Any:
        if self._in_order:
            return self.python(*values)
        return self.python(**dict(zip(self.names, values, strict=True)))


def _takes_in_order(python: type, names: tuple[str, ...]) -> bool:
    """Whether a Struct takes these fields by position, which is quicker."""
    return (
        issubclass(python, msgspec.Struct)
        and names == python.__struct_fields__[: len(names)]
        and all(p.kind is p.POSITIONAL_OR_KEYWORD for p in inspect.signature(python).parameters.values())
    )


class Finite:
    """The encoder of a serde that refuses inf and nan. ``encode`` writes them as null."""

    __slots__ = ("_serialize", "encode")

    def __init__(self, serialize: Encode, encode: Encode) -> None:
        self._serialize = serialize
        self.encode = encode

    def __call__(self, value: Any) -> bytes:
        return self._serialize(value)


def encoder_of(serde: Serde[Any]) -> Encode | None:
    """The encoder of a serde that writes plain JSON."""
    write = serde.encoder if serde.nulling is None else serde.nulling
    if write is not orjson.dumps and not writes_typed(write):
        return None
    return write if serde.nulling is None else Finite(serde.serialize, write)


def writes_typed(encode: Encode) -> bool:
    """Whether it is a msgspec encoder that writes fields in their order."""
    encode = _inner(encode)
    if encode is msgspec.json.encode:
        return True
    encoder = getattr(encode, "__self__", None)
    # an encoder that sorts fields needs the whole record
    return type(encoder) is msgspec.json.Encoder and encode == encoder.encode and encoder.order is None


def _inner(encode: Encode) -> Encode:
    return encode.encode if isinstance(encode, Finite) else encode


def written_json(column: StructColumn, encode: Encode) -> Column | list[bytes | None] | None:
    """The records' JSON. ``None``: they are not dicts, or contain something that cannot be written."""
    if type(column.build) is not DictOf or not column.fields:
        return None
    try:
        packed = _packed(column, encode)
        return _templated(column, encode) if packed is None else packed
    except Exception:  # raised again at its row
        return None


def written_objects(column: StructColumn, keys: Mapping[str, str], encode: Encode) -> BytesColumn | None:
    """The JSON of instances of a class. ``keys``: the names of its fields in JSON, by attribute and in its order. ``None``:
    it has others, or something that cannot be written; and without the compiled part."""
    if column.fields.keys() != keys.keys():
        return None
    named = StructColumn({key: column.fields[name] for name, key in keys.items()}, DictOf(keys.values()), column.nulls)
    try:
        return _packed(named, encode)
    except Exception:  # raised again at its row
        return None


def _packed(column: StructColumn, encode: Encode) -> BytesColumn | None:
    """Write by the compiled part, if in use."""
    write = getattr(compiled(), "write_records", None)
    if write is None:
        return None
    befores: list[bytes] = []
    parts: list[tuple[Any, ...]] = []
    for name, field in column.fields.items():
        befores.append((b"," if befores else b"{") + encode(name) + b":")
        parts.append(_part(field, encode))
    found = write(befores, parts, len(column))
    if found is None:  # a text needs more than quotes
        parts = [_escaped(part, encode) for part in parts]
        found = write(befores, parts, len(column))
    data, ends = found
    return BytesColumn(data, np.frombuffer(ends, np.int64), column.nulls)


def _part(column: Column, encode: Encode) -> tuple[Any, ...]:
    """A field in the format of ``penstock_native.write_records``."""
    if isinstance(column, NumberColumn) and column.array.dtype == np.int64:
        return np.ascontiguousarray(column.array), _flags(column.nulls)
    if isinstance(column, DecimalColumn) and column.scale <= PLAIN_SCALE_MAX:
        quoted = quoted_by(encode)
        if quoted is not None:
            return np.ascontiguousarray(column.unscaled), _flags(column.nulls), column.scale, quoted
    if isinstance(column, EncodedColumn) and column.serde == STRING:
        return *column.raw.raw(), True
    if isinstance(column, (WrittenColumn, TextColumn)) and writes_typed(encode):
        return column.raw.raw()
    if isinstance(column, StructColumn):
        whole = written_json(column, encode)
        if whole is not None:
            return (whole if isinstance(whole, BytesColumn) else BytesColumn.of(_listed(whole))).raw()
    if isinstance(column, CodedColumn):
        codes = np.ascontiguousarray(column.codes)
        if _TEXTS.issuperset(map(type, _some(column.values))):
            return codes, column.values, True
        distinct = column.compact() if len(column.values) > len(column) else column
        return np.ascontiguousarray(distinct.codes), _each(distinct.values, encode), False
    texts = _each(column.to_list(), encode)
    return np.arange(len(texts), dtype=np.int32), texts, False


def _some(values: list[Any]) -> list[Any]:
    """A few of the values. The compiled part refuses others than texts; then the encoder writes all of them."""
    return values[:: len(values) // _SEEN + 1]


def _flags(nulls: Mask | None) -> NDArray[np.uint8] | None:
    return None if nulls is None else np.ascontiguousarray(nulls).view(np.uint8)


def _escaped(part: tuple[Any, ...], encode: Encode) -> tuple[Any, ...]:
    """The field, with texts that are already JSON."""
    match part:
        case (data, offsets, nulls, True):
            texts = decoded(BytesColumn(data, offsets, None if nulls is None else nulls.view(np.bool_)), STRING)
            return np.arange(len(texts), dtype=np.int32), _each(texts, encode), False
        case (codes, values, True):
            distinct = CodedColumn(codes, values)
            distinct = distinct.compact() if len(values) > len(codes) else distinct
            return np.ascontiguousarray(distinct.codes), _each(distinct.values, encode), False
    return part


def _listed(written: Column | list[bytes | None]) -> list[bytes | None]:
    return written if isinstance(written, list) else written.to_list()


def _templated(column: StructColumn, encode: Encode) -> list[bytes | None]:
    """Write by a template."""
    template = "{"
    parts: list[list[Any]] = []
    for name, field in column.fields.items():
        mark, part = _texts(field, encode)
        template += ("," if parts else "") + encode(name).decode().replace("%", "%%") + ":" + mark
        parts.append(part)
    out: list[bytes | None] = list(map(str.encode, map((template + "}").__mod__, zip(*parts, strict=True))))
    if column.nulls is not None:
        for i in np.flatnonzero(column.nulls).tolist():
            out[i] = None
    return out


def _texts(column: Column, encode: Encode) -> tuple[str, list[Any]]:
    """A field's placeholder in the template, and its values."""
    if isinstance(column, NumberColumn) and column.nulls is None and column.array.dtype == np.int64:
        return "%d", column.to_list()
    if isinstance(column, StructColumn):
        whole = written_json(column, encode)
        if whole is not None:
            return "%s", ["null" if text is None else text.decode() for text in _listed(whole)]
    if isinstance(column, CodedColumn):
        distinct = column.compact() if len(column.values) > len(column) else column
        if _plain(distinct.values):
            return '"%s"', distinct.to_list()
        texts = _each(distinct.values, encode)
        return "%s", list(map(texts.__getitem__, distinct.codes.tolist()))
    return "%s", _each(column.to_list(), encode)


def _each(values: list[Any], encode: Encode) -> list[str]:
    """The text of each value. Raises for inf and nan if the encoder refuses them."""
    if isinstance(encode, Finite):
        texts = _each(values, encode.encode)
        if "null" in "\n".join(texts):
            for value, text in zip(values, texts, strict=True):
                if value is not None and "null" in text:
                    check_finite(value)
        return texts
    encoder = _MSGSPEC if encode is msgspec.json.encode else getattr(encode, "__self__", None)
    if isinstance(encoder, msgspec.json.Encoder):
        # all at once; line ends within values are escaped, except in values that are already JSON
        lines = encoder.encode_lines(values).decode().split("\n")[:-1]
        if len(lines) == len(values):
            return lines
    return [encode(v).decode() for v in values]


def _plain(values: list[Any]) -> bool:
    """Whether all are texts that need only quotes in JSON."""
    if set(map(type, values)) != {str}:
        return False
    text = "".join(values)
    return text.isascii() and text.isprintable() and '"' not in text and "\\" not in text
