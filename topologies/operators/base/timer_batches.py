"""The timers of a queue, set and taken by operators that work on whole batches.

What has changed since the last commit is held back in memory, and put into the queue's store, in the order of the
changes, at the commit or before anybody else uses the store. A new timer that is set and deleted in between leaves no
trace, as with ``TimerQueue.set``. A timer is here its key in the store: time (8, big-endian), then payload.

In memory are all timers below ``read_to``, so that the store is read in blocks and not once per batch, and all that the
store does not have yet.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import chain, islice

from penstock.state.stores.store_view import KeyValueStoreView
from penstock.topologies.operators.base.store_timers import LAST_MS, TimerQueue

_TIME = struct.Struct(">q")
_BEHIND_ALL = b"\xff"
_HELD_MAX = 1 << 16
"""With more changes than this the store gets them at once, and sees that it needs a commit."""
_KNOWN_MAX = 1 << 16
"""How many timers that the store has stay in memory."""
_BLOCK = 1 << 13
"""How many timers are read at once."""
_PARTS_MAX = 64


class TimerBatches:
    """See the module. ``state``: the store of the queue, of which nobody else sets or deletes timers."""

    def __init__(self, queue: TimerQueue, state: KeyValueStoreView) -> None:
        self._queue = queue
        self._state = state
        self._changes: dict[bytes, bool] = {}
        """The changes that are held back, in order: timers that were set (true), and deleted timers of the store."""
        self._known: list[list[bytes]] = []
        """The timers in memory, in ascending parts, none of which is empty."""
        self._deleted: set[bytes] = set()
        """Those of them that were deleted."""
        self._again: set[bytes] = set()
        """Timers that were set as new, and that the store has: see ``TimerQueue.found_until``."""
        self._read_to = b""
        self._low_ms = 0
        """No timer is earlier."""

    def used_by_rows(self) -> None:
        """Timers were set and taken by the queue itself, after ``settle``."""
        self._low_ms = min(self._low_ms, self._queue.low_ms)
        self._known, self._read_to = [], b""
        self._deleted.clear()

    # -- reading -------------------------------------------------------------------------------------------------

    def upcoming(self, until_ms: int) -> list[bytes]:
        """The timers up to and including ``until_ms``, ascending. They are not taken."""
        if until_ms < 0:
            return []
        high = _behind(until_ms)
        if self._read_to < high:
            self._read(high)
        parts = [part[: bisect_left(part, high)] for part in self._known if part[0] < high]
        found = sorted(chain.from_iterable(parts))
        # a timer may be here twice: where a record's number was given again, because the first one was lost
        return [key for key in dict.fromkeys(found) if key not in self._deleted]

    def _read(self, high: bytes) -> None:
        """Read from the store until all timers below ``high`` are in memory."""
        changes = self._changes
        self._state.defer(None)
        while self._read_to < high:
            low = max(self._read_to, _TIME.pack(self._low_ms))
            block = [key for key, _, _ in islice(self._state.range(low), _BLOCK)]
            self._read_to = _BEHIND_ALL if len(block) < _BLOCK else block[-1] + b"\x00"
            self._add([key for key in block if key not in changes])
        self._hold()

    def _add(self, keys: list[bytes]) -> None:
        """Keep timers, ascending, in memory."""
        if keys:
            self._known.append(keys)
        if len(self._known) > _PARTS_MAX:
            self._known = [sorted(chain.from_iterable(self._known))]

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

    # -- writing -------------------------------------------------------------------------------------------------

    def apply(self, changes: Iterable[tuple[bytes, bool]], taken_until_ms: int) -> None:
        """Set new timers (true), and delete timers that are set. ``taken_until_ms``: all timers up to then are among these,
        and none is set for then."""
        changes = list(changes)
        if old := [key for key, is_set in changes if is_set and key <= self._queue.found_until]:
            self._again.update(self.there(old))
        held = self._changes
        made: list[bytes] = []
        for key, is_set in changes:
            if is_set:
                if held.get(key) is False:
                    self._again.add(key)
                held[key] = True
                made.append(key)
                self._deleted.discard(key)
                continue
            if key in self._again or held.pop(key, None) is None:
                held[key] = False
            self._deleted.add(key)
        made.sort()
        self._add(made)
        if taken_until_ms >= self._low_ms:
            self._take(taken_until_ms)
        if len(held) > _HELD_MAX:
            self.settle()
        else:
            self._hold()

    def _take(self, until_ms: int) -> None:
        high = _behind(until_ms)
        kept = [part if part[0] >= high else part[bisect_left(part, high) :] for part in self._known]
        self._known = [part for part in kept if part]
        self._deleted = {key for key in self._deleted if key >= high}
        self._low_ms = min(until_ms + 1, LAST_MS)

    def _hold(self) -> None:
        if self._changes:
            self._state.defer(self.settle)
            self._queue.look_from(self._low_ms)

    def settle(self) -> None:
        """Put what is held back into the store."""
        self._state.defer(None)
        changes, self._changes = self._changes, {}
        self._again.clear()
        self._queue.change_in_order(changes)
        self._queue.look_from(self._low_ms)
        self._forget()

    def _forget(self) -> None:
        """Keep only timers below ``read_to``, and not too many."""
        known = sorted(chain.from_iterable(self._known)) if sum(map(len, self._known)) > _KNOWN_MAX else None
        if known is not None:
            self._known, self._read_to = [known], min(self._read_to, known[_KNOWN_MAX // 2])
        if self._read_to == _BEHIND_ALL:
            return
        below = (part[: bisect_left(part, self._read_to)] for part in self._known)
        self._known = [part for part in below if part]
        self._deleted = {key for key in self._deleted if key < self._read_to}


def _behind(until_ms: int) -> bytes:
    """Above all timers up to then."""
    return _TIME.pack(until_ms + 1) if until_ms < LAST_MS else _BEHIND_ALL
