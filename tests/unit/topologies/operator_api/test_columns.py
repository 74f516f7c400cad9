"""Columns and the batches that hold them: whatever is done to a batch, its lists are those of a batch of lists."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.topologies.operator_api.batch import Batch, ColumnBatch, concat
from penstock.topologies.operator_api.columns import (
    BytesColumn,
    CodedColumn,
    Column,
    NumberColumn,
    StructColumn,
    joined,
)

BYTES = st.lists(st.none() | st.binary(max_size=4), max_size=12)
NUMBERS = st.lists(st.none() | st.integers(-(1 << 63), (1 << 63) - 1), max_size=12)
MIXED = st.lists(st.none() | st.booleans() | st.integers(0, 2) | st.floats(0, 1) | st.text(max_size=2), max_size=12)


def numbers(values: list[int | None]) -> NumberColumn:
    array = np.array([v or 0 for v in values], np.int64)
    return NumberColumn(array, np.array([v is None for v in values], np.bool_) if None in values else None)


def pair(a: Any, b: Any) -> tuple[Any, Any]:
    return a, b


def same(column: Column, values: list[Any]) -> None:
    """Equal values of equal types, also of every part."""
    assert [(type(v), v) for v in column.to_list()] == [(type(v), v) for v in values]
    assert len(column) == len(values)


@given(BYTES, NUMBERS, MIXED, st.data())
def test_every_column_lists_takes_and_slices_as_a_list(
    raw: list[bytes | None], ints: list[int | None], mixed: list[Any], data: st.DataObject
) -> None:
    coded = CodedColumn.of(mixed)
    pairs = list(zip(ints, mixed, strict=False))
    struct = StructColumn({"a": numbers(ints).slice(0, len(pairs)), "b": coded.slice(0, len(pairs))}, pair)
    cases: list[tuple[Column, list[Any]]] = [
        (BytesColumn.of(raw), raw),
        (numbers(ints), ints),
        (coded, mixed),
        (coded.compact(), mixed),
        (struct, pairs),
    ]
    for column, values in cases:
        same(column, values)
        start = data.draw(st.integers(0, len(values)))
        stop = data.draw(st.integers(start, len(values)))
        same(column.slice(start, stop), values[start:stop])
        places = data.draw(st.lists(st.integers(start, max(stop - 1, start)), max_size=5)) if stop > start else []
        same(column.take(np.array(places, np.intp)), [values[i] for i in places])
        part = column.slice(start, stop)
        same(part.take(np.arange(stop - start)), values[start:stop])
        whole = joined([column.slice(0, start), part, column.slice(stop, len(values))])
        assert whole is not None
        same(whole, values)


def test_columns_of_different_kinds_cannot_be_joined() -> None:
    assert joined([CodedColumn.of([1]), numbers([1])]) is None
    assert joined([NumberColumn(np.array([1.0])), numbers([1])]) is None


@given(BYTES.filter(bool), st.data())
def test_a_batch_of_columns_is_a_batch_of_lists(keys: list[bytes | None], data: st.DataObject) -> None:
    n = len(keys)
    values = data.draw(st.lists(st.integers(0, 9), min_size=n, max_size=n))
    times, order = [i * 7 for i in range(n)], [i * 3 for i in range(n)]
    headers: Any = data.draw(st.none() | st.just([(("h", b"x"),)] * n))
    olds: Any = data.draw(st.none() | st.just(list(range(n))))
    plain = Batch(keys, values, times, order, headers, olds)
    lists_or: Any = data.draw(st.sampled_from([values, numbers(list(values)), CodedColumn.of(values)]))
    olds_or: Any = data.draw(st.sampled_from([olds, None if olds is None else numbers(olds)]))
    columns = ColumnBatch(BytesColumn.of(keys), lists_or, np.array(times), np.array(order), headers, olds_or)
    mask = data.draw(st.lists(st.booleans(), min_size=n, max_size=n))
    start = data.draw(st.integers(0, n))
    places = data.draw(st.lists(st.integers(0, n - 1), max_size=6))
    pairs: list[tuple[Batch, Batch]] = [
        (plain, columns),
        (plain.where(mask), columns.where(mask)),
        (plain.where(np.array(mask)), columns.where(np.array(mask))),
        (plain.slice(start, n), columns.slice(start, n)),
        (plain.pick(places), columns.pick(places)),
        (plain.pick(np.array(places, np.intp)), columns.pick(np.array(places, np.intp))),
        (plain.replace(values=keys), columns.replace(values=keys)),
        (plain.replace(keys=BytesColumn.of(keys)), columns.replace(keys=values)),
        (concat([plain, plain]), concat([columns, columns])),
        (concat([plain, plain]), concat([columns, plain])),
        (concat([plain.replace(values=values), plain]), concat([columns.replace(values=values), columns])),
    ]
    pairs[7] = (pairs[7][0].replace(keys=values), pairs[7][1])
    for one, other in pairs:
        assert len(one) == len(other)
        for name in ("keys", "values", "timestamps", "order", "headers", "olds"):
            assert getattr(one, name) == getattr(other, name), name
        assert one.times.tolist() == other.timestamps
        assert other.orders.tolist() == one.order


PLAIN = [0.0, -0.0, 0, False, "", b"", None, -0.0, 1, 1.0, True, "-0.0"]


@pytest.mark.parametrize("values", [PLAIN, [*PLAIN, *map(Decimal, ("1", "1.0", "0", "-0"))]], ids=["plain", "decimals"])
def test_equal_values_that_are_not_the_same_have_codes_of_their_own(values: list[Any]) -> None:
    coded = CodedColumn.of(values)
    assert [repr(v) for v in coded.to_list()] == [repr(v) for v in values]
    assert len(coded.values) == len(values) - 1
