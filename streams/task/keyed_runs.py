"""Runs of records that enter a lockstep group from several sides, as long as the answer allows. Pure.

Where all that a group does with a record concerns its key alone (``Plan.by_key``), records of different keys may change
places. So the records are cut into spans, and in a span one side's records follow the other's, unless that would bring two
records of one key into another order: then a new span begins. Without this, a table whose updates come between the records
of a stream would cut both into runs of a few records, which cost as much as long ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from penstock.topologies.columnar.encoded_columns import SAME_BYTES, EncodedColumn
from penstock.topologies.columnar.kernels import Coder
from penstock.topologies.operator_api.batch import Batch
from penstock.topologies.operator_api.columns import BytesColumn, Codes, Column, Ints, Places, joined

Entering = tuple[int, int, Batch]
"""Records that enter a group: the operator and the in port, and the records."""
LONGER = 4
"""How much longer runs by key must be to be worth the search."""


def runs_by_key(entries: Sequence[Entering]) -> Iterator[Entering] | None:
    """The entries' records as runs from one entry each, in an order that keeps that of every key. ``None``: runs in the
    order of the task are not much shorter, or keys are not known to be what their bytes are."""
    raws = [raw for _, _, batch in entries if (raw := _bytes_of(batch.key_column)) is not None]
    keys = joined(raws) if len(raws) == len(entries) else None
    if not isinstance(keys, BytesColumn):
        return None
    orders = np.concatenate([batch.orders for _, _, batch in entries])
    sides = np.repeat(np.arange(len(entries)), [len(batch) for _, _, batch in entries])
    by_order = np.lexsort((sides, orders))
    sides = sides[by_order]
    turns = int(np.count_nonzero(np.diff(sides))) + 1
    if turns <= LONGER * len(entries):
        return None
    starts = _spans(Coder(0).code(keys).codes[by_order], sides, len(entries))
    if LONGER * len(starts) * len(entries) > turns:
        return None
    return _cut(entries, orders[by_order][starts])


def _bytes_of(column: Column | None) -> BytesColumn | None:
    """The bytes that a store has of the keys."""
    if isinstance(column, BytesColumn):
        return column
    return column.raw if isinstance(column, EncodedColumn) and column.serde in SAME_BYTES else None


def _spans(keys: Codes, sides: Places, count: int) -> list[int]:
    """Where spans begin: at a record that a later side's record of its key precedes in the span."""
    starts, start = [0], 0
    preceding = _preceding(keys, sides, count)
    at = np.flatnonzero(preceding >= 0)
    for place, before in zip(at.tolist(), preceding[at].tolist(), strict=True):
        if before >= start:
            starts.append(place)
            start = place
    return starts


def _preceding(keys: Codes, sides: Places, count: int) -> Places:
    """For each record the last one of its key before it that is of a later side; -1 without one."""
    by_key = np.argsort(keys, kind="stable")
    sorted_sides, steps = sides[by_key], np.arange(len(keys))
    is_first = np.diff(keys[by_key], prepend=-1) != 0
    firsts = np.maximum.accumulate(np.where(is_first, steps, 0))
    out = np.full(len(keys), -1, np.intp)
    for side in range(count - 1):
        last = np.maximum.accumulate(np.where(sorted_sides > side, steps, -1))
        found = (sorted_sides == side) & (last >= firsts)
        out[by_key[found]] = by_key[last[found]]
    return out


def _cut(entries: Sequence[Entering], first_orders: Ints) -> Iterator[Entering]:
    """The records of each span, entry by entry. ``first_orders``: of the first record of each span."""
    ends = [
        [0, *np.searchsorted(batch.orders, first_orders[1:], "left").tolist(), len(batch)] for _, _, batch in entries
    ]
    spans = [list(pairwise(of_entry)) for of_entry in ends]
    for span in range(len(first_orders)):
        for (node, port, batch), bounds in zip(entries, spans, strict=True):
            start, stop = bounds[span]
            if start < stop:
                yield node, port, batch.slice(start, stop)
