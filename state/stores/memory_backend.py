"""The in-memory backend: the reference model that every other backend is tested against.

Plain dictionaries, with a sorted list of keys that is updated when a range is read.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any

from penstock.state.errors import TopologyError
from penstock.state.native import compiled
from penstock.state.stores.store import PackedBytes, StoreSpec, StoreWrites, Unbased


class _Table:
    """One store: entries, position, and the keys in order.

    ``added`` and ``removed`` say how ``data`` differs from ``ordered``; they are disjoint, and empty after
    ``keys()``.
    """

    __slots__ = ("added", "data", "ordered", "position", "removed")

    def __init__(self, data: dict[bytes, bytes], position: bytes | None) -> None:
        self.data = data
        self.position = position
        self.ordered = sorted(data)
        self.added: set[bytes] = set()
        self.removed: set[bytes] = set()

    def put(self, key: bytes, value: bytes) -> None:
        if key not in self.data:
            if key in self.removed:
                self.removed.discard(key)
            else:
                self.added.add(key)
        self.data[key] = value

    def delete(self, key: bytes) -> None:
        if self.data.pop(key, None) is None:
            return
        if key in self.added:
            self.added.discard(key)
        else:
            self.removed.add(key)

    def keys(self) -> list[bytes]:
        if self.removed:
            gone = self.removed
            self.ordered = [k for k in self.ordered if k not in gone]
            self.removed = set()
        if self.added:
            # Two ascending runs, which the sort merges in linear time.
            self.ordered += sorted(self.added)
            self.ordered.sort()
            self.added = set()
        return self.ordered

    def between(self, low: bytes | None, high: bytes | None) -> list[bytes]:
        keys = self.keys()
        start = 0 if low is None else bisect_left(keys, low)
        end = len(keys) if high is None else bisect_left(keys, high)
        return keys[start:end]


@dataclasses.dataclass(slots=True)
class _Flushed:
    """A store's content on the simulated disk."""

    data: dict[bytes, bytes]
    position: bytes | None


class MemoryBackend:
    """``StateBackend`` over dictionaries. Raises ``TopologyError`` for a store that it was not given.

    With ``keep_flushed`` it also models a disk: ``flush`` copies, and ``crash`` goes back to the last copy of
    each store, as a backend without a write-ahead log does. Copies cost time and memory, so this is for
    tests.
    """

    def __init__(self, stores: Sequence[StoreSpec | str], *, keep_flushed: bool = False) -> None:
        names = [s if isinstance(s, str) else s.name for s in stores]
        self._tables: dict[str, _Table] = {name: _Table({}, None) for name in names}
        self._flushed: dict[str, _Flushed] | None = None
        if keep_flushed:
            self._flushed = {name: _Flushed({}, None) for name in names}

    damaged: str | None = None
    """Set by tests."""
    keeps_reads = False
    """Models a database, with slow reads."""

    def get_packed(self, store: str, data: Any, ends: Any, skip: int) -> PackedBytes | None:
        if (native := compiled()) is None:
            return None
        found = self.get_many(store, native.list_rows(data, ends, None))
        return PackedBytes(*native.pack_rows([None if value is None else value[skip:] for value in found]))

    def is_empty(self, store: str) -> bool:
        return not self._table(store).data

    def base(self, store: str, counts: Unbased) -> None:
        counts.base(self.get_many(store, counts.unbased()))

    def get_many(self, store: str, keys: Sequence[bytes]) -> list[bytes | None]:
        return list(map(self._table(store).data.get, keys))

    def range(
        self, store: str, low: bytes | None, high: bytes | None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        table = self._table(store)
        keys = table.between(low, high)
        if reverse:
            keys.reverse()
        data = table.data
        return ((k, data[k]) for k in keys)

    def commit(self, writes: Sequence[StoreWrites]) -> None:
        tables = [self._table(w.store) for w in writes]
        for table, write in zip(tables, writes, strict=True):
            for key, value in zip(*write.columns(), strict=True):
                if value is None:
                    table.delete(key)
                else:
                    table.put(key, value)
            if write.drop_below is not None:
                for key in table.between(None, write.drop_below):
                    table.delete(key)
            table.position = write.position

    def position(self, store: str) -> bytes | None:
        return self._table(store).position

    def flush(self, stores: Sequence[str] | None = None) -> None:
        names = list(self._tables) if stores is None else stores
        for name in names:
            table = self._table(name)
            if self._flushed is not None:
                self._flushed[name] = _Flushed(dict(table.data), table.position)

    def crash(self) -> None:
        """Lose what was committed after each store's last flush. Only with ``keep_flushed``."""
        if self._flushed is None:
            raise ValueError("crash() needs MemoryBackend(..., keep_flushed=True): nothing was kept to go back to")
        for name, kept in self._flushed.items():
            self._tables[name] = _Table(dict(kept.data), kept.position)

    def reset(self, store: str) -> None:
        """Drop everything of one store, its position included."""
        self._table(store)
        self._tables[store] = _Table({}, None)
        if self._flushed is not None:
            self._flushed[store] = _Flushed({}, None)

    def size_bytes(self, store: str) -> int:
        return sum(len(k) + len(v) for k, v in self._table(store).data.items())

    def close(self) -> None:
        """Does nothing: nothing is open."""

    def _table(self, store: str) -> _Table:
        try:
            return self._tables[store]
        except KeyError:
            raise TopologyError(
                f"store {store!r} is not among this task's stores {sorted(self._tables)}; declare it in the topology"
            ) from None
