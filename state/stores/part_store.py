"""A store of aggregates of whole numbers that the compiled part folds: columns go in, and come out at the commit, without a
tuple or a dictionary lookup per aggregate and batch.

Between two commits what changed is either all in the compiled part or all in the view's own entries. The former begins when
nothing is uncommitted. Any other way to read or write the store, and any value that the compiled part does not take, moves
its content into the entries. Nothing is folded before the stored aggregate is there, so that each aggregate is whole at any
time, and moves without being merged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from penstock.state.native import compiled
from penstock.state.serdes.tuple_lists import LONG, TUPLE, forms_of_parts
from penstock.state.stores.held_changes import Held, HoldingStoreView
from penstock.state.stores.store import PackedChanges, StampedPuts, StateBackend, StoreSpec, Unbased, cut

_Rows = tuple[bytes, bytes]
"""Data and int64 offsets."""
COUNT, TOTAL, LEAST, GREATEST = b"n", b"s", b"l", b"g"
"""The parts of an aggregate: a number; a number and a sum; nothing or the least; nothing or the greatest."""
REAL, VALUES = b"r", b"d"
"""Those that only sessions have: a number and a sum of floats; distinct values."""


class PartTally(Unbased, Held, Protocol):
    """Aggregates by key, in the order of each key's first record. Compiled."""

    def reserve(self, data: Any, offsets: Any, starts: Any) -> bool:
        """Find the keys of rows, none of which is null. ``starts``: of their windows, int64, which stand before the keys;
        ``None``: there are no windows. Then ask for the stored values of those that are new, and call ``fold`` or ``merge``
        for the rows. If one of these steps fails, the rows can only be given up, with ``clear``; what is returned of the
        keys is as it was before. ``False``: there are too many."""

    def base_nothing(self) -> None:
        """No store has any of the keys."""

    def fold(self, columns: list[tuple[Any, Any]], times: Any) -> bool:
        """Add the reserved rows. ``columns``: of each part int64 numbers and bytes that are 1 where there is none
        (``None``: everywhere is one); counts need no numbers. ``False``: nothing was added, because a number may come near
        the bounds of 64 bits."""

    def merge(self, data: Any, offsets: Any, times: Any) -> bool:
        """Add other aggregates, as they are stored, to those of the reserved rows. ``False``: nothing was added, because
        of that or because Python must read one."""

    def any_below(self, bound: bytes) -> bool:
        """Whether a key lies below the bound."""

    def keys(self) -> _Rows:
        """The keys, with the starts of their windows."""

    def logged(self) -> _Rows:
        """The keys as the changelog of a window store has them."""

    def windows(self) -> tuple[bytes, bytes, bytes]:
        """The starts, int64, and the keys without them."""

    def written(self) -> _Rows:
        """The aggregates as they are stored, without their times."""

    def times(self) -> bytes:
        """The highest times, int64."""

    def columns(self) -> list[bytes]:
        """The numbers of all parts, int64: one of a count, two of each other."""


class TalliedNumbers(NamedTuple):
    """Aggregates to be shown. ``starts``: of their windows, if there are any; ``names``: the keys without them; ``numbers``:
    see ``PartTally.columns``."""

    starts: NDArray[np.int64] | None
    names: tuple[bytes, NDArray[np.int64]]
    numbers: list[NDArray[np.int64]]
    times: NDArray[np.int64]


def new_tally(parts: bytes) -> PartTally | None:
    """An empty one of these parts; ``None``: the compiled part is not in use."""
    native = compiled()
    return None if native is None else native.PartTally(parts)


def holds_parts(spec: StoreSpec) -> bool:
    """Whether a store may hold aggregates of whole numbers, by its serde."""
    forms = forms_of_parts(spec.value_serde.lists)
    plain = spec.value_serde.immutable and not spec.as_bytes and spec.source_topic is None
    return plain and forms is not None and {*forms} <= {*LONG, *TUPLE} and spec.kind in ("key_value", "window")


class PartStoreView(HoldingStoreView):
    """A view of such aggregates."""

    def __init__(self, spec: StoreSpec, backend: StateBackend) -> None:
        super().__init__(spec, backend, None)
        self.held: PartTally | None = None

    def use(self, parts: bytes) -> bool:
        """Have the compiled part fold aggregates of these parts. ``False``: it is not in use."""
        self.held = new_tally(parts)
        return self.held is not None

    def take(
        self,
        data: Any,
        offsets: NDArray[np.int64],
        starts: NDArray[np.int64] | None,
        add: Callable[[PartTally], bool],
    ) -> bool:
        """Fold rows by their keys, which are given as to ``PartTally.reserve``. ``add`` calls ``fold`` or ``merge``.
        ``False``: nothing was done; fold into the entries instead."""
        tally = self.held
        if tally is None or not self.takes(starts):
            return False
        if not len(tally):
            self.begin()
        begins = None if starts is None else np.ascontiguousarray(starts)
        done = tally.reserve(data, np.ascontiguousarray(offsets), begins) and self._based(tally) and add(tally)
        if done:
            self.defer(self._settle)
        elif len(tally):
            self._settle_deferred()
        else:
            tally.clear()
        return done

    def takes(self, starts: NDArray[np.int64] | None) -> bool:
        """Whether ``take`` may fold rows of these windows: no entry is uncommitted, and none of them is hidden."""
        if self.held is None or self.dirty or self.shown:
            return False
        if self._floor is None:
            return True
        return starts is not None and int(starts.min()) >= int.from_bytes(self._floor[:8], "big", signed=True)

    def _based(self, tally: PartTally) -> bool:
        try:
            self._backend.base(self.spec.name, tally)
        except ValueError:  # entries hold aggregates of anything, and report which stored value cannot be read
            return False
        return True

    def tallied(self) -> TalliedNumbers | None:
        """The aggregates that changed since the last commit, if all of them are in the compiled part."""
        tally = self.held
        if tally is None or not len(tally):
            return None
        starts = None
        if self.spec.kind == "window":
            packed, data, offsets = tally.windows()
            starts = np.frombuffer(packed, np.int64)
        else:
            data, offsets = tally.keys()
        numbers = [np.frombuffer(column, np.int64) for column in tally.columns()]
        return TalliedNumbers(
            starts, (data, np.frombuffer(offsets, np.int64)), numbers, np.frombuffer(tally.times(), np.int64)
        )

    def settle(self) -> None:
        """Move what is in the compiled part into the entries."""
        if self._deferred is not None:
            self._settle_deferred()

    def _settle(self) -> None:
        tally = self.held
        assert tally is not None
        keys, times = cut(*tally.keys()), np.frombuffer(tally.times(), np.int64).tolist()
        values = map(self._decode, cut(*tally.written()))
        tally.clear()
        self.entries.update(zip(keys, zip(values, times, strict=True), strict=True))
        self.dirty.update(zip(keys, times, strict=True))
        self.settled = keys

    # -- commit --------------------------------------------------------------------------------------------------

    def packed_changes(self) -> PackedChanges | None:
        tally = self.held
        if tally is None or not len(tally):
            return None
        if self._floor is not None and tally.any_below(self._floor):
            return None
        data, offsets = tally.keys()
        keys = data, np.frombuffer(offsets, np.int64)
        logged = keys
        if self.spec.kind == "window":
            data, offsets = tally.logged()
            logged = data, np.frombuffer(offsets, np.int64)
        values, ends = tally.written()
        times = np.frombuffer(tally.times(), np.int64)
        value_ends = np.frombuffer(ends, np.int64)
        puts = StampedPuts(None, *keys, times, values, value_ends)
        return PackedChanges(puts, logged, (values, value_ends), times)
