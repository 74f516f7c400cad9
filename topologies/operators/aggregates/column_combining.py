"""The spans of a batch's records, and the first record before which partials must be sent."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from penstock.topologies.operator_api.batch import ColumnBatch
from penstock.topologies.operator_api.columns import Ints, Mask
from penstock.topologies.windows import WindowSpan

_SPANS_MAX = 8
"""Batches that cover more spans are cut."""

Spans = list[tuple[WindowSpan, Mask | None]]
"""The spans of a batch's records, in the order in which they first had one, and which records are in each; no mask: all."""


def first_spans(batch: ColumnBatch, span_of: Callable[[int], WindowSpan]) -> tuple[ColumnBatch, Spans]:
    """The records from the first on that have few spans, and these."""
    spans = _spans(batch, span_of)
    while spans is None:
        batch = batch.slice(0, len(batch) // 2)
        spans = _spans(batch, span_of)
    return batch, spans


def _spans(batch: ColumnBatch, span_of: Callable[[int], WindowSpan]) -> Spans | None:
    """The spans of the records; ``None``: too many."""
    times = batch.times
    if not len(times):
        return []
    first = span_of(int(times[0]))
    if first.low <= int(times.min()) and int(times.max()) < first.high:
        return [(first, None)]
    out: Spans = []
    left = np.ones(len(times), np.bool_)
    while left.any():
        if len(out) == _SPANS_MAX:
            return None
        span = span_of(int(times[int(left.argmax())]))
        inside = (times >= span.low) & (times < span.high)
        out.append((span, inside))
        left &= ~inside
    return out


def closing_ms(spans: Spans, limit_ms: int) -> int:
    """The time that closes the first of these spans, or ``limit_ms`` if that is earlier."""
    return min([limit_ms, *(span.closes_ms for span, _ in spans)])


def closing_row(times: Ints, spans: Spans, limit_ms: int) -> int | None:
    """The first record whose time is at or after ``limit_ms`` or what closes the span of a record before it; ``None``: no
    record's is."""
    if int(times.max()) < closing_ms(spans, limit_ms):
        return None
    closes = np.full(len(times), spans[0][0].closes_ms, np.int64)
    for span, inside in spans:
        if inside is not None:
            closes[inside] = span.closes_ms
    limits = np.minimum.accumulate(np.concatenate([np.array([limit_ms], np.int64), closes[:-1]]))
    late = times >= limits
    return int(late.argmax()) if late.any() else None
