"""Objects within records, while their fields are read into columns.

An object becomes a column of its own, as if its bytes had been the record: its needed fields as columns, and its value,
where a row is needed, decoded from the part of the record's bytes that holds it. So what runs on columns of records runs
on columns of objects.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from penstock.state.serdes.record_classes import record_class
from penstock.state.serdes.serde import STRING, Serde, serde_of, typed_json
from penstock.topologies.columnar.encoded_columns import EncodedColumn, ParsedColumn
from penstock.topologies.columnar.kernels import Coder
from penstock.topologies.columnar.record_shapes import FieldReader, Shape
from penstock.topologies.operator_api.columns import BytesColumn, Column, Ints, Mask


class ObjectParts:
    """The objects of one field. ``ends``: where each begins and ends in the bytes of the records, two numbers a row, which
    never fall; ``nulls``: where there is none. Patched in place."""

    __slots__ = ("ends", "fields", "nulls", "serde")

    def __init__(
        self, serde: Serde[Any], ends: Ints, nulls: Mask | None, fields: dict[str, Column | ObjectParts | TextParts]
    ) -> None:
        self.serde = serde
        self.ends = ends
        self.nulls = nulls
        self.fields = fields

    def settle(self, records: BytesColumn) -> None:
        """Make the texts columns, so that they can be patched."""
        self.fields = settled(self.fields, records)

    def put(self, rows: Sequence[int], spans: Sequence[tuple[int, int]], absent: Sequence[bool]) -> None:
        """Set where the objects of these rows are, or that there are none."""
        places = 2 * np.array(rows, np.intp)
        self.ends = self.ends.copy()
        self.ends[places] = [start for start, _ in spans]
        self.ends[places + 1] = [end for _, end in spans]
        self.nulls = np.zeros(len(self.ends) // 2, np.bool_) if self.nulls is None else self.nulls.copy()
        self.nulls[list(rows)] = absent

    def column(self, records: BytesColumn) -> ParsedColumn:
        """As a column."""
        fields = {
            name: part if isinstance(part, Column) else part.column(records) for name, part in self.fields.items()
        }
        nulls = self.nulls if self.nulls is not None and self.nulls.any() else None
        return ParsedColumn.within(records.data, self.ends, self.serde, fields, nulls)


def settled(
    parts: Mapping[str, Column | ObjectParts | TextParts], records: BytesColumn
) -> dict[str, Column | ObjectParts | TextParts]:
    """The parts with columns of texts."""
    for part in parts.values():
        if isinstance(part, ObjectParts):
            part.settle(records)
    return {name: p.column(records) if isinstance(p, TextParts) else p for name, p in parts.items()}


class TextParts:
    """The texts of one field, where they stand. ``ends``, ``nulls``: as for objects. ``coder`` finds the distinct ones, if
    anybody asks for them."""

    __slots__ = ("coder", "ends", "nulls")

    def __init__(self, ends: Ints, nulls: Mask | None, coder: Coder) -> None:
        self.ends = ends
        self.nulls = nulls
        self.coder = coder

    def column(self, records: BytesColumn) -> EncodedColumn:
        """As a column."""
        nulls = self.nulls if self.nulls is not None and self.nulls.any() else None
        return EncodedColumn.within(records.data, self.ends, STRING, self.coder, nulls)


class _Found(NamedTuple):
    """A JSON text, and where it begins."""

    text: bytes
    start: int


class ObjectFinder:
    """Finds objects in records that their decoder has read. ``shape``: with only the fields that are needed."""

    def __init__(self, shape: Shape) -> None:
        self._within = {f.name: ObjectFinder(f.inner) for f in shape.fields if f.inner is not None}
        keys = {f.name: f.key for f in shape.fields if f.inner is not None}
        names = {name: f"f{i}" for i, name in enumerate(keys)}
        texts = msgspec.defstruct(
            "Texts",
            [(names[name], msgspec.Raw, msgspec.Raw(b"")) for name in keys],
            rename={names[name]: key for name, key in keys.items()},
        )
        self._names = names
        self._decode = msgspec.json.Decoder(texts).decode

    def within(self, name: str) -> ObjectFinder:
        """The finder of objects within this field's."""
        return self._within[name]

    def find(self, records: Sequence[_Found]) -> dict[str, list[_Found]]:
        """Per field, the text of each record's object, which is empty where there is none. An equal text that stands
        earlier in the record is as good."""
        out: dict[str, list[_Found]] = {name: [] for name in self._names}
        if not out:
            return out
        for text, start in records:
            found = self._decode(text) if text and text != b"null" else None
            for name, held in out.items():
                part = b"" if found is None else bytes(getattr(found, self._names[name]))
                held.append(_Found(part, start + text.index(part)) if part else _Found(b"", start))
        return out


def texts_of(records: BytesColumn, rows: Sequence[int]) -> list[_Found]:
    """The texts of these records, of which a null one is empty."""
    listed = records.take(np.array(rows, np.intp)).to_list()
    return [_Found(t or b"", int(records.offsets[row])) for t, row in zip(listed, rows, strict=True)]


def serde_of_objects(field: FieldReader) -> Serde[Any]:
    """The serde that reads the field's objects alone."""
    assert field.inner is not None
    return _reading(field.inner.type)


@functools.cache
def _reading(tp: Any) -> Serde[Any]:
    return serde_of(tp) if isinstance(tp, type) and record_class(tp) is not None else typed_json(tp)


def no_objects(records: BytesColumn) -> NDArray[np.int64]:
    """The places of objects that nobody has found."""
    return np.repeat(records.offsets[:-1], 2)
