"""A store whose changelog is the topic that it is filled from. Between two commits it holds the log's bytes as they came: no
key or value becomes an object, from the records to the database.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.state.stores.held_changes import HoldingStoreView
from penstock.state.stores.store import PackedChanges, PackedPuts, StampedPuts, StateBackend, StoreSpec, cut

_STAMP_BYTES = 8
_CACHED_PER_ROW = 4
"""Beginning to hold rows forgets the cached entries. If there are more of them than this for each new row, the rows go into
the entries."""


class Rows(NamedTuple):
    """A column of bytes: value i is ``data[offsets[i]:offsets[i + 1]]``, or ``None`` where ``nulls`` has a 1; ``None``: none
    is null."""

    data: Any
    offsets: NDArray[np.int64]
    nulls: NDArray[np.uint8] | None


class LoggedRows:
    """Keys and values in the order of their records; of several with one key the last one counts."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._keys, self._values = _Joined(), _Joined()
        self._times: list[NDArray[np.int64]] = []

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def used_bytes(self) -> int:
        """Memory taken."""
        return self._keys.used_bytes + self._values.used_bytes + 8 * len(self)

    def add(self, keys: Rows, values: Rows, times: NDArray[np.int64]) -> None:
        """Add records. No key is null; a null value deletes."""
        self._keys.add(keys)
        self._values.add(values)
        self._times.append(times)

    def times(self) -> NDArray[np.int64]:
        """The records' timestamps, in milliseconds."""
        return np.concatenate(self._times)

    def puts(self) -> StampedPuts | PackedPuts:
        """The records as entries of a store, one after the other."""
        keys, values, times = self._keys.joined(), self._values.joined(), self.times()
        if values.nulls is None:
            return StampedPuts(None, keys.data, keys.offsets, times, values.data, values.offsets)
        data, offsets = _stamped(values, values.nulls, times)
        return PackedPuts(keys.data, keys.offsets, data, offsets, values.nulls)

    def listed(self) -> tuple[list[bytes], list[bytes | None], list[int]]:
        """The records' keys, values and timestamps as objects."""
        keys, values = self._keys.joined(), self._values.joined()
        listed: list[bytes | None] = [*cut(values.data, values.offsets)]
        if values.nulls is not None:
            listed = [None if null else value for value, null in zip(listed, values.nulls.tolist(), strict=True)]
        return cut(keys.data, keys.offsets), listed, self.times().tolist()


class _Joined:
    """Columns of bytes, one behind the other."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._rows = 0
        self._ends: list[NDArray[np.int64]] = [np.zeros(1, np.int64)]
        self._nulls: list[NDArray[np.uint8]] = []
        self._any_null = False

    def __len__(self) -> int:
        return self._rows

    @property
    def used_bytes(self) -> int:
        """Memory taken."""
        return len(self._data) + 9 * self._rows

    def add(self, column: Rows) -> None:
        """Add a column, which may then change."""
        rows = len(column.offsets) - 1
        low, high = int(column.offsets[0]), int(column.offsets[-1])
        self._ends.append(column.offsets[1:] + (len(self._data) - low))
        self._data += memoryview(column.data)[low:high]
        self._nulls.append(np.zeros(rows, np.uint8) if column.nulls is None else column.nulls.copy())
        self._any_null |= column.nulls is not None and bool(column.nulls.any())
        self._rows += rows

    def joined(self) -> Rows:
        """All of them."""
        return Rows(self._data, np.concatenate(self._ends), np.concatenate(self._nulls) if self._any_null else None)


def _stamped(
    values: Rows, nulls: NDArray[np.uint8], times: NDArray[np.int64]
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Values behind their times, as a store has them; nothing for a null. Returns data and offsets."""
    there = nulls == 0
    offsets = np.zeros(len(nulls) + 1, np.int64)
    np.cumsum(np.where(there, np.diff(values.offsets) + _STAMP_BYTES, 0), out=offsets[1:])
    data = np.empty(offsets[-1], np.uint8)
    stamps = (offsets[:-1][there][:, None] + np.arange(_STAMP_BYTES)).ravel()
    data[stamps] = times[there].astype(">i8").view(np.uint8)
    of_values = np.ones(len(data), np.bool_)
    of_values[stamps] = False
    data[of_values] = np.frombuffer(values.data, np.uint8)
    return data, offsets


class LoggedStoreView(HoldingStoreView):
    """A view of rows that are stored as the log has them."""

    def __init__(self, spec: StoreSpec, backend: StateBackend) -> None:
        super().__init__(spec, backend, None)
        self.held: LoggedRows = LoggedRows()

    def keep(self, keys: Rows, values: Rows, times: NDArray[np.int64]) -> bool:
        """Put records, as ``LoggedRows.add`` takes them. ``False``: nothing was put; use ``put_raw``, because entries are
        uncommitted, or too many are in memory."""
        if self.dirty or self.shown or self._floor is not None:
            return False
        if not len(self.held):
            if len(self.entries) + len(self._old) > _CACHED_PER_ROW * len(times):
                return False
            self.begin()
            self.defer(self._settle)
        self.held.add(keys, values, times)
        return True

    def _settle(self) -> None:
        """Move the records into the entries."""
        keys, raw, times = self.held.listed()
        self.held.clear()
        values = [None if data is None else self._decode(data) for data in raw] if self.immutable else []
        self.put_raw(keys, raw, values, times)

    # -- commit --------------------------------------------------------------------------------------------------

    def packed_changes(self) -> PackedChanges | None:
        if not len(self.held):
            return None
        puts = self.held.puts()
        return PackedChanges(puts, (puts.keys, puts.key_ends), (puts.values, puts.value_ends), self.held.times())
