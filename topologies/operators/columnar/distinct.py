"""Distinct values of a batch of columns, added to the bags of their entries, or to bags in the compiled part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from penstock.topologies.aggregators.bag import Bag
from penstock.topologies.aggregators.base import Part
from penstock.topologies.aggregators.encoding import PLAIN
from penstock.topologies.columnar.column_parts import nulls_of
from penstock.topologies.columnar.kernels import Groups, packed
from penstock.topologies.operator_api.columns import BytesColumn, CodedColumn, Codes, Column, Ints, NumberColumn, Places

_FAR = 1 << 62


class _Found(NamedTuple):
    """Distinct values by group, in the order of the groups, and how often each group has them."""

    numbers: Ints
    values: list[bytes]
    counts: list[int]


class Bags(Protocol):
    """Distinct values with their numbers, by group (a number below 2**40) and number of the count. Compiled."""

    def __bool__(self) -> bool:
        """Whether there are any."""

    def has_room(self, bytes: int, numbers: int) -> bool:
        """Whether values with this many bytes more can be kept, and this many numbers."""

    def add_numbers(self, count: int, groups: Any, numbers: Any) -> None:
        """Add int64 numbers as MessagePack, each to the int64 group at its place."""

    def add_coded(self, count: int, groups: Any, codes: Any, data: Any, offsets: Any) -> None:
        """Add values by their int64 codes."""

    def add_pairs(self, count: int, group: int, pairs: list[tuple[bytes, int]]) -> None:
        """Add values with their numbers."""

    def written(self, partials: list[Any], groups: Any, forms: bytes) -> tuple[bytes, bytes, None] | None:
        """Tuples of such forms as a column of bytes, each with the bags of a group in the place of its own. ``None``: Python
        must write one of them."""

    def pairs(self, group: int, count: int) -> list[tuple[bytes, int]]:
        """The values of a bag and their numbers, by the values' bytes."""


class _Values(NamedTuple):
    """The values of one count, ``number``, that are not null: their groups, and they as ``numbers``, or as codes of
    ``distinct``."""

    number: int
    groups: Places
    numbers: Ints
    distinct: BytesColumn | None


class ValueColumns:
    """The values of the distinct counts of one batch, on their way to bags in the compiled part. ``counts``: the number of
    the count, by its place among the aggregates."""

    def __init__(self, counts: dict[int, int]) -> None:
        self._counts = counts
        self._taken: list[_Values] = []

    def take(self, place: int, part: Part, groups: Groups, column: Column) -> bool:
        """Take the values of the aggregate at a place. ``False``: row by row."""
        assert part.prepare is not None
        nulls = nulls_of(column)
        places = None if nulls is None else np.flatnonzero(~nulls)
        values = column if places is None else column.take(places)
        of_rows = groups.numbers if places is None else groups.numbers[places]
        number = self._counts[place]
        if isinstance(values, NumberColumn) and values.array.dtype == np.int64 and part.prepare is PLAIN.serialize:
            self._taken.append(_Values(number, of_rows, values.array, None))
            return True
        coded = coded_texts(part, values)
        if coded is None:
            return False
        self._taken.append(_Values(number, of_rows, *coded))
        return True

    def put(self, bags: Bags, numbers: Ints) -> None:
        """Add them. ``numbers``: those of the groups in the bags."""
        for number, groups, values, distinct in self._taken:
            of_rows = np.ascontiguousarray(numbers[groups])
            if distinct is None:
                bags.add_numbers(number, of_rows, np.ascontiguousarray(values))
            else:
                bags.add_coded(number, of_rows, values, distinct.data, distinct.offsets)

    def fits(self, bags: Bags) -> bool:
        """Whether the bags have room for them."""
        texts = [v.distinct for v in self._taken if v.distinct is not None]
        size = sum(int(column.offsets[-1]) for column in texts)
        return bags.has_room(size, sum(len(v.numbers) for v in self._taken if v.distinct is None))


def coded_texts(part: Part, column: Column) -> tuple[Ints, BytesColumn] | None:
    """The values of a column as a bag keeps them, by codes; the code of a null is -1. ``None``: row by row."""
    assert part.prepare is not None
    coded = column if isinstance(column, CodedColumn) else CodedColumn.of(column.to_list())
    used, codes = np.unique(coded.codes, return_inverse=True)
    values = [coded.values[code] for code in used.tolist()]
    try:
        texts = [b"" if value is None else part.prepare(value) for value in values]
    except Exception:  # not swallowed: the rows meet it again
        return None
    if not set(map(type, texts)) <= {bytes}:
        return None
    absent = np.fromiter((value is None for value in values), np.bool_, len(values))
    return np.where(absent[codes], -1, codes).astype(np.int64), packed(texts)


def added(part: Part, bags: list[Bag], groups: Groups, column: Column) -> list[Bag] | None:
    """The bags with the values of their groups that are not null. ``None``: row by row."""
    assert part.prepare is not None
    nulls = nulls_of(column)
    places = np.arange(len(column)) if nulls is None else np.flatnonzero(~nulls)
    try:
        found = _found(part.prepare, groups.numbers[places], column if nulls is None else column.take(places))
    except Exception:  # not swallowed: the rows meet it again
        return None
    after, start = list(bags), 0
    ends: list[int] = np.cumsum(np.bincount(found.numbers, minlength=len(bags))).tolist()
    for number, end in enumerate(ends):
        if end > start:
            after[number] = bags[number].added(found.values[start:end], found.counts[start:end])
        start = end
    return after


def _found(prepare: Callable[[Any], bytes], numbers: Places, column: Column) -> _Found:
    """The values, none of which is null, as a bag keeps them."""
    coded = column if isinstance(column, CodedColumn) else None
    if not len(column):
        return _Found(np.empty(0, np.int64), [], [])
    if coded is None and isinstance(column, NumberColumn) and column.array.dtype == np.int64:
        low, high = int(column.array.min()), int(column.array.max())
        span = high - low + 1
        if span * (int(numbers.max()) + 1) < _FAR:
            of_groups, codes, counts = _counted(numbers, column.array - low, span)
            return _Found(of_groups, list(map(prepare, (codes + low).tolist())), counts)
    if coded is None:
        coded = CodedColumn.of(column.to_list())
    texts = {code: prepare(coded.values[code]) for code in np.unique(coded.codes).tolist()}
    of_groups, codes, counts = _counted(numbers, _one_code(coded.codes, texts), len(coded.values))
    return _Found(of_groups, list(map(texts.__getitem__, codes.tolist())), counts)


def _one_code(codes: Codes, texts: dict[int, bytes]) -> Codes:
    """The codes, with one for each text: values that differ may be kept as the same."""
    firsts: dict[bytes, int] = {}
    for code, text in texts.items():
        firsts.setdefault(text, code)
    if len(firsts) == len(texts):
        return codes
    table = np.zeros(max(texts) + 1, np.int32)
    table[list(texts)] = [firsts[text] for text in texts.values()]
    return table[codes]


def _counted(numbers: Places, codes: Codes | Ints, bound: int) -> tuple[Ints, Ints, list[int]]:
    """The distinct pairs of a number and a code below ``bound``: their numbers, codes and counts."""
    pairs, counts = np.unique(numbers * bound + codes, return_counts=True)
    of_groups, of_values = np.divmod(pairs, bound)
    return of_groups, of_values, counts.tolist()
