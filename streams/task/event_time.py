"""Event time from records, for sources with a ``timestamp`` function. It is applied before the feed orders the records,
so order, stream time and windows all follow it. It must be a pure function of the record."""

from __future__ import annotations

from typing import Any

from penstock.state.log import Record
from penstock.state.serdes.serde import Serde
from penstock.streams.ports.chunk import Chunk
from penstock.topologies.operator_api.watermark_strategies import END_OF_TIME_MS
from penstock.topologies.operators.records.source_sink import SourceSpec


def with_event_times(chunk: Chunk, source: SourceSpec) -> tuple[Chunk, dict[int, str]]:
    """Return the chunk with the times that ``source.timestamp`` computes from its decoded records, and the errors by
    offset.

    If a record's bytes cannot be decoded, it keeps the log's time: the source operator meets the same bytes at that
    record's place, and their policy applies there. If the function raises or returns anything but an ``int``, the
    record keeps it too, and is named in the result.
    """
    make = source.timestamp
    if make is None:
        return chunk, {}
    times: list[int] = []
    wrong: dict[int, str] = {}
    for i, (offset, logged) in enumerate(zip(chunk.offsets, chunk.timestamps, strict=True)):
        times.append(logged)
        try:
            key = decoded(source.key_serde, chunk.keys[i])
            value = decoded(source.value_serde, chunk.values[i])
        except Exception:  # not swallowed: the source operator decodes again and applies the policy
            continue
        headers = () if chunk.headers is None else chunk.headers[i]
        try:
            made: Any = make(Record(key, value, logged, headers))
        except Exception as exc:
            wrong[offset] = f"the timestamp function raised {type(exc).__name__}: {exc}"
            continue
        if type(made) is int and made <= END_OF_TIME_MS:
            times[-1] = made
        else:
            wrong[offset] = f"the timestamp function returned {made!r:.100}; it must return milliseconds as an int"
    return chunk.with_times(times), wrong


def decoded(serde: Serde[Any], data: bytes | None) -> Any:
    """Decode these bytes; null stays null."""
    return None if data is None else serde.deserialize(data)
