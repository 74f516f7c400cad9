"""The write buffer of a database: committed entries and positions that are not in the database yet.

A key that is changed by every commit reaches the database once per write-out instead of once per commit. A key that is
put only once costs as much to sort here as in the database, but larger files make the database merge less often.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from penstock.state.stores.entry_cache import EntryMap
from penstock.state.stores.store import PackedPuts, StampedPuts, StoreEntries, StoreWrites, columns_of

_PART = 8_192


def put_entries(entries: EntryMap, puts: StoreEntries) -> None:
    """Put entries into a map, as columns where both sides can."""
    put_rows, put_stamped = getattr(entries, "put_rows", None), getattr(entries, "put_stamped", None)
    if isinstance(puts, PackedPuts) and put_rows is not None:
        put_rows(*puts)
    elif isinstance(puts, StampedPuts) and put_stamped is not None:
        put_stamped(*puts)
    elif (columns := columns_of(puts)).keys:
        entries.put_many(*columns)


def merged(
    stored: Iterator[tuple[bytes, bytes]], keys: list[bytes], values: list[bytes | None], *, reverse: bool
) -> Iterator[tuple[bytes, bytes]]:
    """The entries of a range of the database under those of the buffer, which are given by ascending key; ``None``
    deletes."""
    if (first_stored := next(stored, None)) is None:
        if reverse:
            keys, values = keys[::-1], values[::-1]
        for key, own in zip(keys, values, strict=True):
            if own is not None:
                yield key, own
        return
    above = dict(zip(keys, values, strict=True))
    left = list(reversed(keys)) if not reverse else list(keys)
    for key, value in chain((first_stored,), stored):
        while left and (left[-1] > key if reverse else left[-1] < key):
            first = left.pop()
            if (own := above[first]) is not None:
                yield first, own
        if key not in above:
            yield key, value
    while left:
        first = left.pop()
        if (own := above[first]) is not None:
            yield first, own


class StoreBuffer:
    """The writes of one store that are not in the database yet. ``position``: of the last commit; ``None``: the
    database has it. ``dropped_below``: keys below it count as dropped from the database, not from ``entries``.
    ``began_empty``: whether the database held nothing of the store when ``entries`` was empty; a caller that knows sets
    it."""

    __slots__ = ("began_empty", "dropped_below", "entries", "position")

    def __init__(self, entries: EntryMap) -> None:
        self.entries = entries
        self.began_empty = False
        self.position: bytes | None = None
        self.dropped_below: bytes | None = None

    @property
    def changed(self) -> bool:
        """Whether the database differs from the store."""
        return self.dropped_below is not None or len(self.entries) > 0

    @property
    def whole(self) -> bool:
        """Whether a key unknown to ``entries`` is certainly absent: everything ever stored came through here, and
        nothing was forgotten. Then the database, which is slow to report a missing key, need not be asked."""
        return self.began_empty and not self.entries.forgot

    def commit(self, write: StoreWrites) -> None:
        """One commit: the entries, then the drop."""
        put_entries(self.entries, write.puts)
        drop_below = write.drop_below
        if drop_below is not None:
            self.entries.forget_below(drop_below)
            if self.dropped_below is None or drop_below > self.dropped_below:
                self.dropped_below = drop_below
        self.position = write.position

    def parts(self, prefix: bytes) -> Iterator[tuple[list[bytes], list[bytes | None]]]:
        """The written entries, by key, in parts, so that not all of them become Python objects at once."""
        for start in range(0, self.entries.sort_written(), _PART):
            yield self.entries.written_part(prefix, start, start + _PART)

    def settle(self) -> None:
        """Mark everything as stored in the database."""
        self.entries.settle()
        self.position = self.dropped_below = None

    def clear(self) -> None:
        """Mark store and database as empty."""
        self.entries.clear()
        self.began_empty = True
        self.position = self.dropped_below = None
