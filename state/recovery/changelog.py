"""Stores and their changelog topics: names, topic settings, and entries to records and back.

Names and bytes are Kafka Streams', so that either side can read what the other wrote. Changelog keys (store keys: see
``penstock.state.stores.store``):

* ``key_value``, ``versioned``: key; the version's valid-from is the record's timestamp
* ``window``, ``key_window``: key | start (8) | 0 (4)
* ``session``: key | end (8) | start (8)
* ``list``: key | timestamp (8) | sequence (4)

The value is the stored one without its timestamp, which is the record's. Numbers are big-endian. A null value deletes (a
versioned row: from then on). A source topic that serves as changelog has the same form as a key-value changelog, and may
hold records with a null key, which mean nothing to a table. Dropping an old version is not logged: every reader of the
changelog drops it by the same rule.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Sequence

from penstock.state.errors import IncompatibleError, TopologyError
from penstock.state.stores.store import SEGMENTED, StoreSpec

WINDOW_CHANGELOG_EXTRA_RETENTION_MS = 24 * 3600 * 1000
"""How much longer than the store a versioned table's changelog keeps what was before: a margin for clocks that disagree."""
KEPT_FOR_EVER = {"retention.ms": "-1", "retention.bytes": "-1"}
"""Brokers judge age by the records' own time, so that any limit would delete open windows of events of long ago. Workers
delete up to an offset what no restore needs (``penstock.streams.runtime.changelog_marks``)."""
REPARTITION_RETENTION_MS = -1
"""For ever: brokers judge age by the records' own time, so that any limit would delete records of the past before they
are consumed. Consumed ones are purged by deleting records up to an offset, when asked."""
REPARTITION_SEGMENT_BYTES = 50 << 20

OWN_TIMES = {
    "message.timestamp.type": "CreateTime",
    "message.timestamp.after.max.ms": str((1 << 63) - 1),
}
"""Internal topics take the times that operators give: state of a window that ends tomorrow bears a time of tomorrow, which
brokers refuse by default."""

_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
_TIMESTAMP = struct.Struct(">q")
_START_BYTES = 8
_SEQUENCE = b"\x00\x00\x00\x00"
_SUFFIX_BYTES = _START_BYTES + len(_SEQUENCE)
_SEGMENT_BYTES = 8
_SUFFIX_LENGTHS = {"window": _SUFFIX_BYTES, "key_window": _SUFFIX_BYTES, "session": 16, "list": 12}
"""How much of a changelog key stands behind the key's own bytes."""


def changelog_topic(application_id: str, spec: StoreSpec) -> str:
    """The topic that holds the store's changes: its source topic, or one of its own."""
    if spec.source_topic is not None:
        return spec.source_topic
    return _checked(f"{application_id}-{spec.name}-changelog")


def journal_topic(application_id: str, subtopology: int) -> str:
    """The topic that records what the feed of a sub-topology's tasks decided; its partition is the task's."""
    return _checked(f"{application_id}-{subtopology}-journal")


def _checked(topic: str) -> str:
    if not _TOPIC_NAME.fullmatch(topic):
        raise TopologyError(
            f"{topic!r} cannot be a topic's name; use letters, digits, '.', '_' and '-', 249 at most, "
            "in the application id and in the names of stores and repartitions"
        )
    return topic


def expires(spec: StoreSpec) -> bool:
    """Whether the store's changelog is one of its own from which is deleted what the store has let go, so that it may begin
    behind offset 0 and still hold the store."""
    return spec.source_topic is None and spec.kind not in ("key_value", "versioned")


def changelog_configs(spec: StoreSpec) -> dict[str, str]:
    """The settings with which a store's changelog topic is created. Not for source topics, which are the
    user's."""
    if spec.kind == "key_value":
        return {"cleanup.policy": "compact", **OWN_TIMES}
    if spec.retention_ms is None:
        raise TopologyError(
            f"{spec.kind} store {spec.name!r} has no retention_ms; say for how long its entries are kept"
        )
    if spec.kind == "versioned":
        lag_ms = spec.retention_ms + WINDOW_CHANGELOG_EXTRA_RETENTION_MS
        return {
            "cleanup.policy": "compact",
            **OWN_TIMES,
            "min.compaction.lag.ms": str(lag_ms),
        }
    return {
        "cleanup.policy": "delete" if spec.kind == "list" else "compact,delete",
        **OWN_TIMES,
        **KEPT_FOR_EVER,
    }


def repartition_configs(retention_ms: int = REPARTITION_RETENTION_MS) -> dict[str, str]:
    """The settings of a repartition topic."""
    return {
        "cleanup.policy": "delete",
        **OWN_TIMES,
        "retention.ms": str(retention_ms),
        "segment.bytes": str(REPARTITION_SEGMENT_BYTES),
    }


def journal_configs(retention_ms: int) -> dict[str, str]:
    """The settings of a journal topic; ``retention_ms`` is the longest of the sub-topology's inputs, -1 for
    ever."""
    return {
        "cleanup.policy": "delete",
        **OWN_TIMES,
        "retention.ms": str(retention_ms),
    }


def to_changelog(
    spec: StoreSpec, store_key: bytes, stored_value: bytes | None, timestamp_ms: int
) -> tuple[bytes, bytes | None, int]:
    """The record (key, value, timestamp) of one entry. ``timestamp_ms`` is used for a deletion, which stores
    none."""
    keys, values = to_changelog_columns(spec, [store_key], [stored_value])
    if stored_value is None:
        return keys[0], None, timestamp_ms
    return keys[0], values[0], _TIMESTAMP.unpack_from(stored_value)[0]


def to_changelog_columns(
    spec: StoreSpec, store_keys: Sequence[bytes], stored_values: Sequence[bytes | None]
) -> tuple[list[bytes], list[bytes | None]]:
    """The records' keys and values of many entries, in their order. The timestamps are those of the changes. Of a
    versioned store no deletions may be given: they are not logged."""
    kind = spec.kind
    if kind == "window":
        keys = [k[_START_BYTES:] + k[:_START_BYTES] + _SEQUENCE for k in store_keys]
    elif kind == "key_window":
        keys = [k[_SEGMENT_BYTES:] + _SEQUENCE for k in store_keys]
    elif kind in SEGMENTED:
        keys = [k[_SEGMENT_BYTES:] for k in store_keys]
    elif kind == "versioned":
        keys = [k[:-_START_BYTES] for k in store_keys]
        return keys, [None if v is None or v[8] == 0 else v[9:] for v in stored_values]
    else:
        keys = list(store_keys)
    return keys, [None if v is None else v[8:] for v in stored_values]


def from_changelog(spec: StoreSpec, key: bytes, value: bytes | None, timestamp_ms: int) -> tuple[bytes, bytes | None]:
    """The entry (store key, stored value or ``None`` for a deletion) of one record. Errors as the columns'
    form."""
    (entry,) = from_changelog_columns(spec, [key], [value], [timestamp_ms])
    return entry


def from_changelog_columns(
    spec: StoreSpec,
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    timestamps_ms: Sequence[int],
) -> list[tuple[bytes, bytes | None]]:
    """The entries of many records in log order, each store key once with its last value, ready to be
    committed.

    Null keys of a source topic are left out. Raises ``IncompatibleError`` for a record that no store of this
    kind wrote.
    """
    pack = _TIMESTAMP.pack
    if spec.kind == "versioned":
        return _versions(spec, keys, values, timestamps_ms)
    stored = [None if v is None else pack(t) + v for v, t in zip(values, timestamps_ms, strict=True)]
    last = dict(zip(keys, stored, strict=True))
    if None in last:
        if spec.source_topic is None:
            raise IncompatibleError(_foreign(spec, None))
        del last[None]
    entries: dict[bytes, bytes | None] = last  # type: ignore[assignment]  # the null key is gone
    if spec.kind == "key_value":
        return list(entries.items())
    for key in entries:
        sequenced = spec.kind in ("window", "key_window")
        if len(key) < _SUFFIX_LENGTHS[spec.kind] or (sequenced and not key.endswith(_SEQUENCE)):
            raise IncompatibleError(_foreign(spec, key))
    if spec.kind == "window":
        return [(k[-_SUFFIX_BYTES:-4] + k[:-_SUFFIX_BYTES], v) for k, v in entries.items()]
    return _segmented(spec, entries)


def _segmented(spec: StoreSpec, entries: dict[bytes, bytes | None]) -> list[tuple[bytes, bytes | None]]:
    """The entries of a segmented store: the segment, which follows from the time in the key, in front."""
    pack, unpack, segment_ms = _TIMESTAMP.pack, _TIMESTAMP.unpack_from, spec.segment_ms
    back, cut = _SUFFIX_LENGTHS[spec.kind], -4 if spec.kind == "key_window" else None
    return [(pack(unpack(k, len(k) - back)[0] // segment_ms) + k[:cut], v) for k, v in entries.items()]


def _versions(
    spec: StoreSpec,
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    timestamps_ms: Sequence[int],
) -> list[tuple[bytes, bytes | None]]:
    """The entries of a versioned store: every record is a version, a null value one that says that the row is gone."""
    pack = _TIMESTAMP.pack
    last: dict[bytes, bytes | None] = {}
    for key, value, ts in zip(keys, values, timestamps_ms, strict=True):
        if key is not None:
            last[key + pack(ts)] = pack(ts) + (b"\x00" if value is None else b"\x01" + value)
        elif spec.source_topic is None:
            raise IncompatibleError(_foreign(spec, None))
    return list(last.items())


def chooses(spec: StoreSpec) -> bool:
    """Whether the store takes only some records of its changelog: a versioned table of its own topic (``History``)."""
    return spec.kind == "versioned" and spec.source_topic is not None


class History:
    """Which records of its own topic a versioned table took as they came: not those that were older than its history
    behind its stream time, which a reader of the topic must leave out too. ``stored``: what is in the store already."""

    def __init__(self, spec: StoreSpec, stored: Iterable[tuple[bytes, bytes | None]] = ()) -> None:
        self._watched = chooses(spec)
        self._history_ms = spec.retention_ms or 0
        self._stream_time_ms = -1
        if self._watched:
            self._stream_time_ms = max((_TIMESTAMP.unpack_from(k, len(k) - 8)[0] for k, _ in stored), default=-1)

    def taken(self, keys: Sequence[bytes | None], timestamps_ms: Sequence[int]) -> list[bool] | None:
        """Of the next records of the topic; ``None``: all."""
        if not self._watched:
            return None
        taken = []
        for key, ts in zip(keys, timestamps_ms, strict=True):
            if key is not None:
                self._stream_time_ms = max(self._stream_time_ms, ts)
            taken.append(ts >= self._stream_time_ms - self._history_ms)
        return taken


def _foreign(spec: StoreSpec, key: bytes | None) -> str:
    return (
        f"the changelog of {spec.kind} store {spec.name!r} holds a record with key {key!r:.200}, which no such "
        "store writes; check that the topic belongs to this application, and give the store another name "
        "if it does not"
    )
