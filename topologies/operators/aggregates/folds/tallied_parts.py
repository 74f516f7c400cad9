"""Folding aggregates of whole numbers in the store's view, or merging partial ones: no key and no accumulator becomes an
object from the columns of the records to those of the results.

The compiled part tells keys apart by their bytes, so it takes only columns of keys that are what their bytes are read as. It
finds out by itself what it cannot do exactly; then the entries take the records.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

from penstock.state.serdes.serde import Serde
from penstock.state.serdes.tuple_lists import BAG, LONG, TUPLE, forms_of_parts
from penstock.state.stores.part_store import (
    COUNT,
    GREATEST,
    LEAST,
    REAL,
    TOTAL,
    VALUES,
    PartStoreView,
    PartTally,
    TalliedNumbers,
)
from penstock.state.stores.store_view import KeyValueStoreView
from penstock.topologies.aggregators.bag import Bag
from penstock.topologies.aggregators.base import Part
from penstock.topologies.columnar.column_parts import nulls_of, row_bytes
from penstock.topologies.columnar.encoded_columns import EncodedColumn
from penstock.topologies.operator_api.batch import Batch, ColumnBatch
from penstock.topologies.operator_api.columns import Column, Ints, Mask, NumberColumn
from penstock.topologies.operators.aggregates.fold import Fold
from penstock.topologies.operators.aggregates.folds.held import flush_held
from penstock.topologies.operators.columnar.folding import PartColumnsOf, whole_numbers, why_not
from penstock.topologies.operators.columnar.part_results import ShownParts, totals_shown

_START_BYTES: Final = 8
_LETTERS: Final = {"count": COUNT, "sum": TOTAL, "mean": TOTAL, "min": LEAST, "max": GREATEST}
_FIRST: Final[dict[int, Any]] = {
    COUNT[0]: 0,
    TOTAL[0]: (0, 0),
    REAL[0]: (0, 0.0),
    LEAST[0]: (),
    GREATEST[0]: (),
    VALUES[0]: Bag(),
}
"""The accumulators that the compiled part begins with."""
_FORMS: Final = {COUNT[0]: LONG, VALUES[0]: BAG}


def letters_of(fold: Fold) -> bytes | None:
    """The parts of the fold's aggregates as ``PartTally`` names them. ``None``: it does not take them."""
    if not fold.parts or fold.distinct is not None or (fold.init is None and not fold.partials):
        return None
    letters = [_letter(part) for part in fold.parts]
    if None in letters:
        return None
    made = b"".join(letter for letter in letters if letter is not None)
    return made if fold.init is None or begin_so(fold.init, made) else None


def begin_so(init: Callable[[], Any], letters: bytes) -> bool:
    """Whether aggregates of these parts begin as in the compiled part."""
    return repr(init()) == repr(tuple(_FIRST[letter] for letter in letters))  # 0 and 0.0 are equal


def _letter(part: Part) -> bytes | None:
    letter = _LETTERS.get(part.function)
    if letter is None or why_not(part) is not None or (letter != COUNT and part.kind != "int64"):
        return None
    return letter


def forms_of(letters: bytes) -> bytes:
    """How the parts are written: see ``penstock.state.serdes.tuple_lists``."""
    return b"".join(_FORMS.get(letter, TUPLE) for letter in letters)


def written_so(serde: Serde[Any], letters: bytes) -> bool:
    """Whether a serde writes aggregates of these parts as the compiled part does."""
    return forms_of_parts(serde.lists) == forms_of(letters)


class PartInput(NamedTuple):
    """Numbers of the parts by record, or partial aggregates, that are added to aggregates."""

    numbers: list[tuple[Any, Any]] | None
    partials: tuple[Any, Any] | None
    times: Ints

    def add(self, tally: PartTally) -> bool:
        """Add it to the reserved rows."""
        if self.partials is not None:
            return tally.merge(*self.partials, self.times)
        assert self.numbers is not None
        return tally.fold(self.numbers, self.times)


class PartInputs:
    """Reads columns of records as what ``PartTally`` takes. ``letters``: its parts."""

    def __init__(self, fold: Fold, letters: bytes) -> None:
        self._parts = fold.parts
        self._partials = fold.partials
        self._columns = PartColumnsOf(fold.parts)
        self._letters = letters

    def of(self, batch: ColumnBatch) -> PartInput | None:
        """Read a batch without null values. ``None``: it is in another form."""
        times = np.ascontiguousarray(batch.times)
        if self._partials:
            column = batch.value_column
            if not isinstance(column, EncodedColumn) or not written_so(column.serde, self._letters):
                return None
            data, offsets, nulls = column.raw.raw()
            return None if nulls is not None and nulls.any() else PartInput(None, (data, offsets), times)
        columns = self._columns.of(batch)
        if columns is None:
            return None
        numbers = [numbers_of_part(part, column) for part, column in zip(self._parts, columns, strict=True)]
        found = [one for one in numbers if one is not None]
        return PartInput(found, None, times) if len(found) == len(numbers) else None


def numbers_of_part(part: Part, column: Column | None) -> tuple[Any, Any] | None:
    """The whole numbers that a part takes of a column, ``None`` where it counts, and flags of nulls, ``None`` without any.
    ``None`` for the column: of the records themselves. ``None``: it is in another form."""
    if column is None:
        return None, None
    if part.function == "count":
        return None, flags_of(nulls_of(column))
    found = whole_numbers(column)
    return None if found is None else (np.ascontiguousarray(found[0]), flags_of(found[1]))


def flags_of(nulls: Mask | None) -> Any:
    """A mask as the compiled part takes it."""
    return None if nulls is None else np.ascontiguousarray(nulls).view(np.uint8)


class TalliedParts:
    """Folds in the view of a store, and shows what a commit changed."""

    def __init__(self, state: PartStoreView, fold: Fold, letters: bytes, key_serde: Serde[Any]) -> None:
        self._state = state
        self._given = PartInputs(fold, letters)
        self._parts = fold.parts
        self._letters = letters
        self._shown = ShownParts(fold.parts, fold.result_of_parts)
        self._key_serde = key_serde
        self._behind = _START_BYTES if state.spec.kind == "window" else 0

    @classmethod
    def of(
        cls, state: KeyValueStoreView, fold: Fold, letters: bytes | None, key_serde: Serde[Any]
    ) -> TalliedParts | None:
        """``None``: it is not possible with this store."""
        if letters is None or not isinstance(state, PartStoreView) or not written_so(state.spec.value_serde, letters):
            return None
        return cls(state, fold, letters, key_serde) if state.use(letters) else None

    def fold(self, batch: ColumnBatch, starts: Ints | None = None) -> bool:
        """Fold records without nulls. ``starts``: of their windows. ``False``: nothing was done."""
        if not self._state.takes(starts):
            return False
        keys = row_bytes(batch.key_column, self._key_serde)
        given = None if keys is None else self._given.of(batch)
        if keys is None or given is None:
            return False
        return self._state.take(keys.data, keys.offsets, starts, given.add)

    def flush(self, show: Callable[[Batch], None], keys_of: Callable[[TalliedNumbers], Column]) -> dict[bytes, Any]:
        """See ``HeldFold.flush``. ``keys_of``: returns the keys to emit."""
        read, behind = self._key_serde.deserialize, self._behind
        return flush_held(self._state, lambda key: read(key[behind:]), lambda: self._results(keys_of), show)

    def _results(self, keys_of: Callable[[TalliedNumbers], Column]) -> ColumnBatch | None:
        found = self._state.tallied()
        if found is None:
            return None
        results = results_of_numbers(self._parts, self._letters, found.numbers)
        values = None if results is None else self._shown.of(results)
        if values is None:
            self._state.settle()
            return None
        return ColumnBatch(keys_of(found), values, found.times, np.zeros(len(found.times), np.int64))


def results_of_numbers(parts: tuple[Part, ...], letters: bytes, numbers: list[Ints]) -> list[Column] | None:
    """The result of each part, from the numbers of ``PartTally.columns``, or those that ``SessionParts`` shows. ``None``:
    row by row."""
    out: list[Column | None] = []
    left = iter(numbers)
    for part, letter in zip(parts, letters, strict=True):
        first = next(left)
        if letter in COUNT + VALUES:
            out.append(NumberColumn(first))
        elif letter in TOTAL + REAL:
            out.append(totals_shown(part, first, totals_of(letter, next(left))))
        else:
            nulls: Mask = first == 0
            out.append(NumberColumn(next(left), nulls if nulls.any() else None))
    made = [column for column in out if column is not None]
    return made if len(made) == len(out) else None


def totals_of(letter: int, numbers: Ints) -> Any:
    """The sums of a part with one, floats from their bits."""
    return numbers.view(np.float64) if letter in REAL else numbers
