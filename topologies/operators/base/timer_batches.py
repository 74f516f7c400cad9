"""The timers of a queue, set and taken by operators that work on whole batches.

What has changed since the last commit is held back in memory, and put into the queue's store, in the order of the
changes, at the commit or before anybody else uses the store. A timer that is set and deleted in between leaves no trace,
as with ``TimerQueue.set`` of new ones. A timer is here its key in the store: time (8, big-endian), then payload.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter

from penstock.state.stores.store_view import KeyValueStoreView
from penstock.topologies.operators.base.store_timers import LAST_MS, TimerQueue

_TIME = struct.Struct(">q")
_HELD_MAX = 1 << 16
"""With more changes than this the store gets them at once, and sees that it needs a commit."""


class TimerBatches:
    """See the module. ``state``: the store of the queue, of which nobody else sets or deletes timers."""

    def __init__(self, queue: TimerQueue, state: KeyValueStoreView) -> None:
        self._queue = queue
        self._state = state
        self._changes: dict[bytes, bool] = {}
        """What is held back, in order: timers that were set (true), and timers of the store that were deleted."""
        self._made: list[list[bytes]] = []
        """The timers that were set, ascending, batch by batch. Some may have been deleted since."""
        self._low_ms = 0
        """No timer of the store is earlier, except deleted ones."""

    def used_by_rows(self) -> None:
        """Timers were set and taken by the queue itself."""
        self._low_ms = min(self._low_ms, self._queue.low_ms)

    def upcoming(self, until_ms: int) -> list[bytes]:
        """The timers up to and including ``until_ms``, ascending. They are not taken."""
        if until_ms < 0:
            return []
        high = _TIME.pack(min(until_ms, LAST_MS - 1) + 1)
        changes = self._changes
        own = [key for some in self._made if some[0] < high for key in some[: bisect_left(some, high)]]
        found = [key for key in own if key in changes]
        stored = self._stored(high) if until_ms >= self._low_ms else []
        found += [key for key in stored if key not in changes]
        found.sort()
        return found

    def _stored(self, high: bytes) -> list[bytes]:
        """Those of the store that come before a key."""
        found: list[bytes] = []
        self._state.defer(None)
        for key, _, _ in self._state.range(_TIME.pack(self._low_ms)):
            if key >= high:
                self._low_ms = self._low_ms if found else _TIME.unpack_from(key)[0]
                break
            found.append(key)
        else:
            self._low_ms = self._low_ms if found else _TIME.unpack_from(high)[0]
        self._hold()
        return found

    def there(self, keys: Sequence[bytes]) -> list[bytes]:
        """Those of these timers that are set."""
        changes = self._changes
        unknown = [key for key in keys if key not in changes]
        stored: dict[bytes, bool] = {}
        if unknown:
            self._state.defer(None)
            entries = self._state.entries_of(unknown)
            stored = {key: entry is not None for key, entry in zip(unknown, entries, strict=True)}
            self._hold()
        return [key for key in keys if (stored[key] if key in stored else changes[key])]

    def apply(self, changes: Iterable[tuple[bytes, bool]], taken_until_ms: int) -> None:
        """Set timers that are not set (true), and delete timers that are. ``taken_until_ms``: all timers up to then are
        among these."""
        held = self._changes
        made: list[bytes] = []
        for key, is_set in changes:
            if is_set:
                held[key] = True
                made.append(key)
            elif held.pop(key, False):
                pass
            else:
                held[key] = False
        if taken_until_ms >= 0:
            self._take(taken_until_ms)
        if made:
            made.sort()
            self._made.append(made)
        if len(held) > _HELD_MAX:
            self.settle()
        else:
            self._hold()

    def _take(self, until_ms: int) -> None:
        high = _TIME.pack(min(until_ms, LAST_MS - 1) + 1)
        kept = [some if some[0] >= high else some[bisect_left(some, high) :] for some in self._made]
        self._made = [some for some in kept if some]
        self._low_ms = max(self._low_ms, min(until_ms + 1, LAST_MS))

    def _hold(self) -> None:
        if self._changes:
            self._state.defer(self.settle)
            self._queue.look_from(self._first_ms())

    def _first_ms(self) -> int:
        """No timer is earlier."""
        made = min((some[0] for some in self._made), default=None)
        return self._low_ms if made is None else min(self._low_ms, _TIME.unpack_from(made)[0])

    def settle(self) -> None:
        """Put what is held back into the store."""
        self._state.defer(None)
        self._low_ms = self._first_ms()
        changes, self._changes, self._made = self._changes, {}, []
        for is_set, some in groupby(changes.items(), itemgetter(1)):
            self._queue.put_all([key for key, _ in some], is_set=is_set)
        self._queue.look_from(self._low_ms)
