"""Keeping the latest, or earliest, values in the store itself, which tells keys apart by their bytes: before the commit no
entry is loaded, and neither keys nor values become objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.state.serdes.serde import Serde
from penstock.state.stores.latest_view import LatestStoreView
from penstock.topologies.columnar.column_parts import has_bytes_of
from penstock.topologies.columnar.encoded_columns import WrittenColumn
from penstock.topologies.columnar.kernels import Coder
from penstock.topologies.operator_api.batch import Batch, ColumnBatch
from penstock.topologies.operator_api.columns import BytesColumn
from penstock.topologies.operators.aggregates.folds.held import flush_held
from penstock.topologies.operators.aggregates.folds.kept import LatestColumns


class HeldLatest:
    """``columns``: what folds them otherwise."""

    def __init__(self, state: LatestStoreView, key_serde: Serde[Any], columns: LatestColumns) -> None:
        self._state = state
        self._key_serde = key_serde
        self._serde = columns.serde
        self._later = columns.later
        self._written = columns.written
        self._coder = Coder()

    def fold(self, batch: ColumnBatch) -> bool:
        column = batch.key_column
        if not has_bytes_of(column, self._key_serde) or (texts := self._written.of_column(batch.value_column)) is None:
            return False
        raw = column.raw
        return self._state.keep((raw.data, raw.offsets), (texts.data, texts.offsets), batch.times, later=self._later)

    def flush(self, show: Callable[[Batch], None]) -> dict[bytes, Any]:
        return flush_held(self._state, self._key_serde.deserialize, self._results, show)

    def _results(self) -> ColumnBatch | None:
        found = self._state.changed_texts()
        if found is None:
            return None
        texts: BytesColumn | None = BytesColumn(*found.texts)
        if self._state.any_stored:
            texts = self._written.of(BytesColumn(*found.texts))
        if texts is None:  # one that is stored cannot be read
            self._state.settle()
            return None
        keys = WrittenColumn(BytesColumn(*found.keys), self._key_serde, Coder())
        values = WrittenColumn(texts, self._serde, self._coder)
        return ColumnBatch(keys, values, found.times, np.zeros(len(found.times), np.int64))
