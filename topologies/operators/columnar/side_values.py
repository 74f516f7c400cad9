"""The values of one side of a join of streams, and pairs of them, as columns."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from penstock.state.errors import SerdeError
from penstock.state.serdes.serde import Serde
from penstock.topologies.columnar.encoded_columns import SAME_BYTES, EncodedColumn, ParsedColumn
from penstock.topologies.columnar.kernels import Coder
from penstock.topologies.columnar.text_columns import FieldReaders, TextColumn, TextPool, null_behind
from penstock.topologies.operator_api.batch import Batch
from penstock.topologies.operator_api.columns import BytesColumn, Column, Places
from penstock.topologies.operators.columnar.pairs import SIDES
from penstock.topologies.operators.columnar.row_texts import WrittenTexts, written_texts
from penstock.topologies.operators.columnar.source import json_decoder

Pool: TypeAlias = TextPool | EncodedColumn
"""Values of a side."""
Written: TypeAlias = tuple[BytesColumn, list[Any] | None]
"""Values as their serde writes them, and themselves, where they were read for it."""


class SideValues:
    """Reads and writes the values of one side. ``None``: by rows."""

    def __init__(self, serde: Serde[Any]) -> None:
        self._serde = serde
        decoder = None if serde in SAME_BYTES else json_decoder(serde)
        self._readers = None if decoder is None else FieldReaders(serde, decoder)
        self._written: WrittenTexts | None = None if decoder is None else written_texts(serde)

    def raw(self, batch: Batch) -> BytesColumn | None:
        """The values of a batch as bytes that the serde reads."""
        column = batch.value_column
        if column is None:
            return self._listed(batch.values)
        known = EncodedColumn if self._readers is None else ParsedColumn
        return column.raw if isinstance(column, known) and column.serde == self._serde else None

    def _listed(self, values: list[Any]) -> BytesColumn | None:
        if self._readers is None and not {type(v) for v in values} <= {self._serde.exact, type(None)}:
            return None
        try:
            return BytesColumn.of(self._serde.serialize_all(values))
        except SerdeError:  # raised again at its record
            return None

    def written(self, raw: BytesColumn) -> tuple[BytesColumn, list[Any] | None] | None:
        """As the serde writes them; and the values, where they were read for it."""
        if self._readers is None or not len(raw):
            return raw, None
        if self._written is not None:
            texts = self._written.of(raw)
            return None if texts is None else (texts, None)
        try:
            objects = list(map(self._serde.deserialize, raw.to_list()))  # type: ignore[arg-type]  # none is null
            return BytesColumn.of(self._serde.serialize_all(objects)), objects
        except Exception:  # raised again at its record
            return None

    def pool(self, texts: BytesColumn, objects: list[Any] | None) -> Pool:
        """The values of all that may be part of a pair."""
        if self._readers is None:
            return EncodedColumn(texts, self._serde, Coder())
        return TextPool(texts, self._readers, objects)


class PairsOfPools:
    """Pairs of values: ``codes`` are their indices in the pools, by side; -1: null."""

    def __init__(self, pools: list[Pool], codes: list[Places]) -> None:
        self._pools = dict(zip(SIDES, pools, strict=True))
        self._codes = dict(zip(SIDES, codes, strict=True))
        self._taken: dict[tuple[str, str | None], Column | None] = {}

    def whole(self, side: str) -> Column:
        """The values of a side."""
        pool, codes = self._pools[side], self._codes[side]
        if isinstance(pool, TextPool):
            return TextColumn(pool, codes)
        if (codes >= 0).all():
            return pool.take(codes)
        longer = null_behind(pool)
        assert longer is not None
        return longer.take(np.where(codes < 0, len(pool), codes))

    def field(self, side: str, name: str) -> Column | None:
        """A field of them."""
        if (side, name) not in self._taken:
            pool = self._pools[side]
            self._taken[side, name] = pool.taken(name, self._codes[side]) if isinstance(pool, TextPool) else None
        return self._taken[side, name]
