"""Stores as specs and as a bytes interface.

A ``StoreSpec`` is part of a topology: a value. A ``StateBackend`` holds the bytes of all stores of one task and is
written once per commit, atomically, positions included. ``penstock.testing.StateBackendContract`` says by tests what
it promises; the in-memory backend is the reference model. Serdes, timestamps and windows are handled above it, in
``penstock.state.stores.store_view``.

Keys and values at this interface are the stored bytes:

* ``key_value``: key = key bytes; value = timestamp (8, big-endian, signed) | value bytes.
* ``window``: key = window start (8, big-endian) | key bytes, so that expiry is one range; value as above.
* ``key_window``, ``session``, ``list``: key = segment (8) | key bytes | time (8) | suffix, the time being the window's
  start, the session's end, the record's timestamp, and the suffix nothing, the session's start (8), a sequence number
  (4). The segment is time // ``segment_ms``, so that one key's entries within a time range are a few short ranges, and
  expiry is one. Value as above.
* ``versioned``: key = key bytes | valid from (8); value = timestamp (8) | 1 | value bytes, or timestamp | 0 for a
  version that says that the row was gone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

from penstock.state.serdes.serde import Serde
from penstock.state.type_parameters import S

StoreKind = Literal["key_value", "window", "key_window", "session", "list", "versioned"]
SEGMENTED: frozenset[StoreKind] = frozenset({"key_window", "session", "list"})


@dataclasses.dataclass(frozen=True)
class StoreSpec(Generic[S]):
    """One store of a topology. ``S``: the type that a processor sees, such as ``KeyValueStore[str, int]``.

    ``retention_ms`` (all but key-value stores): entries older than stream time - retention may be dropped; those of a join
    on watermarks when the watermark has passed them by that much.
    ``changelog``: whether its changes go to a changelog topic. ``source_topic``: a table that reads this topic uses it
    as its changelog and writes no other. ``as_bytes``: entries stay bytes in memory even if values are immutable, for
    operators that pass most of them on without reading them; so they do if any operator that declares the store says so.
    """

    name: str
    kind: StoreKind
    key_serde: Serde[Any]
    value_serde: Serde[Any]
    changelog: bool = True
    source_topic: str | None = None
    window_size_ms: int | None = None
    retention_ms: int | None = None
    as_bytes: bool = dataclasses.field(default=False, compare=False)

    @property
    def segment_ms(self) -> int:
        """The length of a segment: half the retention, so that there are few. 0 for kinds without segments. Stored keys
        can only be read with the ``segment_ms`` that wrote them."""
        return max((self.retention_ms or 0) // 2, 1) if self.kind in SEGMENTED else 0


class Puts(NamedTuple):
    """Entries as two columns of equal length; a value of ``None`` deletes."""

    keys: Sequence[bytes]
    values: Sequence[bytes | None]

    def listed(self) -> Puts:
        """The entries as objects: this object itself."""
        return self


class PackedBytes(NamedTuple):
    """Byte strings in one buffer: int64 ``ends`` in native byte order, beginning with 0, and one null byte each, 1 for
    absent (no null bytes: none is absent)."""

    data: bytes
    ends: bytes
    absent: bytes | None


class PackedPuts(NamedTuple):
    """Entries as two columns of equal length, each as data and int64 places of its values' ends, before them the place
    where the first begins. ``absent``: a byte per entry, 1 deletes; ``None``: none does."""

    keys: Any
    key_ends: Any
    values: Any
    value_ends: Any
    absent: Any = None

    def listed(self) -> Puts:
        """The entries as objects."""
        values: list[bytes | None] = [*cut(self.values, self.value_ends)]
        if self.absent is not None:
            values = [None if gone else value for value, gone in zip(values, bytes(self.absent), strict=True)]
        return Puts(cut(self.keys, self.key_ends), values)


class StampedPuts(NamedTuple):
    """Entries as columns of equal length, each key behind a prefix, if there are any, and each value behind a time: int64
    arrays here and 8 bytes, big-endian, there. Keys and values as in ``PackedPuts``."""

    prefixes: Any
    keys: Any
    key_ends: Any
    times: Any
    values: Any
    value_ends: Any

    def listed(self) -> Puts:
        """The entries as objects."""
        cut_keys = cut(self.keys, self.key_ends)
        keys = cut_keys if self.prefixes is None else _behind(self.prefixes, cut_keys)
        return Puts(keys, _behind(self.times, cut(self.values, self.value_ends)))


class PackedChanges(NamedTuple):
    """The writes of one commit to a store, none of which deletes if it has a changelog of its own. ``keys`` and ``values``:
    of the changelog's records, each as data and int64 offsets; ``times``: theirs, an int64 array."""

    puts: PackedPuts | StampedPuts
    keys: tuple[Any, Any]
    values: tuple[Any, Any]
    times: Any


def cut(data: Any, ends: Any) -> list[bytes]:
    """The byte strings of a column, given as in ``PackedPuts``."""
    places = memoryview(ends).cast("B").cast("q").tolist()
    return [bytes(data[start:end]) for start, end in pairwise(places)]


def _behind(numbers: Any, texts: list[bytes]) -> list[bytes]:
    return [number.to_bytes(8, "big", signed=True) + text for number, text in zip(numbers.tolist(), texts, strict=True)]


class Unbased(Protocol):
    """A consumer that needs the stored values of its keys."""

    def unbased(self) -> list[bytes]:
        """The keys whose stored values are still unknown to it."""

    def base(self, stored: list[bytes | None]) -> None:
        """Receive the stored values of the ``unbased`` keys."""

    def base_from(self, known: Any, whole: bool) -> None:
        """Take what a compiled ``EntryMap`` knows of the ``unbased`` keys. The others stay unbased, unless the map
        knows the ``whole`` store: then they are absent."""


StoreEntries: TypeAlias = Sequence[tuple[bytes, bytes | None]] | Puts | PackedPuts | StampedPuts
"""Entries of a store; of one key's, the last wins, and ``None`` deletes."""


def columns_of(entries: StoreEntries) -> Puts:
    """The entries as two columns of objects."""
    if isinstance(entries, Puts | PackedPuts | StampedPuts):
        return entries.listed()
    return Puts([key for key, _ in entries], [value for _, value in entries])


@dataclasses.dataclass(slots=True)
class StoreWrites:
    """The changes of one commit to one store. ``drop_below``: drop
    every key below it (expired windows), after the puts. ``position``: the encoded position record; never ``None`` if
    anything is written."""

    store: str
    puts: StoreEntries
    position: bytes
    drop_below: bytes | None = None

    def columns(self) -> Puts:
        """The puts as columns."""
        return columns_of(self.puts)


@runtime_checkable
class RangesAtOnce(Protocol):
    """A backend that reads many short ranges faster at once than one by one."""

    def ranges(self, store: str, bounds: Sequence[tuple[bytes, bytes]]) -> list[list[tuple[bytes, bytes]]]:
        """The entries of each range, as of ``StateBackend.range``."""


class StateBackend(Protocol):
    """The bytes of all stores of one task. Not thread-safe: the thread that runs or restores the task owns it."""

    damaged: str | None
    """The damage for which a call raised ``StateCorruptedError``; ``None``: no damage. A damaged backend must not be
    used any more."""

    @property
    def keeps_reads(self) -> bool:
        """Whether recently read values are kept in memory, so that reading them again costs only the decoding."""

    def get_many(self, store: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of the keys, in their order; ``None`` where absent."""

    def get_packed(self, store: str, data: Any, ends: Any, skip: int) -> PackedBytes | None:
        """The values of keys, as buffers. Keys are packed as in ``PackedBytes``, none absent; the first ``skip`` bytes
        of each value are cut off. ``None``: not supported, use ``get_many``."""

    def base(self, store: str, counts: Unbased) -> None:
        """Give ``counts`` the stored values that it does not know."""

    def is_empty(self, store: str) -> bool:
        """Whether the store certainly has no entries; must be as cheap as one lookup."""

    def range(
        self, store: str, low: bytes | None, high: bytes | None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Entries with ``low <= key < high`` (``None``: unbounded) in unsigned byte order. Sees a state no older than
        the call; do not commit while reading it."""

    def commit(self, writes: Sequence[StoreWrites]) -> None:
        """Apply all of it or nothing. After a crash each store is at some earlier commit, never in between. An error
        may also come from earlier commits, which are written out together; after an error only close the backend."""

    def position(self, store: str) -> bytes | None:
        """The position of the last commit that touched the store; ``None`` if it was never written."""

    def flush(self, stores: Sequence[str] | None = None) -> None:
        """Make committed data survive a crash of the machine."""

    def reset(self, store: str) -> None:
        """Drop everything of one store, its position included, as if it had never been written."""

    def size_bytes(self, store: str) -> int:
        """Approximate size."""

    def close(self) -> None:
        """Release files and locks. Idempotent."""
