"""Results that were held for a commit, as columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.state.serdes.serde import Serde
from penstock.topologies.aggregators.base import Part
from penstock.topologies.columnar.column_parts import enough
from penstock.topologies.columnar.encoded_columns import SAME_BYTES, EncodedColumn
from penstock.topologies.columnar.kernels import Coder
from penstock.topologies.expressions.row_function import ExpressionFunction
from penstock.topologies.operator_api.batch import ColumnBatch
from penstock.topologies.operator_api.columns import BytesColumn
from penstock.topologies.operator_api.required_columns import ROW_LAYOUT, EdgeLayout
from penstock.topologies.operators.columnar.part_results import ShownParts

Accumulators = Sequence[tuple[Any, ...] | None]
"""Those of the parts of each aggregate; ``None``: there is none."""


class PartFlush:
    """Makes the records of aggregates of these parts at a commit. ``result``: see ``ShownParts``. ``keys``: the serde of the
    keys, whose bytes are the store's keys."""

    def __init__(self, parts: Sequence[Part], result: ExpressionFunction | None, keys: Serde[Any]) -> None:
        self._shown = ShownParts(parts, result)
        self._keys = keys
        self._usable = keys in SAME_BYTES

    @staticmethod
    def layout(result: ExpressionFunction | None, keys: Serde[Any], *, single: bool = False) -> EdgeLayout:
        """The layout of what is emitted. ``single``: it is the result of the only part."""
        shown = single or ShownParts.why_not(result) is None
        return EdgeLayout(keys=True, values=True, olds=True) if shown and keys in SAME_BYTES else ROW_LAYOUT

    def of(
        self, store_keys: list[bytes], accumulators: Accumulators, times: list[int], before: Accumulators | None
    ) -> ColumnBatch | None:
        """The records. ``before``: the accumulators at the commit before, if old values are sent. ``None``: row by row."""
        if not self._usable or not enough(len(store_keys)):
            return None
        values = self._shown.of_accumulators(accumulators)
        olds = None if before is None else self._shown.of_accumulators(before)
        if values is None or (before is not None and olds is None):
            return None
        keys = EncodedColumn(BytesColumn.of(store_keys), self._keys, Coder())
        nowhere = np.zeros(len(store_keys), np.int64)
        return ColumnBatch(keys, values, np.array(times, np.int64), nowhere, None, olds)
