"""The columns of a store: its entries' keys and values, typed, with the window, the version or the place of each.

Windowed kinds have ``window_start`` and ``window_end``, versioned ones ``valid_from`` and ``valid_to`` (null: it holds
still), lists the ``time`` of each entry and its ``sequence``. ``timestamp`` is that of the last change.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice

import pyarrow as pa

from penstock.state.stores.store import StoreSpec
from penstock.streams.spark.frames.decoding import WINDOW_END, WINDOW_START, SerdeColumns, times
from penstock.streams.spark.frames.topic_columns import chosen
from penstock.streams.spark.frames.types import TIMESTAMP

_BATCH_ROWS = 10_000
_LONG, _INT = 8, 4
_VALID_TO = "valid_to"
Entry = tuple[bytes, bytes]
ChangelogRow = tuple[bytes, bytes | None]


class StoreColumns:
    """Entries of a store as record batches. ``only``: these columns (``None``: all). ``changes``: entries are changes, in
    the order of the changelog, with the ``offset`` of each; a null value deletes. When a version ends is not known then."""

    def __init__(self, spec: StoreSpec, only: Collection[str] | None = None, *, changes: bool = False) -> None:
        self._spec = spec
        self._changes = changes
        self._key, self._value = SerdeColumns(spec.key_serde, "key"), SerdeColumns(spec.value_serde, "value")
        places = [pa.field(n, kind) for n, kind in _PLACES[spec.kind] if not (changes and n == _VALID_TO)]
        every = [
            *self._key.fields,
            *places,
            *self._value.fields,
            pa.field("timestamp", TIMESTAMP),
            pa.field("partition", pa.int32()),
            *([pa.field("offset", pa.int64())] if changes else []),
        ]
        self.schema = chosen(every, only)
        self._names = [f.name for f in every]

    def batches(self, partition: int, entries: Iterable[Entry]) -> Iterator[pa.RecordBatch]:
        """The entries of one store partition, in the order of their keys."""
        for group in _groups(iter(entries), versioned=self._spec.kind == "versioned"):
            if self._spec.kind == "versioned":
                keys, places, values, stamps = _versions(group)
            else:
                keys, places = self._placed([k for k, _ in group])
                values, stamps = [v[_LONG:] for _, v in group], [_long(v, 0) for _, v in group]
            yield self._batch(partition, keys, places, values, stamps)

    def changes(
        self, partition: int, offsets: Sequence[int], entries: Sequence[ChangelogRow], stamps: Sequence[int]
    ) -> pa.RecordBatch:
        """Changes of one store partition, one per record of its changelog."""
        keys, places = self._placed([k for k, _ in entries])
        values = [None if v is None else v[_LONG:] for _, v in entries]
        if self._spec.kind == "versioned":  # a version may say that the row is gone
            values = [None if v is None or not v[0] else v for v in values]
        return self._batch(partition, keys, places, values, stamps, pa.array(offsets, pa.int64()))

    def _batch(
        self,
        partition: int,
        keys: list[bytes],
        places: list[pa.Array],
        values: Sequence[bytes | None],
        stamps: Sequence[int],
        *more: pa.Array,
    ) -> pa.RecordBatch:
        columns = [
            *self._key.decode(pa.array(keys, pa.binary())),
            *places,
            *self._value.decode(pa.array(values, pa.binary())),
            times(stamps),
            pa.repeat(pa.scalar(partition, pa.int32()), len(keys)),
            *more,
        ]
        found = dict(zip(self._names, columns, strict=True))
        return pa.RecordBatch.from_arrays([found[name] for name in self.schema.names], schema=self.schema)

    def _placed(self, stored: list[bytes]) -> tuple[list[bytes], list[pa.Array]]:
        """The bytes of each key, and the columns that describe its place."""
        kind, size = self._spec.kind, self._spec.window_size_ms
        if kind == "key_value":
            return stored, []
        if kind == "versioned":
            return [k[:-_LONG] for k in stored], [times([_long(k, len(k) - _LONG) for k in stored])]
        if kind == "window":
            return [k[_LONG:] for k in stored], _window([_long(k, 0) for k in stored], size)
        # segment | key | time | suffix
        suffix = {"key_window": 0, "session": _LONG, "list": _INT}[kind]
        keys = [k[_LONG : len(k) - _LONG - suffix] for k in stored]
        at = [_long(k, len(k) - _LONG - suffix) for k in stored]
        if kind == "key_window":
            return keys, _window(at, size)
        if kind == "session":
            return keys, [times([_long(k, len(k) - _LONG) for k in stored]), times(at)]
        return keys, [times(at), pa.array([int.from_bytes(k[-_INT:], "big") for k in stored], pa.int64())]


_PLACES: dict[str, list[tuple[str, pa.DataType]]] = {
    "key_value": [],
    "window": [(WINDOW_START, TIMESTAMP), (WINDOW_END, TIMESTAMP)],
    "key_window": [(WINDOW_START, TIMESTAMP), (WINDOW_END, TIMESTAMP)],
    "session": [(WINDOW_START, TIMESTAMP), (WINDOW_END, TIMESTAMP)],
    "list": [("time", TIMESTAMP), ("sequence", pa.int64())],
    "versioned": [("valid_from", TIMESTAMP), (_VALID_TO, TIMESTAMP)],
}


def _long(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + _LONG], "big", signed=True)


def _window(starts: list[int], size_ms: int | None) -> list[pa.Array]:
    return [times(starts), times([None if size_ms is None else start + size_ms for start in starts])]


def _versions(group: list[Entry]) -> tuple[list[bytes], list[pa.Array], list[bytes], list[int]]:
    """The versions that are rows: a version that says that the row was gone ends the one before it."""
    keys: list[bytes] = []
    froms: list[int] = []
    tos: list[int | None] = []
    values: list[bytes] = []
    stamps: list[int] = []
    for i, (stored, data) in enumerate(group):
        if not data[_LONG]:
            continue
        key = stored[:-_LONG]
        following = group[i + 1][0] if i + 1 < len(group) else b""
        keys.append(key)
        froms.append(_long(stored, len(stored) - _LONG))
        tos.append(_long(following, len(following) - _LONG) if following[:-_LONG] == key and following else None)
        values.append(data[_LONG:])
        stamps.append(_long(data, 0))
    return keys, [times(froms), times(tos)], values, stamps


def _groups(entries: Iterator[Entry], *, versioned: bool) -> Iterator[list[Entry]]:
    """Pieces of the entries. Versions of one key stay together, so that each knows the one after it."""
    waiting: list[Entry] = []
    while more := list(islice(entries, _BATCH_ROWS)):
        waiting += more
        if not versioned:
            yield waiting
            waiting = []
            continue
        last = waiting[-1][0][:-_LONG]
        cut = next((i for i in range(len(waiting), 0, -1) if waiting[i - 1][0][:-_LONG] != last), 0)
        if cut:
            yield waiting[:cut]
            waiting = waiting[cut:]
    if waiting:
        yield waiting
