"""Sizes of records, in lists and in columns."""

from __future__ import annotations

import numpy as np

from penstock.streams.ports.record_sizes import size_of
from penstock.streams.task.output import Output
from penstock.topologies.operator_api.columns import BytesColumn, CodedColumn

KEYS: list[bytes | None] = [b"a", None, b"ccc"]
VALUES: list[bytes | None] = [b"1234", b"", None]


def test_lists_and_columns_are_as_large() -> None:
    times = [1, 2, 3]
    assert size_of(Output("t", KEYS, VALUES, times)) == 8
    assert size_of(Output("t", BytesColumn.of(KEYS), BytesColumn.of(VALUES), times)) == 8
    assert size_of(Output("t", CodedColumn.of(KEYS), CodedColumn.of(VALUES), times)) == 8
    assert size_of(Output("t", BytesColumn.of(KEYS).slice(2, 3), BytesColumn.of(VALUES).slice(0, 1), [1])) == 7
    assert size_of(Output("t", [], [], [])) == 0


def test_long_lists_are_estimated_by_their_first_records() -> None:
    rows: list[bytes | None] = [b"12345678"] * 1_000
    assert size_of(Output("t", rows, rows, [0] * 1_000)) == 16_000


def test_coded_columns_are_not_looked_at_whole() -> None:
    """As lists are not: a batch holds tens of thousands of values, and most of them once."""
    rows = [b"x" * 8] * 64 + [b"x" * 1_000] * 936
    coded = CodedColumn(np.arange(1_000, dtype=np.int32), list(rows))
    assert size_of(Output("t", coded, BytesColumn.of(rows), [0] * 1_000)) == 8_000 + 64 * 8 + 936_000
