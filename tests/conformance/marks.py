"""Watermarks of cases: records that say how far event time has come, and are gone behind the source."""

from __future__ import annotations

from typing import Any

from penstock.state.log import Record
from penstock.topologies.operator_api.watermark_strategies import END_OF_TIME_MS, punctuated
from tests.conformance.scenario import Mark

_FIELD = "conform.watermark"
FOREVER = "max"
"""A case's word for the end of time."""


def mark(index: int, topic: str, watermark: int | str, *, key: Any = None, ts: int = 0) -> Mark:
    """The record by which a stream's event time reaches ``watermark``, or its end."""
    stated = END_OF_TIME_MS if watermark == FOREVER else watermark
    return Mark(index, topic, key, {_FIELD: stated}, ts)


def read_stream(builder: Any, topic: str, *, watermarks: bool) -> Any:
    """A stream of the case's topic. ``watermarks``: event time is what marks say, and marks go no further."""
    if not watermarks:
        return builder.stream(topic)
    stream = builder.stream(topic, watermark=punctuated(_watermark_of))
    return stream.filter(lambda key, value: not _is_mark(value))


def _watermark_of(record: Record) -> int | None:
    return record.value[_FIELD] if _is_mark(record.value) else None


def _is_mark(value: Any) -> bool:
    return isinstance(value, dict) and _FIELD in value
