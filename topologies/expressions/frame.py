"""The columns of one batch, as the nodes of an expression read them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from penstock.state.serdes.serde import STRING
from penstock.topologies.columnar.encoded_columns import EncodedColumn
from penstock.topologies.columnar.windowed_keys import is_windowed
from penstock.topologies.expressions import kernels as k
from penstock.topologies.expressions.leaves import Leaf, Path
from penstock.topologies.expressions.types import DataType
from penstock.topologies.operator_api.batch import Batch
from penstock.topologies.operator_api.columns import BytesColumn, CodedColumn, Column, Mask, NumberColumn, StructColumn

_TEXTS = frozenset({str, type(None)})


class Frame:
    """The columns of one batch, as expressions read them."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._columns: dict[Leaf, Column] = {}
        self._codes: dict[Leaf, k.Coded] = {}
        self._texts: dict[Leaf, k.Coded | None] = {}
        value = batch.value_column
        self._struct = value if isinstance(value, StructColumn) else None
        self._key = batch.key_column if is_windowed(batch.key_column) else None
        """Keys whose fields are columns. No part of them is null."""

    @property
    def of_fields(self) -> bool:
        """Whether values are records by field."""
        return self._struct is not None

    def absence(self, leaf: Leaf, tp: DataType) -> k.Vec | None:
        """Whether each record's value, or the object at a field of it, is null. ``None``: neither is there as columns."""
        struct = self._struct if leaf == ("value", None) else self.objects(leaf)
        if struct is None:
            return None
        nulls = struct.nulls
        if nulls is None:
            return k.Vec(np.zeros((), np.bool_))
        return k.Vec(nulls, None, None if leaf[1] is None or tp.nullable else self.missing(nulls))

    def objects(self, leaf: Leaf) -> StructColumn | None:
        """The column of objects at a field."""
        which, name = leaf
        if which != "value" or name is None or self._struct is None:
            return None
        found = _field(self._struct, name)
        return found if isinstance(found, StructColumn) else None

    def missing(self, nulls: Mask) -> Mask:
        """The nulls of records that are not null themselves."""
        whole = None if self._struct is None else self._struct.nulls
        return nulls if whole is None else nulls & ~whole

    def reached(self, leaf: Leaf) -> Leaf:
        """The leaf, or, unless that is a record of columns, what it is within: a field, or the key."""
        which, name = leaf
        if which == "key" and self._key is None:
            return which, None
        if (
            not isinstance(name, tuple)
            or self._struct is None
            or isinstance(self._struct.fields.get(name[0]), StructColumn)
        ):
            return leaf
        return which, name[0]

    def column(self, leaf: Leaf) -> Column:
        """Raises ``Unsure`` if there is none."""
        found = self._columns.get(leaf)
        if found is None:
            found = self._columns[leaf] = self._found(leaf)
        return found

    def _found(self, leaf: Leaf) -> Column:
        which, name = leaf
        column: Column | None = None
        if which == "timestamp":
            column = NumberColumn(self._batch.times)
        elif which == "key":
            column = self._batch.key_column
            if self._key is not None and name is not None:
                column = self._key.fields.get(name) if isinstance(name, str) else None
        elif which == "value":
            column = self._batch.value_column
            if self._struct is not None:
                column = None if name is None else _field(self._struct, name)
        if isinstance(column, BytesColumn):
            column = CodedColumn.of(column.to_list())
        if column is None or isinstance(column, StructColumn):
            raise k.Unsure
        return column

    def coded(self, leaf: Leaf) -> bool:
        """Whether its distinct values are known."""
        if (leaf == ("value", None) and self._struct is not None) or self.objects(leaf) is not None:
            return False
        return isinstance(self.column(leaf), CodedColumn)

    def numbers(self, leaf: Leaf, tp: DataType) -> k.Vec:
        """A number column as an expression of this type reads it."""
        column = self.column(leaf)
        if not isinstance(column, NumberColumn):
            raise k.NoKernel
        read = k.read(column.array, tp.kind)
        if column.nulls is None or not column.nulls.any():
            return k.Vec(read)
        # every column of a null record is null, for any declared type
        errors = None if leaf[1] is None or tp.nullable else self.missing(column.nulls)
        return k.Vec(read, column.nulls, errors)

    def has_texts(self, leaf: Leaf) -> bool:
        """Whether it is a column of texts of which only the bytes are known."""
        column = None if self.objects(leaf) is not None else self.column(leaf)
        return isinstance(column, EncodedColumn) and column.serde == STRING and not column.is_coded

    def texts(self, leaf: Leaf, tp: DataType) -> k.EncodedTexts:
        """A column of texts as an expression of this type reads it. Raises ``NoKernel`` for others."""
        column = self.column(leaf)
        if not isinstance(column, EncodedColumn) or column.serde != STRING or tp.kind != "string":
            raise k.NoKernel
        raw = column.raw
        if raw.nulls is None or leaf[1] is None or tp.nullable:
            return k.EncodedTexts(raw)
        return k.EncodedTexts(raw, self.missing(raw.nulls))

    def records(self, leaves: tuple[Leaf, ...]) -> tuple[k.CodeArray, int, Iterator[tuple[Any, Any, Any]]]:
        """Each row's record, how many distinct ones there are as far as the leaves distinguish them, and these, as key,
        value and timestamp, each of which holds until the next one."""
        parts = [self._coding(leaf) for leaf in leaves]
        nulls = None if self._struct is None or not any(w == "value" for w, _ in leaves) else self._struct.nulls
        if nulls is not None:
            parts.append(k.Coded(nulls.astype(np.int32), [False, True]))
        codes, rows = k.combined(parts, len(self._batch))
        if nulls is None and len(leaves) == 1 and leaves[0][0] == "value" and isinstance(leaves[0][1], str):
            return codes, len(rows), _of_one_field(leaves[0][1], rows)
        return codes, len(rows), (self._record(leaves, row) for row in rows)

    def combine_to_more_than(self, most: int, leaves: tuple[Leaf, ...]) -> bool:
        """Whether columns of distinct values, more than one, may have more combinations."""
        if len(leaves) < 2:
            return False
        bound = 1
        for leaf in leaves:
            bound *= max(1, len(self._coding(leaf).values))
        return min(bound, len(self._batch)) > most

    def texts_alone(self, leaves: tuple[Leaf, ...]) -> k.Coded | None:
        """The distinct texts of the only column that the leaves are, or null, if no record is; ``None``: of others."""
        if len(leaves) != 1 or isinstance(leaves[0][1], tuple) or leaves[0][0] == "timestamp":
            return None
        leaf = leaves[0]
        if leaf not in self._texts:
            found = self._coding(leaf) if self._stands_alone(leaf) else None
            if found is not None and len(found.values) > len(self._batch):
                codes, rows = k.combined([found], len(self._batch))
                found = k.Coded(codes, [value for (value,) in rows])
            self._texts[leaf] = found if found is not None and _TEXTS.issuperset(map(type, found.values)) else None
        return self._texts[leaf]

    def _stands_alone(self, leaf: Leaf) -> bool:
        """Whether a column of distinct values says all about it."""
        which, name = leaf
        within = self._struct if which == "value" else self._key
        if (within is None) != (name is None) or (within is not None and within.nulls is not None):
            return False
        return isinstance(self.column(leaf), CodedColumn)

    def _coding(self, leaf: Leaf) -> k.Coded:
        found = self._codes.get(leaf)
        if found is None:
            column = self.column(leaf)
            if isinstance(column, NumberColumn):
                found = k.coded_numbers(column.array, column.nulls)
            elif isinstance(column, CodedColumn):
                found = k.Coded(column.codes, column.values)
            else:
                raise k.Unsure
            self._codes[leaf] = found
        return found

    def _record(self, leaves: tuple[Leaf, ...], row: tuple[Any, ...]) -> tuple[Any, Any, Any]:
        key: Any = None
        value: Any = None
        timestamp: Any = 0
        fields: dict[str, Any] = {}
        of_key: dict[str, Any] = {}
        for (which, name), held in zip(leaves, row, strict=False):
            if which == "key" and isinstance(name, str):
                of_key[name] = held
            elif which == "key":
                key = held
            elif which == "timestamp":
                timestamp = held
            elif self._struct is None:
                value = held
            elif name is not None:
                _put(fields, name, held)
        if self._struct is not None and not (len(row) > len(leaves) and row[-1]):
            value = fields
        return of_key or key, value, timestamp


def _of_one_field(name: str, rows: list[tuple[Any, ...]]) -> Iterator[tuple[Any, Any, Any]]:
    """Records with one field, in one dict, since making many takes most of the time."""
    value: dict[str, Any] = {}
    for (value[name],) in rows:
        yield None, value, 0


def _field(struct: StructColumn, name: str | Path) -> Column | None:
    """A field, or a field of fields, which is null where what it is within is null."""
    if isinstance(name, str):
        return struct.fields.get(name)
    column: Column | None = struct
    for part in name:
        if not isinstance(column, StructColumn):
            return None
        column = column.fields.get(part)
    return column


def _put(fields: dict[str, Any], name: str | Path, held: Any) -> None:
    """Set a field, or a field of fields."""
    if isinstance(name, str):
        fields[name] = held
        return
    for part in name[:-1]:
        fields = fields.setdefault(part, {})
    fields[name[-1]] = held
