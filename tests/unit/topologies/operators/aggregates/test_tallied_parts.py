"""Which aggregates and keys the compiled part takes."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from penstock.state.serdes.serde import BYTES, FLOAT, INT, STRING
from penstock.topologies.aggregators.base import Part
from penstock.topologies.columnar.column_parts import row_bytes
from penstock.topologies.columnar.encoded_columns import EncodedColumn
from penstock.topologies.columnar.kernels import Coder
from penstock.topologies.operator_api.columns import BytesColumn, CodedColumn, Column, NumberColumn
from penstock.topologies.operators.aggregates.fold import Fold
from penstock.topologies.operators.aggregates.folds.tallied_parts import letters_of

COUNTED = Part("count", None, "int64", None)
CODES = np.array([1, 0, 1], np.int32)
TEXTS = BytesColumn.of([b"b", b"a"])


def fold(init: Any, *parts: Part) -> Fold:
    return Fold(adders=(lambda key, value, acc: acc,), init=init, parts=parts)


def test_aggregates_of_whole_numbers_have_letters() -> None:
    total, least = COUNTED._replace(function="sum"), COUNTED._replace(function="min")
    parts = (COUNTED, total, least, COUNTED._replace(function="max"), COUNTED._replace(function="mean"))
    whole = fold(lambda: (0, (0, 0), (), (), (0, 0)), *parts)
    assert letters_of(whole) == b"nslgs"
    assert letters_of(dataclasses.replace(whole, init=None, partials=True)) == b"nslgs"
    assert letters_of(dataclasses.replace(whole, init=None)) is None
    assert letters_of(fold(lambda: ((0, 0.0),), total)) is None, "a sum of floats"
    assert letters_of(fold(lambda: ((),), least._replace(kind="float64"))) is None
    assert letters_of(fold(lambda: (0,), COUNTED._replace(function="last"))) is None
    assert letters_of(fold(lambda: ())) is None


@pytest.mark.parametrize(
    ("column", "serde", "expected"),
    [
        (CodedColumn(CODES, ["a", "b"]), STRING, [b"b", b"a", b"b"]),
        (CodedColumn(CODES, [1, True]), INT, None),
        (CodedColumn(CODES, ["a", None]), STRING, None),
        (CodedColumn(CODES, [1.0, 2.0]), FLOAT, None),
        (NumberColumn(np.array([1, -1])), INT, [bytes(7) + b"\x01", b"\xff" * 8]),
        (NumberColumn(np.array([1, 2]), np.array([False, True])), INT, None),
        (TEXTS, BYTES, [b"b", b"a"]),
        (TEXTS, STRING, None),
        (EncodedColumn(TEXTS, STRING, Coder()), STRING, [b"b", b"a"]),
        (EncodedColumn(TEXTS, STRING, Coder()), BYTES, None),
        (None, STRING, None),
    ],
)
def test_keys_are_bytes_where_these_are_read_as_the_keys(
    column: Column | None, serde: Any, expected: list[bytes] | None
) -> None:
    found = row_bytes(column, serde)
    assert (None if found is None else found.to_list()) == expected
