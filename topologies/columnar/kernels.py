"""Kernels over columns and arrays: without Python objects per row if the compiled part is in use.

Each function returns the same with and without the compiled part; the Python twin is the definition.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from penstock.state.native import compiled
from penstock.state.serdes.partitioner import partitions_in
from penstock.topologies.operator_api.columns import BytesColumn, CodedColumn, Codes, Ints, Places

_VALUES_BYTES_MAX = 4 << 20
_SPARSE = 4
"""If there are this many times more possible groups than rows, sort to find the groups, else use a table of all."""
_FAR = 1 << 62


class _Encoder(Protocol):
    def encode(self, data: Any, offsets: Any, nulls: Any) -> tuple[bytes, list[Any]]: ...


class Coder:
    """Codes columns of byte strings, batch by batch, in the order of first appearance within the batch.

    Keeps seen values as Python objects, up to ``bytes_max`` bytes or one batch, so that a batch of known values creates
    no objects. For one thread.
    """

    def __init__(self, bytes_max: int = _VALUES_BYTES_MAX) -> None:
        native = compiled()
        self._interner: _Encoder | None = None if native is None else native.Interner(bytes_max, False)

    def code(self, column: BytesColumn) -> CodedColumn:
        """The column's values as codes; all the values are used."""
        if self._interner is None:
            values = column.to_list()
            index = {value: code for code, value in enumerate(dict.fromkeys(values))}
            return CodedColumn(np.fromiter(map(index.__getitem__, values), np.int32, len(values)), list(index))
        codes, distinct = self._interner.encode(*column.raw())
        return CodedColumn(np.frombuffer(codes, np.int32), distinct)


def packed(values: list[bytes] | list[str]) -> BytesColumn:
    """The values as a column; texts as UTF-8, in which all of them must be encodable."""
    if (native := compiled()) is not None:
        data, offsets, _ = native.pack_rows(values)
        return BytesColumn(data, np.frombuffer(offsets, np.int64))
    return BytesColumn.of([v.encode() if isinstance(v, str) else v for v in values])


def partitions_of(keys: BytesColumn, partitions: int) -> NDArray[np.int32]:
    """The partition of each key, as Kafka's clients choose it; -1 for a null."""
    native = compiled()
    if native is None:
        found = partitions_in(keys.data, keys.offsets, partitions).astype(np.int32)
    else:
        data, offsets, _ = keys.raw()
        found = np.frombuffer(native.partition_rows(data, offsets, partitions), np.int32)
    return found if keys.nulls is None else np.where(keys.nulls, np.int32(-1), found)


class Groups(NamedTuple):
    """Rows with equal codes. Groups are numbered in the order in which they first appear: ``numbers`` has the group of
    each row, ``codes`` the code of each group, ``firsts`` the index of its first row."""

    numbers: Places
    codes: Places
    firsts: Places


def grouped(codes: Codes | Places | Ints, bound: int) -> Groups:
    """The groups of codes from 0 to ``bound - 1``."""
    if (native := compiled()) is not None:
        return Groups(*(np.frombuffer(part, np.intp) for part in native.group_rows(np.ascontiguousarray(codes), bound)))
    if bound > _SPARSE * len(codes) + 1024:
        found, firsts, sorted_numbers = np.unique(codes, return_index=True, return_inverse=True)
        by_appearance = np.argsort(firsts, kind="stable")
        numbers = _ranks(by_appearance, len(found))[sorted_numbers]
        return Groups(numbers, found[by_appearance].astype(np.intp), firsts[by_appearance])
    first_of = np.full(bound, len(codes), np.intp)
    # the last assignment to an index wins; in reverse order that is the first row of each code
    first_of[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    found = np.flatnonzero(first_of < len(codes))
    found = found[np.argsort(first_of[found], kind="stable")]
    return Groups(_ranks(found, bound)[codes], found, first_of[found])


def _ranks(places: Places, bound: int) -> Places:
    """For each index below ``bound``, its position within ``places``."""
    ranks = np.empty(bound, np.intp)
    ranks[places] = np.arange(len(places))
    return ranks


def highest(groups: Groups, values: Ints) -> Ints:
    """The highest value of each group."""
    count = len(groups.codes)
    if (native := compiled()) is not None:
        return np.frombuffer(native.highest_rows(groups.numbers, count, np.ascontiguousarray(values), False), np.int64)
    if _ascending(values):
        last = np.empty(count, np.intp)
        last[groups.numbers] = np.arange(len(values))
        return values[last]
    found = values[groups.firsts]
    np.maximum.at(found, groups.numbers, values)
    return found


def highest_so_far(groups: Groups, values: Ints) -> Ints:
    """For each row, the highest value of its group so far, the row included."""
    if _ascending(values):
        return values
    count = len(groups.codes)
    if (native := compiled()) is not None:
        return np.frombuffer(native.highest_rows(groups.numbers, count, np.ascontiguousarray(values), True), np.int64)
    low, span = int(values.min()), int(values.max()) - int(values.min()) + 1
    if span * (count + 1) >= _FAR:
        return _highest_by_rows(groups, values)
    by_group, _ = _runs(groups)
    # raise each group's values above those of earlier groups, so that one running maximum serves all
    lift = groups.numbers[by_group] * span
    out = np.empty(len(values), np.int64)
    out[by_group] = np.maximum.accumulate(values[by_group] - low + lift) - lift + low
    return out


def _ascending(values: Ints) -> bool:
    return bool((values[1:] >= values[:-1]).all())


def _highest_by_rows(groups: Groups, values: Ints) -> Ints:
    highest: dict[int, int] = {}
    out: list[int] = []
    for number, value in zip(groups.numbers.tolist(), values.tolist(), strict=True):
        highest[number] = value = max(value, highest.get(number, value))
        out.append(value)
    return np.array(out, np.int64)


def counted_so_far(groups: Groups) -> Ints:
    """For each row, how many rows its group has so far, itself included."""
    numbers = groups.numbers
    if (native := compiled()) is not None:
        return np.frombuffer(native.count_rows_so_far(numbers, len(groups.codes)), np.int64)
    by_group, starts = _runs(groups)
    out = np.empty(len(numbers), np.int64)
    out[by_group] = np.arange(1, len(numbers) + 1) - starts[numbers[by_group]]
    return out


def summed_so_far(groups: Groups, values: Ints) -> Ints:
    """For each row, the sum of its group's values so far, the row included; modulo 2**64."""
    if len(groups.codes) == 1:
        return np.cumsum(values)
    by_group, starts = _runs(groups)
    sums = np.cumsum(values[by_group])
    before = np.where(starts > 0, sums[starts - 1], 0)
    out = np.empty(len(values), np.int64)
    out[by_group] = sums - before[groups.numbers[by_group]]
    return out


def _runs(groups: Groups) -> tuple[Places, Ints]:
    """The rows sorted by group, stable within each, and the start of each group."""
    by_group = np.argsort(groups.numbers, kind="stable")
    sizes = np.bincount(groups.numbers, minlength=len(groups.codes))
    return by_group, np.cumsum(sizes) - sizes


def summed(groups: Groups, values: Ints) -> Ints | None:
    """The sum of each group's values; ``None`` if a sum overflows int64."""
    count = len(groups.codes)
    if (native := compiled()) is not None:
        sums = native.sum_rows(groups.numbers, count, np.ascontiguousarray(values))
        return None if sums is None else np.frombuffer(sums, np.int64)
    totals = [0] * count
    for number, value in zip(groups.numbers.tolist(), values.tolist(), strict=True):
        totals[number] += value
    try:
        return np.array(totals, np.int64)
    except OverflowError:
        return None


class Words(NamedTuple):
    """Texts split into words: ``counts`` per row, and the concatenated words of all rows as ``codes`` of ``distinct``,
    which are all used. A row that ``failed`` is not UTF-8 and has no words."""

    codes: Codes
    distinct: BytesColumn
    counts: Ints
    failed: list[tuple[int, UnicodeDecodeError]]


def split_words(texts: BytesColumn, *, lower: bool) -> Words:
    """The words of UTF-8 texts as ``str.split()`` finds them, in the text itself or in its ``str.lower()``; a null has
    none."""
    native = compiled()
    if native is None:
        nothing = Words(np.empty(0, np.int32), BytesColumn.of([]), np.zeros(len(texts), np.int64), [])
        return _with_others(texts, nothing, list(range(len(texts))), lower=lower)
    counts, codes, data, offsets, unsure = native.split_words(*texts.raw(), lower)
    distinct = BytesColumn(data, np.frombuffer(offsets, np.int64))
    found = Words(np.frombuffer(codes, np.int32), distinct, np.frombuffer(counts, np.int64), [])
    if unsure is None:
        return found
    return _with_others(texts, found, np.flatnonzero(np.frombuffer(unsure, np.uint8)).tolist(), lower=lower)


def _with_others(texts: BytesColumn, found: Words, rows: list[int], *, lower: bool) -> Words:
    """Insert the words of these rows, which had none, at their positions."""
    seen = {word: code for code, word in enumerate(found.distinct.to_list())}
    counts = found.counts.copy()
    codes: list[int] = []
    for row, data in zip(rows, texts.take(np.array(rows, np.intp)).to_list(), strict=True):
        try:
            text = "" if data is None else data.decode()
        except UnicodeDecodeError as exc:
            found.failed.append((row, exc))
            continue
        words = (text.lower() if lower else text).split()
        counts[row] = len(words)
        codes += [seen.setdefault(word.encode(), len(seen)) for word in words]
    other = np.zeros(len(counts), np.bool_)
    other[rows] = True
    of_others = np.repeat(other, counts)
    all_codes = np.empty(len(of_others), np.int32)
    all_codes[of_others] = codes
    all_codes[~of_others] = found.codes
    return Words(all_codes, BytesColumn.of(list(seen)), counts, found.failed)
