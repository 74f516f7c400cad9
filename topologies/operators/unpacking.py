"""The rows of records that hold many."""

from __future__ import annotations

from penstock.topologies.batch import Batch
from penstock.topologies.operator import OperatorContext
from penstock.topologies.operators.rows import map_rows
from penstock.topologies.packing import unpack


def unpacked(ctx: OperatorContext, batch: Batch) -> Batch:
    """The rows of records that hold many: keys and values as bytes, under their records' order."""
    rows, batch = map_rows(ctx, batch, unpack, batch.values)
    order: list[int] = []
    for at, (keys, _, _) in zip(batch.order, rows, strict=True):
        order += [at] * len(keys)
    return Batch(
        [k for keys, _, _ in rows for k in keys],
        [v for _, values, _ in rows for v in values],
        [t for _, _, timestamps in rows for t in timestamps],
        order,
    )
