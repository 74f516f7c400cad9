"""Stores as specs and as a bytes interface.

A ``StoreSpec`` is part of a topology: a value. A ``StateBackend`` holds the bytes of all stores of one task and is
written once per commit, atomically, positions included. Two backends exist: memory (the reference model) and RocksDB;
every test of the interface runs on both. Serdes, timestamps and windows live above it, in
``penstock.state.stores.store_view``.

Keys at this interface are the store's own keys without RocksDB's leading byte; values are the stored bytes:

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
from typing import Any, Generic, Literal, NamedTuple, Protocol

from penstock.state.serdes.serde import Serde
from penstock.state.type_parameters import S

StoreKind = Literal["key_value", "window", "key_window", "session", "list", "versioned"]
SEGMENTED: frozenset[StoreKind] = frozenset({"key_window", "session", "list"})


@dataclasses.dataclass(frozen=True)
class StoreSpec(Generic[S]):
    """One store of a topology. ``S``: what a processor gets to see of it, such as ``KeyValueStore[str, int]``.

    ``retention_ms`` (all but key-value stores): what is older than stream time - retention may be dropped.
    ``changelog``: whether its changes go to a changelog topic. ``source_topic``: a table that reads this topic reuses
    it as its changelog, and writes none of its own.
    """

    name: str
    kind: StoreKind
    key_serde: Serde[Any]
    value_serde: Serde[Any]
    changelog: bool = True
    source_topic: str | None = None
    window_size_ms: int | None = None
    retention_ms: int | None = None

    @property
    def segment_ms(self) -> int:
        """How much time one segment holds: half the retention, so that a few segments hold all. 0 for the kinds without
        segments. Stored keys can be read with the ``segment_ms`` that wrote them only."""
        return max((self.retention_ms or 0) // 2, 1) if self.kind in SEGMENTED else 0


class Puts(NamedTuple):
    """Entries as two columns of equal length; a value of ``None`` deletes."""

    keys: Sequence[bytes]
    values: Sequence[bytes | None]

    def listed(self) -> Puts:
        """The same as objects, which it is."""
        return self


class PackedBytes(NamedTuple):
    """Byte strings one after the other: int64 ``ends``, from a 0 on, in the machine's order, and a byte for each of them, 1
    where there is none (no bytes: nowhere)."""

    data: bytes
    ends: bytes
    absent: bytes | None


class PackedPuts(NamedTuple):
    """Entries as two columns of equal length, each as data and int64 ends from a 0 on; none deletes."""

    keys: Any
    key_ends: Any
    values: Any
    value_ends: Any

    def listed(self) -> Puts:
        """The same as objects."""
        return Puts(_cut(self.keys, self.key_ends), _cut(self.values, self.value_ends))


def _cut(data: Any, ends: Any) -> list[bytes]:
    places = memoryview(ends).cast("B").cast("q").tolist()
    return [bytes(data[start:end]) for start, end in pairwise(places)]


class Unbased(Protocol):
    """Something that counts on what a store holds, and is to be told that."""

    def unbased(self) -> list[bytes]:
        """The keys of which nothing has said what the store holds."""

    def base(self, stored: list[bytes | None]) -> None:
        """What the store holds of the ``unbased`` keys."""

    def base_from(self, known: Any, whole: bool) -> None:
        """What a compiled ``EntryMap`` knows of the ``unbased`` keys; the others are unbased still, unless the map knows the
        ``whole`` store: then they are not in it."""


@dataclasses.dataclass(slots=True)
class StoreWrites:
    """What one commit changes in one store. ``puts``: entries, of which later ones win, ``None`` deletes. ``drop_below``:
    every key below it is dropped (expired windows), after the puts. ``position``: the encoded position record; never
    ``None`` when anything is written."""

    store: str
    puts: Sequence[tuple[bytes, bytes | None]] | Puts | PackedPuts
    position: bytes
    drop_below: bytes | None = None

    def columns(self) -> Puts:
        """The puts as columns."""
        if isinstance(self.puts, Puts | PackedPuts):
            return self.puts.listed()
        return Puts([key for key, _ in self.puts], [value for _, value in self.puts])


class StateBackend(Protocol):
    """The bytes of all stores of one task. Not thread-safe; owned by whoever runs or restores the task."""

    damaged: str | None
    """What was seen when some call raised ``StateCorruptedError`` for damage to what is stored; ``None``: none did. Nothing
    of it is to be used any more."""

    @property
    def keeps_reads(self) -> bool:
        """Whether what was read lately is read again from memory, at no more than the cost of decoding it."""

    def get_many(self, store: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of the keys, in their order; ``None`` where absent."""

    def get_packed(self, store: str, data: Any, ends: Any, skip: int) -> PackedBytes | None:
        """The values of keys, which are given as in ``PackedBytes``, as buffers, none absent; of each value the first
        ``skip`` bytes are left out. ``None``: ask ``get_many``."""

    def base(self, store: str, counts: Unbased) -> None:
        """Say what the store holds of all keys of which ``counts`` does not know it."""

    def is_empty(self, store: str) -> bool:
        """Whether the store certainly has no entries, found out at no more cost than that of a look."""

    def range(
        self, store: str, low: bytes | None, high: bytes | None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Entries with ``low <= key < high`` (``None``: unbounded) in unsigned byte order. Sees a state no older than
        the call; no commit may happen while it is being read."""

    def commit(self, writes: Sequence[StoreWrites]) -> None:
        """Apply all of it or nothing of it. After a crash each store stands at some earlier commit, never between. What
        is raised may be of earlier commits too, which are written out together; after that the backend is only to be
        closed."""

    def position(self, store: str) -> bytes | None:
        """The position of the last commit that touched the store; ``None`` when it was never written."""

    def flush(self, stores: Sequence[str] | None = None) -> None:
        """Make what is committed survive a crash of the machine."""

    def size_bytes(self, store: str) -> int:
        """Approximate size."""

    def close(self) -> None:
        """Release files and locks. Idempotent."""
