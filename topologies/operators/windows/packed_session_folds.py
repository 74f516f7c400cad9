"""Which aggregates the compiled part keeps of sessions, and how records, stored entries and results look there.

Counts are kept as one number. Several aggregates at once are counts, sums and means of whole numbers or of floats, the least
and the greatest whole number, and distinct counts; the view of their store keeps bytes, so that entries pass unread.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from penstock.state.native import compiled
from penstock.state.serdes.serde import Serde
from penstock.state.stores.part_store import COUNT, GREATEST, LEAST, REAL, TOTAL, VALUES
from penstock.state.stores.segmented_store import ViewEntries
from penstock.state.stores.store import StoreSpec
from penstock.topologies.aggregators.bag import Bag
from penstock.topologies.aggregators.base import Part
from penstock.topologies.operator_api.batch import ColumnBatch
from penstock.topologies.operator_api.columns import Column, Ints, NumberColumn
from penstock.topologies.operators.aggregates.fold import Fold
from penstock.topologies.operators.aggregates.folds.tallied_parts import (
    begin_so,
    flags_of,
    numbers_of_part,
    results_of_numbers,
    totals_of,
    written_so,
)
from penstock.topologies.operators.base.entry_index import EntryIndex, EntryPlace
from penstock.topologies.operators.columnar.distinct import coded_texts
from penstock.topologies.operators.columnar.folding import DISTINCT, PartColumnsOf, why_not
from penstock.topologies.operators.columnar.part_results import ShownParts
from penstock.topologies.operators.columnar.sessions import SessionRules
from penstock.topologies.operators.windows.session_folds import CountSessions, SessionFold

if TYPE_CHECKING:
    from penstock_native import SessionCounts, SessionParts

_LONG = struct.Struct(">q")
_WHOLE: Final = {"sum": TOTAL, "mean": TOTAL, "min": LEAST, "max": GREATEST}
_REAL: Final = {"sum": REAL, "mean": REAL}
_Column = tuple[Any, Any, Any]
"""Numbers or codes of records for one part, flags of those without, data and offsets of the coded values."""


class PackedFold(Protocol):
    """See the module."""

    @property
    def of_bytes(self) -> bool:
        """Whether entries are bytes."""

    def sessions(self, rules: SessionRules, segment_ms: int) -> SessionCounts | SessionParts:
        """An empty keeper of sessions."""

    def given(self, batch: ColumnBatch) -> tuple[Any] | None:
        """The keeper's input from records. ``None``: there is a value that only rows know."""

    def stored(self, index: EntryIndex, places: list[tuple[bytes, EntryPlace]]) -> list[tuple[int, int, Any]]:
        """Stored sessions, by key and place, as the keeper holds them."""

    def entries(self, keys: list[bytes], entries: list[Any]) -> ViewEntries:
        """Entries that the keeper has written, as the store puts them."""

    def shown(self, numbers: list[Ints]) -> Column | list[Any]:
        """The values to emit for the numbers that the keeper shows."""


def packed_fold(store: StoreSpec, fold: Fold, of_columns: SessionFold | None) -> PackedFold | None:
    """How the compiled part folds; ``None``: Python does, as ``of_columns`` says."""
    if compiled() is None:
        return None
    if isinstance(of_columns, CountSessions):
        return PackedCounts(of_columns)
    letters = None if of_columns is None else part_letters(fold, store.value_serde)
    return None if letters is None else PackedParts(fold, letters)


def part_letters(fold: Fold, serde: Serde[Any]) -> bytes | None:
    """The parts of a fold's aggregates as ``SessionParts`` names them. ``None``: it does not take them."""
    if not fold.parts or fold.partials or fold.distinct is not None or fold.init is None:
        return None
    if fold.result_of_parts is None or ShownParts.why_not(fold.result_of_parts) is not None:
        return None
    letters = [letter for part in fold.parts if (letter := _letter(part)) is not None]
    if len(letters) < len(fold.parts) or len(fold.adders) != 1:
        return None
    made = b"".join(letters)
    return made if begin_so(fold.init, made) and written_so(serde, made) else None


def _letter(part: Part) -> bytes | None:
    if why_not(part) is not None:
        return None
    if part.function == "count":
        return COUNT
    if part.function == DISTINCT:
        return VALUES
    return {"int64": _WHOLE, "float64": _REAL}.get(part.kind, {}).get(part.function)


class PackedCounts:
    """Counts, or sums of counts."""

    of_bytes = False

    def __init__(self, counts: CountSessions) -> None:
        self._counts = counts

    def sessions(self, rules: SessionRules, segment_ms: int) -> SessionCounts:
        native = compiled()
        assert native is not None
        made: SessionCounts = native.SessionCounts(*rules, segment_ms)
        return made

    def given(self, batch: ColumnBatch) -> tuple[Any] | None:
        known, counts = self._counts.numbers(batch)
        return (counts,) if known else None

    def stored(self, index: EntryIndex, places: list[tuple[bytes, EntryPlace]]) -> list[tuple[int, int, Any]]:
        index.load(places)
        return [(_start(place), place[0], index.get(name, place)) for name, place in places]

    def entries(self, keys: list[bytes], entries: list[Any]) -> ViewEntries:
        return ViewEntries(keys, entries, [last_ms for _, last_ms in entries])

    def shown(self, numbers: list[Ints]) -> Column | list[Any]:
        (counts,) = numbers
        return NumberColumn(counts)


class PackedParts:
    """Several aggregates."""

    of_bytes = True

    def __init__(self, fold: Fold, letters: bytes) -> None:
        """``letters``: those of ``part_letters``."""
        assert fold.result_of_parts is not None
        self._fold = fold
        self._letters = letters
        self._columns = PartColumnsOf(fold.parts)
        self._shown = ShownParts(fold.parts, fold.result_of_parts)

    def sessions(self, rules: SessionRules, segment_ms: int) -> SessionParts:
        native = compiled()
        assert native is not None
        made: SessionParts = native.SessionParts(*rules, segment_ms, self._letters)
        return made

    def given(self, batch: ColumnBatch) -> tuple[Any] | None:
        columns = self._columns.of(batch)
        if columns is None:
            return None
        found: list[_Column] = []
        for part, letter, column in zip(self._fold.parts, self._letters, columns, strict=True):
            one = _values(part, bytes([letter]), column)
            if one is None:
                return None
            found.append(one)
        return (found,)

    def stored(self, index: EntryIndex, places: list[tuple[bytes, EntryPlace]]) -> list[tuple[int, int, Any]]:
        entries = index.store.entries([(name, *place) for name, place in places])
        return [(_start(place), place[0], entry) for (_, place), entry in zip(places, entries, strict=True)]

    def entries(self, keys: list[bytes], entries: list[Any]) -> ViewEntries:
        return ViewEntries(keys, entries, [_LONG.unpack_from(entry)[0] for entry in entries])

    def shown(self, numbers: list[Ints]) -> Column | list[Any]:
        results = results_of_numbers(self._fold.parts, self._letters, numbers)
        values = None if results is None else self._shown.of(results)
        return list(map(self._fold.shown, self._accumulators(numbers))) if values is None else values

    def _accumulators(self, numbers: list[Ints]) -> Sequence[tuple[Any, ...]]:
        """Accumulators with these numbers. Of distinct values only the number counts."""
        out: list[list[Any]] = []
        left = iter(numbers)
        for letter in self._letters:
            first = next(left).tolist()
            if letter in COUNT:
                out.append(first)
            elif letter in VALUES:
                out.append([Bag((_LONG.pack(value), 1) for value in range(many)) for many in first])
            elif letter in TOTAL + REAL:
                out.append(list(zip(first, totals_of(letter, next(left)).tolist(), strict=True)))
            else:
                best = next(left).tolist()
                out.append([(x,) if there else () for there, x in zip(first, best, strict=True)])
        return list(zip(*out, strict=True))


def _start(place: EntryPlace) -> int:
    start: int = _LONG.unpack(place[1])[0]
    return start


def _values(part: Part, letter: bytes, column: Column | None) -> _Column | None:
    """The input of a part from its column, ``None`` for the records themselves. ``None``: there is a value for rows."""
    if column is not None and letter == VALUES:
        coded = coded_texts(part, column)
        return None if coded is None else (coded[0], None, (coded[1].data, coded[1].offsets))
    if letter == REAL:
        if not isinstance(column, NumberColumn) or column.array.dtype != np.float64:
            return None
        numbers = column.array if column.nulls is None else np.where(column.nulls, 0.0, column.array)
        bits = np.ascontiguousarray(numbers).view(np.int64)
        return (bits, flags_of(column.nulls), None) if np.isfinite(numbers).all() else None
    found = numbers_of_part(part, column)
    return None if found is None else (*found, None)
