"""Overlapping windows on columns: records of one key with the same windows are grouped, and only the groups' results
are spread over the windows.

Timestamps of one pane, which is as long as the greatest common divisor of size and advance, have the same windows.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import numpy as np

from penstock.state.serdes.serde import Serde
from penstock.topologies.columnar.kernels import Groups, grouped, highest, summed
from penstock.topologies.operator_api.batch import ColumnBatch
from penstock.topologies.operator_api.columns import Column, Ints, Mask, NumberColumn, Places
from penstock.topologies.operators.columnar.grouping import Entries, entries_of, sums_of
from penstock.topologies.windows import HoppingWindows

_START = struct.Struct(">q")
_FAR = 1 << 62
_SPREAD_MAX = 1 << 20


class Opened(NamedTuple):
    """The windows of each record that are still open: ``counts`` (none: 0 or less) from ``firsts`` on, an advance apart.
    ``outside``: it has no window at all."""

    firsts: Ints
    counts: Ints
    outside: Mask

    def at(self, places: Places | slice) -> Opened:
        """The windows of some of the records."""
        return Opened(self.firsts[places], self.counts[places], self.outside[places])


def opened(windows: HoppingWindows, times: Ints, floor: int) -> Opened | None:
    """The windows of these timestamps that start at ``floor`` or later. ``None``: row by row."""
    if windows.before_epoch or int(times.min()) < 0 or int(times.max()) >= _FAR:
        return None
    size, advance, offset = windows.size_ms, windows.advance_ms, windows.offset_ms
    into = (times - offset) % advance
    lasts = times - into
    firsts = lasts - (size - into - 1) // advance * advance
    firsts = np.where(firsts < 0, offset % advance, firsts)
    counts = (lasts - firsts) // advance + 1
    closed = np.maximum(-((firsts - floor) // advance), 0)
    return Opened(firsts + closed * advance, counts - closed, counts <= 0)


def most_records(windows: HoppingWindows) -> int:
    """How many records may be spread at once."""
    return max(_SPREAD_MAX // (windows.size_ms // windows.advance_ms + 1), 1)


class Spread(NamedTuple):
    """Records by key and pane, and what their groups touch: for each group ``sizes`` entries, one group's after the
    other's, of which ``of_group`` are the groups and ``entries`` what is known of them as of records."""

    groups: Groups
    sizes: Ints
    of_group: Places
    entries: Entries

    def latest(self, times: Ints) -> Ints:
        """The highest timestamp of each entry's records."""
        return self.entries.latest(highest(self.groups, times)[self.of_group])

    def sums(self, batch: ColumnBatch, *, of_values: bool) -> list[int] | None:
        """See ``Entries``."""
        if of_values:
            found = sums_of(batch, self.groups)
        else:
            found = np.bincount(self.groups.numbers, minlength=len(self.sizes)).tolist()
        sums = None if found is None else summed(self.entries.groups, np.array(found, np.int64)[self.of_group])
        return None if sums is None else sums.tolist()

    def records(self) -> tuple[Places, Entries]:
        """A record for each window of each record, windows in ascending order: whose it is, and their entries."""
        numbers, begins = self.groups.numbers, _begins(self.sizes)
        sizes = self.sizes[numbers]
        at = _begins(sizes)
        places = np.repeat(np.arange(len(numbers)), sizes)
        of_groups = begins[numbers][places] + np.arange(len(places)) - at[places]
        groups = self.entries.groups
        # an entry has its first record where its first group has it
        groups_first = self.of_group[groups.firsts]
        firsts = at[self.groups.firsts[groups_first]] + groups.firsts - begins[groups_first]
        return places, self.entries._replace(groups=Groups(groups.numbers[of_groups], groups.codes, firsts))


def spread(batch: ColumnBatch, serde: Serde[Any], windows: HoppingWindows, found: Opened) -> Spread | None:
    """Records that have an open window each. ``None``: row by row."""
    by_key = entries_of(batch, serde)
    if by_key is None:
        return None
    advance, names = windows.advance_ms, by_key.store_keys
    panes = (batch.times - windows.offset_ms) // windows.slot_ms
    panes -= panes.min()
    bound = (int(panes.max()) + 1) * len(names)
    if bound >= _FAR:
        return None
    groups = grouped(panes * len(names) + by_key.groups.numbers, bound)
    firsts, sizes = found.firsts[groups.firsts], found.counts[groups.firsts]
    of_group = np.repeat(np.arange(len(sizes)), sizes)
    numbers = (firsts - int(firsts.min())) // advance
    numbers = numbers[of_group] + np.arange(len(of_group)) - _begins(sizes)[of_group]
    bound = (int(numbers.max()) + 1) * len(names)
    if bound >= _FAR:
        return None
    entries = grouped(numbers * len(names) + groups.codes[of_group] % len(names), bound)
    window_numbers, key_numbers = (part.tolist() for part in np.divmod(entries.codes, len(names)))
    low = int(firsts.min())
    prefixes = {w: _START.pack(low + w * advance) for w in set(window_numbers)}
    store_keys = [prefixes[w] + names[k] for w, k in zip(window_numbers, key_numbers, strict=True)]
    return Spread(groups, sizes, of_group, Entries(entries, store_keys, by_key.by_key, key_numbers))


def spread_columns(columns: list[Column | None], places: Places) -> list[Column | None]:
    """The columns of what ``Spread.records`` makes of records."""
    return [None if column is None else column.take(places) for column in columns]


def spread_batch(batch: ColumnBatch, places: Places) -> ColumnBatch:
    """The records, without their keys and values."""
    nothing = NumberColumn(batch.orders)
    return ColumnBatch(nothing, nothing, batch.times, batch.orders, batch.headers).pick(places)


def _begins(sizes: Ints) -> Ints:
    """The start of each of these sizes, one after the other."""
    return np.cumsum(sizes) - sizes
