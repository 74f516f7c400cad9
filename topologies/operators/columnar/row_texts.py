"""Records and a table's rows as the JSON that their serde writes, without decoding them.

Texts that the compiled part finds to be exactly what the encoder would write are passed on unchanged, and decoded only
on use; other texts go through the serde, with the same result. This is much cheaper than decoding and encoding each
row.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.state.native import compiled
from penstock.state.serdes.serde import STRING, Serde
from penstock.state.stores.store_view import KeyValueStoreView
from penstock.topologies.columnar.column_parts import nulls_of
from penstock.topologies.columnar.encoded_columns import EncodedColumn, ParsedColumn, WrittenColumn
from penstock.topologies.columnar.json_writing import InstanceOf, encoder_of, writes_typed, written_objects
from penstock.topologies.columnar.kernels import Coder
from penstock.topologies.columnar.record_shapes import FormPart, Shape, shape_of, written_form
from penstock.topologies.columnar.text_columns import TextColumn
from penstock.topologies.operator_api.columns import (
    BytesColumn,
    CodedColumn,
    Column,
    NumberColumn,
    Places,
    StructColumn,
    joined,
)
from penstock.topologies.operators.columnar.source import json_decoder

_SAMPLES = {"str": b'"a"', "int": b"-1", "bool": b"true"}
_KINDS: dict[str, type] = {"str": str, "int": int, "bool": bool}


class WrittenTexts:
    """Texts of ``serde`` as it writes what it reads of them; see ``written_texts``. ``shape``: of what it reads."""

    def __init__(self, serde: Serde[Any], form: Any, shape: Shape) -> None:
        self._serde = serde
        self._form = form
        self._type = shape.type
        self._keys = {f.name: f.key for f in shape.fields}
        self._kinds = {f.name: f.kind for f in shape.fields}

    def of(self, texts: BytesColumn) -> BytesColumn | None:
        """The texts, nulls kept. ``None``: one that does not stand as it is written cannot be read or written."""
        others = self._form.others(*texts.raw())
        return texts if others is None else self._rewritten(texts, np.flatnonzero(np.frombuffer(others, np.bool_)))

    def of_column(self, column: Column | None) -> BytesColumn | None:
        """The texts of values, of which none may be null. ``None``: as ``of``, or they are not known to be values of the
        serde."""
        if column is None or nulls_of(column) is not None:
            return None
        if isinstance(column, TextColumn):
            return column.raw if column.pool.readers.serde == self._serde else None
        if isinstance(column, (ParsedColumn, EncodedColumn)):
            return self.of(column.raw) if column.serde == self._serde else None
        built = self._built(column)
        texts = None if built is None else written_objects(built, self._keys, self._serde.encoder)
        return None if texts is None else self.of(texts)

    def sure(self, column: Column | None) -> bool:
        """Whether ``of_column`` has the texts of each value without doubt, so that it may be asked for some of them."""
        if isinstance(column, TextColumn):
            return column.nulls is None and column.pool.readers.serde == self._serde
        built = None if column is None else self._built(column)
        if built is None or built.nulls is not None:
            return False
        return all(_sure_part(part, self._kinds.get(name)) for name, part in built.fields.items())

    def _built(self, column: Column) -> StructColumn | None:
        """The column, if it is built of the fields of the serde's type."""
        if not isinstance(column, StructColumn) or type(column.build) is not InstanceOf:
            return None
        return column if column.build.python is self._type else None

    def _rewritten(self, texts: BytesColumn, places: Places) -> BytesColumn | None:
        """With those at these places, of which none is null, as the serde writes them."""
        read, write = self._serde.deserialize, self._serde.encoder
        out: list[bytes | None] = []
        try:
            out.extend(write(read(data)) for data in texts.take(places).to_list() if data is not None)
        except Exception:  # raised again when the row is read
            return None
        return BytesColumn.of(out) if len(out) == len(texts) else _put(texts, places, BytesColumn.of(out))


class RowTexts:
    """Reads rows of ``serde``; see ``row_texts``."""

    def __init__(self, serde: Serde[Any], written: WrittenTexts) -> None:
        self._serde = serde
        self._written = written
        self._coder = Coder()

    def of(self, keys: BytesColumn, state: KeyValueStoreView) -> WrittenColumn | None:
        """The rows of non-null keys; null where there is no row. ``None``: take the row path, also
        where a row cannot be read."""
        found = state.packed(keys.data, np.ascontiguousarray(keys.offsets))
        if found is None:
            return None
        absent = None if found.absent is None else np.frombuffer(found.absent, np.bool_)
        rows = self._written.of(BytesColumn(found.data, np.frombuffer(found.ends, np.int64), absent))
        if rows is None:
            return None
        if state.dirty:
            try:
                rows = self._with_uncommitted(rows, keys, state)
            except Exception:  # raised again by the commit
                return None
            if rows is None:
                return None
        return WrittenColumn(rows, self._serde, self._coder)

    def _with_uncommitted(self, rows: BytesColumn, keys: BytesColumn, state: KeyValueStoreView) -> BytesColumn | None:
        """With what was written since the last commit. ``None``: as ``of``."""
        dirty, entries, write = state.dirty, state.entries, self._serde.encoder
        listed = keys.to_list()
        places = [i for i, key in enumerate(listed) if key in dirty]
        if not places:
            return rows
        changed = [entries[listed[i]] for i in places]  # type: ignore[index]  # no key is null
        if state.immutable:
            texts = [None if entry is None else write(entry[0]) for entry in changed]
        else:
            texts = [None if entry is None else entry[8:] for entry in changed]
        uncommitted = self._written.of(BytesColumn.of(texts))  # a topic's writer may have written them otherwise
        return None if uncommitted is None else _put(rows, np.array(places, np.intp), uncommitted)


def row_texts(serde: Serde[Any]) -> RowTexts | None:
    """For rows of which ``written_texts`` has the texts; ``None`` for others."""
    written = written_texts(serde)
    return None if written is None else RowTexts(serde, written)


def written_texts(serde: Serde[Any]) -> WrittenTexts | None:
    """For immutable objects that are written as JSON of a type; ``None`` for others, and without the compiled part."""
    make = getattr(compiled(), "JsonForm", None)
    decoder = json_decoder(serde)
    if make is None or decoder is None or not serde.immutable or encoder_of(serde) is None:
        return None
    form, shape = written_form(decoder.type), shape_of(decoder.type)
    if form is None or isinstance(shape, str) or not writes_typed(serde.encoder) or not _holds(serde, form):
        return None
    return WrittenTexts(serde, make([tuple(part) for part in form]), shape)


def _sure_part(column: Column, kind: str | None) -> bool:
    """Whether each of a field's values is one of the field's type, of this kind, and can be written."""
    if isinstance(column, NumberColumn):
        return column.nulls is None and column.array.dtype in (np.int64, np.bool_)
    if isinstance(column, EncodedColumn) and (column.serde == STRING or isinstance(column, WrittenColumn)):
        return nulls_of(column) is None
    if isinstance(column, CodedColumn):
        return _sure_values(column.values, kind)
    return isinstance(column, TextColumn) and column.nulls is None


def _sure_values(values: list[Any], kind: str | None) -> bool:
    """Whether distinct values are all texts, whole numbers of 64 bits or truth values, as the kind says, and can be
    written."""
    if kind not in _KINDS or set(map(type, values)) != {_KINDS[kind]}:
        return False
    try:
        if kind == "str":
            "".join(values).encode()  # there are strings that cannot be written
        elif kind == "int":
            np.array(values, np.int64)
    except (UnicodeEncodeError, OverflowError):
        return False
    return True


def _holds(serde: Serde[Any], form: list[FormPart]) -> bool:
    """Whether samples of the form come back as they were."""
    for nulls in (False, True):
        text = _sample(form, nulls=nulls)
        try:
            if serde.serialize(serde.deserialize(text)) != text:
                return False
        except Exception:  # the type, or its __init__, needs other values: unknown
            return False
    return True


def _sample(form: list[FormPart], *, nulls: bool) -> bytes:
    text = b""
    for part in form:
        value = _SAMPLES.get(part.kind) if part.inner is None else _sample(part.inner, nulls=nulls)
        assert value is not None
        text += part.before + (b"null" if nulls and part.nullable else value)
    return text + b"}"


def _put(rows: BytesColumn, places: Places, texts: BytesColumn) -> BytesColumn:
    """The rows with these texts at these places."""
    both = joined([rows, texts])
    assert isinstance(both, BytesColumn)
    where = np.arange(len(rows), dtype=np.intp)
    where[places] = len(rows) + np.arange(len(places))
    return both.take(where)
