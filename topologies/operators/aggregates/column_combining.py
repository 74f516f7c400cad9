"""Combining counts on columns: one step per key and span of a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from penstock.state.serdes.serde import Serde
from penstock.topologies.operator_api.batch import ColumnBatch
from penstock.topologies.operator_api.columns import Ints, Mask
from penstock.topologies.operators.columnar.grouping import entries_of
from penstock.topologies.windows import WindowSpan

_SPANS_MAX = 8
"""Batches that cover more spans are processed row by row."""


class SpanCounts(NamedTuple):
    """How many records each key has in a span; ``keys`` in the order in which they first had one, with the highest
    timestamp of each."""

    span: WindowSpan
    keys: list[Any]
    counts: Ints
    latest: Ints


def counts_by_span(
    batch: ColumnBatch, serde: Serde[Any], span_of: Callable[[int], WindowSpan], *, keeps_keys: bool
) -> list[SpanCounts] | None:
    """The counts of a batch's records without null keys, spans in the order in which they first had one. ``keeps_keys``:
    keys as they are, else their bytes. ``None``: row by row."""
    spans = _spans(batch, span_of)
    if spans is None:
        return None
    out: list[SpanCounts] = []
    for span, inside in spans:
        part = batch if inside is None else batch.where(inside)
        found = entries_of(part, serde)
        if found is None:
            return None
        keys = found.keys if keeps_keys else found.store_keys
        out.append(SpanCounts(span, keys, found.counts(), found.latest(part.times)))
    return out


def _spans(batch: ColumnBatch, span_of: Callable[[int], WindowSpan]) -> list[tuple[WindowSpan, Mask | None]] | None:
    """The spans of the records and which are in each; no mask: all."""
    times = batch.times
    first = span_of(int(times[0]))
    if first.low <= int(times.min()) and int(times.max()) < first.high:
        return [(first, None)]
    out: list[tuple[WindowSpan, Mask | None]] = []
    left = np.ones(len(times), np.bool_)
    while left.any():
        if len(out) == _SPANS_MAX:
            return None
        span = span_of(int(times[int(left.argmax())]))
        inside = (times >= span.low) & (times < span.high)
        out.append((span, inside))
        left &= ~inside
    return out
