"""A store of the latest, or earliest, value of each key, of which the compiled part keeps those that changed since the last
commit: no key or value becomes an object, from the records that bring it to the changelog and the database.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from penstock.state.serdes.serde import Serde
from penstock.state.stores.held_changes import Held, HoldingStoreView
from penstock.state.stores.packed_lists import Texts
from penstock.state.stores.store import PackedChanges, StampedPuts, StateBackend, StoreSpec, Unbased, cut

TIMED: Final[Serde[tuple[Any, ...]]] = Serde(
    "timed",
    msgspec.msgpack.Encoder().encode,
    msgspec.msgpack.Decoder(tuple[int | bytes, ...]).decode,
    immutable=True,
    exact=tuple,
)
"""``()``, or the time of a value and its bytes. A store with this serde has this view."""


class LatestTexts(Unbased, Held, Protocol):
    """Texts by key, in the order of each key's first record. Compiled."""

    @property
    def any_stored(self) -> bool:
        """Whether a text is one that the store had."""

    def add(self, data: Any, offsets: Any, times: Any, text_data: Any, text_offsets: Any) -> None:
        """Add records: columns of keys and texts without nulls, with int64 times."""

    def texts(self) -> tuple[bytes, bytes, bytes, bytes, bytes]:
        """The keys and their texts, each as data and int64 offsets, and the int64 highest times of their records."""

    def tuples(self) -> tuple[bytes, bytes, bytes, bytes, bytes]:
        """``texts``, each in a tuple with its time, as ``TIMED`` writes it."""


class Changed(NamedTuple):
    """Keys and their texts, each as data and offsets, and the highest times of their records."""

    keys: Texts
    texts: Texts
    times: NDArray[np.int64]


class LatestStoreView(HoldingStoreView):
    """A view of latest or earliest values that uses the compiled part. ``make``: makes it, for the latest or not."""

    def __init__(self, spec: StoreSpec, backend: StateBackend, make: Callable[[bool], LatestTexts]) -> None:
        super().__init__(spec, backend, None)
        self._make = make
        self._later = True
        self.held: LatestTexts = make(True)

    def keep(self, keys: Texts, texts: Texts, times: NDArray[np.int64], *, later: bool) -> bool:
        """Add records, each the text of a value under a key. ``later``: keeps the latest, of several the last one; else the
        earliest, of several the first one. ``False``: nothing was added; use the entries, because some of them are
        uncommitted. Raises ``IncompatibleError`` for a stored value that cannot be read, as does every later use of the
        store, until the changes are discarded."""
        if self.dirty or self.shown or self._floor is not None:
            return False
        if not len(self.held):
            self.begin()
            if later != self._later:
                self._later, self.held = later, self._make(later)
            self.defer(self.settle)
        self.held.add(*keys, np.ascontiguousarray(times), *texts)
        try:
            self._backend.base(self.spec.name, self.held)
        except ValueError:  # entries report which stored value is none
            self.defer(None)
            self.settle()
        return True

    @property
    def any_stored(self) -> bool:
        """Whether a text of ``changed_texts`` is one that the store had."""
        return self.held.any_stored

    def changed_texts(self) -> Changed | None:
        """The changes since the last commit, if all of them are in the compiled part."""
        if not self._all_known():
            return None
        return _columns(self.held.texts())

    def _all_known(self) -> bool:
        if len(self.held) and self.held.unbased():
            self.defer(None)
            self.settle()
        return len(self.held) > 0

    def settle(self) -> None:
        """Move the changes into the entries, after what is stored of those whose stored values the compiled part does not
        know."""
        keys_column, tuples, times_column = _columns(self.held.tuples())
        unknown = set(self.held.unbased())
        if unknown:
            try:
                self.load(unknown)
            except Exception:
                self.defer(self.settle)  # the changes are still there
                raise
        keys, times = cut(*keys_column), times_column.tolist()
        values: list[Any] = list(map(self._decode, cut(*tuples)))
        for place in (i for i, key in enumerate(keys) if key in unknown) if unknown else ():
            if (stored := self.entries[keys[place]]) is None:
                continue
            times[place] = max(times[place], stored[1])
            if stored[0] and self._stays(stored[0][0], values[place][0]):
                values[place] = stored[0]
        self.held.clear()
        self.entries.update(zip(keys, zip(values, times, strict=True), strict=True))
        self.dirty.update(zip(keys, times, strict=True))
        self.settled = keys

    def _stays(self, stored_ms: int, new_ms: int) -> bool:
        return stored_ms > new_ms if self._later else stored_ms <= new_ms

    # -- commit --------------------------------------------------------------------------------------------------

    def packed_changes(self) -> PackedChanges | None:
        if not self._all_known():
            return None
        keys, tuples, times = _columns(self.held.tuples())
        return PackedChanges(StampedPuts(None, *keys, times, *tuples), keys, tuples, times)


def _columns(parts: tuple[bytes, bytes, bytes, bytes, bytes]) -> Changed:
    keys, key_ends, texts, text_ends, times = parts
    ends = [np.frombuffer(part, np.int64) for part in (key_ends, text_ends, times)]
    return Changed((keys, ends[0]), (texts, ends[1]), ends[2])
