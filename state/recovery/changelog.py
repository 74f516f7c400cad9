"""Changelog topics of stores: names, topic settings, and conversion between entries and records.

Names and bytes are those of Kafka Streams, so that either can read what the other wrote. Changelog keys (store keys:
see ``penstock.state.stores.store``):

* ``key_value``, ``versioned``: key; the version's valid-from is the record's timestamp
* ``window``, ``key_window``: key | start (8) | 0 (4)
* ``session``: key | end (8) | start (8)
* ``list``: key | timestamp (8) | sequence (4)

The value is the stored one without its timestamp, which is the record's. Numbers are big-endian. A null value deletes
(a versioned row: from then on). A source topic that serves as a changelog has the format of a key-value changelog. It
may hold records with a null key, which a table ignores. Dropping an old version is not logged: every reader of the
changelog drops it by the same rule.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from penstock.state.errors import IncompatibleError, TopologyError
from penstock.state.native import compiled
from penstock.state.stores.store import SEGMENTED, PackedPuts, StoreSpec

TAIL_KEPT_MS = 3_600_000
"""So long the broker's cleaner leaves new records alone under at-least-once: see
``penstock.streams.runtime.compaction_guard``."""
GUARD_KEY = b"penstock-compaction-guard" + bytes(16)
"""Its deletion holds off the cleaner. It ends as the keys of all kinds do, with the numbers 0."""
KEPT_FOR_EVER = {"retention.ms": "-1", "retention.bytes": "-1"}
"""Unlimited: brokers judge age by the records' own time, so any limit would delete open windows of old events, and
versions that stream time has not left behind. Of windows, workers delete what no restore needs, up to an offset
(``penstock.streams.runtime.changelog_marks``)."""
REPARTITION_RETENTION_MS = -1
"""Unlimited: brokers judge age by the records' own time, so any limit would delete old records before they are
consumed. Consumed records are purged by offset, if the user asks for it."""
REPARTITION_SEGMENT_BYTES = 50 << 20

OWN_TIMES = {
    "message.timestamp.type": "CreateTime",
    "message.timestamp.after.max.ms": str((1 << 63) - 1),
}
"""Internal topics accept the timestamps of operators: the state of a window that ends tomorrow has tomorrow's
timestamp, which brokers reject by default."""

Packed: TypeAlias = tuple[Any, Any, Any]
"""A column of byte strings in the format of the compiled part: data, int64 offsets, and a byte per null flag or ``None``."""

_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
_TIMESTAMP = struct.Struct(">q")
_START_BYTES = 8
_SEQUENCE = b"\x00\x00\x00\x00"
_SUFFIX_BYTES = _START_BYTES + len(_SEQUENCE)
_SEGMENT_BYTES = 8
_SUFFIX_LENGTHS = {"window": _SUFFIX_BYTES, "key_window": _SUFFIX_BYTES, "session": 16, "list": 12}
"""The number of bytes of a changelog key after the key's own bytes."""


def changelog_topic(application_id: str, spec: StoreSpec) -> str:
    """The topic that holds the store's changes: its source topic, or its own changelog topic."""
    if spec.source_topic is not None:
        return spec.source_topic
    return _checked(f"{application_id}-{spec.name}-changelog")


def journal_topic(application_id: str, subtopology: int) -> str:
    """The topic that records what the feed of a sub-topology's tasks decided; a task uses the partition of its own
    number."""
    return _checked(f"{application_id}-{subtopology}-journal")


def _checked(topic: str) -> str:
    if not _TOPIC_NAME.fullmatch(topic):
        raise TopologyError(
            f"{topic!r} is not a valid topic name; use letters, digits, '.', '_' and '-', 249 at most, "
            "in the application id and in the names of stores and repartitions"
        )
    return topic


def kept_settings(spec: StoreSpec) -> dict[str, str]:
    """The settings that a changelog must have which was made by an earlier release or changed by hand."""
    if spec.source_topic is not None or spec.kind == "key_value":
        return {}
    return {"cleanup.policy": "delete", **KEPT_FOR_EVER} if spec.kind == "versioned" else KEPT_FOR_EVER


def expires(spec: StoreSpec) -> bool:
    """Whether the store has its own changelog, from which workers delete what the store has dropped. Such a changelog
    may begin after offset 0 and still hold the whole store."""
    return spec.source_topic is None and spec.kind not in ("key_value", "versioned")


def is_whole_from_zero_only(spec: StoreSpec) -> bool:
    """Whether the store has its own changelog and nothing may be missing at its begin, unless a snapshot holds it."""
    return spec.source_topic is None and not expires(spec)


def guarded(spec: StoreSpec) -> bool:
    """Whether the broker cleans the store's changelog by key, so that records which were never committed could take
    committed ones with them."""
    return spec.source_topic is None and spec.kind not in ("list", "versioned")


def changelog_configs(spec: StoreSpec, *, tails: bool = False) -> dict[str, str]:
    """The settings with which a store's changelog topic is created. Not for source topics, which belong to the user.
    ``tails``: records that were never committed may lie at its end, as under at-least-once."""
    lag = {"min.compaction.lag.ms": str(TAIL_KEPT_MS)} if tails and guarded(spec) else {}
    if spec.kind == "key_value":
        return {"cleanup.policy": "compact", **OWN_TIMES, **lag}
    if spec.retention_ms is None:
        raise TopologyError(
            f"{spec.kind} store {spec.name!r} has no retention_ms; give the time for which its entries are kept"
        )
    return {
        "cleanup.policy": "delete" if spec.kind in ("list", "versioned") else "compact,delete",
        **OWN_TIMES,
        **KEPT_FOR_EVER,
        **lag,
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
    """The settings of a journal topic; ``retention_ms`` is the longest of the sub-topology's inputs, -1: unlimited."""
    return {
        "cleanup.policy": "delete",
        **OWN_TIMES,
        "retention.ms": str(retention_ms),
    }


def to_changelog_columns(
    spec: StoreSpec, store_keys: Sequence[bytes], stored_values: Sequence[bytes | None]
) -> tuple[list[bytes], list[bytes | None]]:
    """The keys and values of the records of many entries, in their order. The timestamps are those of the changes. Do
    not pass deletions of a versioned store: they are not logged."""
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
    """The entry (store key, stored value or ``None`` for a deletion) of one record. Raises as ``entries_of`` does."""
    (entry,) = from_changelog_columns(spec, [key], [value], [timestamp_ms])
    return entry


def from_changelog_columns(
    spec: StoreSpec,
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    timestamps_ms: Sequence[int],
) -> list[tuple[bytes, bytes | None]]:
    """The entries of many records in log order, ready to commit: each store key once, with its last value.

    Skips null keys of a source topic. Raises ``IncompatibleError`` for a record that no store of this
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


def from_packed_changelog(spec: StoreSpec, keys: Packed, values: Packed, times_ms: Any) -> PackedPuts | None:
    """As ``from_changelog_columns``, without an object per record: columns in buffers, ``times_ms`` as an int64 array; a key
    stands there as often as it was logged. ``None``: only ``from_changelog_columns`` can do it, or say what is wrong."""
    if (native := compiled()) is None or spec.kind not in ("key_value", "window") or keys[2] is not None:
        return None
    entries, ends, _ = keys
    if spec.kind == "window":
        if (made := native.window_key_rows(*keys)) is None:
            return None
        entries, ends = made[0], memoryview(made[1]).cast("q")
    stored, stored_ends, absent = native.stamp_rows(*values, times_ms)
    return PackedPuts(entries, ends, stored, memoryview(stored_ends).cast("q"), absent)


def _segmented(spec: StoreSpec, entries: dict[bytes, bytes | None]) -> list[tuple[bytes, bytes | None]]:
    """The entries of a segmented store: prefixes the segment, which follows from the time in the key."""
    pack, unpack, segment_ms = _TIMESTAMP.pack, _TIMESTAMP.unpack_from, spec.segment_ms
    back, cut = _SUFFIX_LENGTHS[spec.kind], -4 if spec.kind == "key_window" else None
    return [(pack(unpack(k, len(k) - back)[0] // segment_ms) + k[:cut], v) for k, v in entries.items()]


def _versions(
    spec: StoreSpec,
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    timestamps_ms: Sequence[int],
) -> list[tuple[bytes, bytes | None]]:
    """The entries of a versioned store: every record is a version; a null value is a version without a row."""
    pack = _TIMESTAMP.pack
    last: dict[bytes, bytes | None] = {}
    for key, value, ts in zip(keys, values, timestamps_ms, strict=True):
        if key is not None:
            last[key + pack(ts)] = pack(ts) + (b"\x00" if value is None else b"\x01" + value)
        elif spec.source_topic is None:
            raise IncompatibleError(_foreign(spec, None))
    return list(last.items())


def chooses(spec: StoreSpec) -> bool:
    """Whether the store takes only some records of its changelog, as a versioned table over its own topic does
    (``History``)."""
    return spec.kind == "versioned" and spec.source_topic is not None


class History:
    """Selects the records of its own topic that a versioned table accepted. It rejected those older than stream time
    minus its history, so a reader of the topic must skip them too. ``stored``: what the store already holds."""

    def __init__(self, spec: StoreSpec, stored: Iterable[tuple[bytes, bytes | None]] = ()) -> None:
        self._watched = chooses(spec)
        self._history_ms = spec.retention_ms or 0
        self._stream_time_ms = -1
        if self._watched:
            self._stream_time_ms = max((_TIMESTAMP.unpack_from(k, len(k) - 8)[0] for k, _ in stored), default=-1)

    def taken(self, keys: Sequence[bytes | None], timestamps_ms: Sequence[int]) -> list[bool] | None:
        """A mask over the next records of the topic; ``None``: all."""
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
