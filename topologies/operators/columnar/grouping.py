"""Group the records of a batch by store key: the entries that an aggregation touches, each once."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import numpy as np

from penstock.state.serdes.serde import Serde
from penstock.topologies.columnar.column_parts import Keyed, keyed, keyed_lists, nulls_of
from penstock.topologies.columnar.kernels import Groups, grouped, highest, summed
from penstock.topologies.operator_api.batch import ColumnBatch
from penstock.topologies.operator_api.columns import Ints, NumberColumn

_START = struct.Struct(">q")
_FAR = 1 << 62


class Entries(NamedTuple):
    """Records by entry. ``groups.numbers`` is the entry of each record; ``store_keys`` the key of each entry, in the
    order of their first record."""

    groups: Groups
    store_keys: list[bytes]
    by_key: Keyed
    key_numbers: list[int] | None
    """The group in ``by_key`` of each entry; ``None``: they are the entries."""

    @property
    def keys(self) -> list[Any]:
        """The record key of each entry."""
        keys = self.by_key.keys
        return keys if self.key_numbers is None else [keys[i] for i in self.key_numbers]

    @property
    def entries(self) -> Entries:
        """These: a batch touches what it touches once, or as ``Spread`` has it."""
        return self

    def counts(self) -> Ints:
        """How many records each entry has."""
        return np.bincount(self.groups.numbers, minlength=len(self.store_keys))

    def sums(self, batch: ColumnBatch, *, of_values: bool) -> list[int] | None:
        """How many records each entry has, or the sum of their values, which are numbers of records. ``None``, also for a
        sum of more than 64 bits: row by row."""
        return sums_of(batch, self.groups) if of_values else self.counts().tolist()

    def records(self) -> tuple[None, Entries]:
        """The records touch one entry each."""
        return None, self

    def latest(self, times: Ints) -> Ints:
        """The highest timestamp of each entry's records."""
        return highest(self.groups, times)


def numbers_of(batch: ColumnBatch) -> Ints | None:
    """The values, where they are numbers of records. ``None``: row by row."""
    column = batch.value_column
    if not isinstance(column, NumberColumn) or column.array.dtype != np.int64 or column.nulls is not None:
        return None
    return column.array


def sums_of(batch: ColumnBatch, groups: Groups) -> list[int] | None:
    """The sum of each group's values, which are numbers of records; ``None``, also for a sum of more than 64 bits: row by
    row."""
    numbers = numbers_of(batch)
    sums = None if numbers is None else summed(groups, numbers)
    return None if sums is None else sums.tolist()


def entries_of(batch: ColumnBatch, serde: Serde[Any]) -> Entries | None:
    """Records by key. ``None``: row by row."""
    column = batch.key_column
    if column is None:
        found = keyed_lists(batch.keys, serde)
    else:
        found = None if nulls_of(column) is not None else keyed(column, serde)
    return None if found is None else Entries(found.groups, found.store_keys, found, None)


def window_entries(batch: ColumnBatch, serde: Serde[Any], starts: Ints, size_ms: int) -> Entries | None:
    """Records by window start, none of which is below 0, and key. ``None``: row by row."""
    by_key = entries_of(batch, serde)
    if by_key is None:
        return None
    low, high = int(starts.min()), int(starts.max())
    windows, keys = (high - low) // size_ms + 1, len(by_key.store_keys)
    if windows == 1:
        prefix = _START.pack(low)
        return Entries(by_key.groups, [prefix + k for k in by_key.store_keys], by_key.by_key, None)
    if windows * keys >= _FAR:
        return None
    groups = grouped((starts - low) // size_ms * keys + by_key.groups.numbers, windows * keys)
    window_numbers, key_numbers = np.divmod(groups.codes, keys)
    prefixes = [_START.pack(low + w * size_ms) for w in window_numbers.tolist()]
    numbers: list[int] = key_numbers.tolist()
    store_keys = [p + by_key.store_keys[k] for p, k in zip(prefixes, numbers, strict=True)]
    return Entries(groups, store_keys, by_key.by_key, numbers)
