"""Changes of a table's rows as columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.state.errors import SerdeError
from penstock.state.serdes.change_serde import Change, change_serde
from penstock.state.serdes.serde import BYTES, JSON, Serde
from penstock.topologies.columnar.change_columns import change_column, read_changes, sides_of, written_changes
from penstock.topologies.columnar.column_parts import present, spread_over, with_nulls
from penstock.topologies.columnar.encoded_columns import EncodedColumn, ParsedColumn
from penstock.topologies.columnar.kernels import Coder
from penstock.topologies.expressions.types import FLOAT64, INT64, struct_of
from penstock.topologies.operator_api.batch import Batch
from penstock.topologies.operator_api.columns import BytesColumn, CodedColumn, Column, NumberColumn, StructColumn
from penstock.topologies.operators.columnar.declared_records import records_of

SERDE = change_serde(BYTES)
ROWS = st.none() | st.binary(max_size=3) | st.sampled_from([b"x" * 63, b"x" * 64, b"y" * 8191, b"y" * 8192])
CHANGES = st.lists(st.tuples(ROWS, ROWS).filter(lambda c: c != (None, None)), min_size=1, max_size=8)


@given(CHANGES, st.data())
def test_bytes_are_those_of_the_serde(changes: list[tuple[Any, Any]], data: st.DataObject) -> None:
    news, olds = (BytesColumn.of(list(side)) for side in zip(*changes, strict=True))
    written = written_changes(news, olds)
    assert written is not None
    assert written.to_list() == [SERDE.serialize(Change(*c)) for c in changes]
    start = data.draw(st.integers(0, len(changes) - 1))
    read = read_changes(written.slice(start, len(changes)))
    assert read is not None
    assert list(zip(*(side.to_list() for side in read), strict=True)) == changes[start:]


def test_a_change_of_nothing_is_left_to_the_serde() -> None:
    assert written_changes(BytesColumn.of([b"a", None]), BytesColumn.of([None, None])) is None


GOOD = SERDE.serialize(Change(b"new", b"old"))
BAD = [
    b"",
    b"\x02",
    b"x\x03",
    b"\x07abc\x02",
    b"\x7fabc\x02",
    b"\x80\x02",
    b"\x80" * 9 + b"\x02",
    b"\x80\x80\x80\x80\x80\x01\x02",
]


@pytest.mark.parametrize("bad", BAD, ids=repr)
def test_bytes_that_are_no_change_are_left_to_the_serde(bad: bytes) -> None:
    with pytest.raises(SerdeError):
        SERDE.deserialize(bad)
    for rows in ([bad], [GOOD, bad], [bad, GOOD]):
        assert read_changes(BytesColumn.of(list(rows))) is None


@given(st.binary(max_size=12))
def test_what_is_read_is_what_the_serde_reads(data: bytes) -> None:
    found = read_changes(BytesColumn.of([GOOD, data, GOOD]))
    try:
        change = SERDE.deserialize(data)
    except SerdeError:
        assert found is None
        return
    assert found is not None
    assert Change(*(side.to_list()[1] for side in found)) == change


def test_null_changes_are_left_to_the_rows() -> None:
    assert read_changes(BytesColumn.of([GOOD, None])) is None


def test_a_column_of_changes_lists_them() -> None:
    news, olds = CodedColumn.of([1, None]), CodedColumn.of([None, 2])
    column = change_column(news, olds)
    assert column.to_list() == [Change(1, None), Change(None, 2)]
    assert sides_of(column) == (news, olds)
    assert sides_of(news) is None
    assert sides_of(StructColumn({"new": news, "old": olds}, dict)) is None


NULLS = np.array([False, True, False])


@pytest.mark.parametrize(
    "column",
    [
        NumberColumn(np.array([1, 2, 3])),
        NumberColumn(np.array([1, 2, 3]), np.array([True, False, False])),
        CodedColumn.of(["a", "b", "a"]),
        BytesColumn.of([b"a", b"bb", None]),
        EncodedColumn(BytesColumn.of([b"1", b"2", b"1"]), Serde("n", lambda n: b"%d" % n, int), Coder()),
        StructColumn({"a": CodedColumn.of([1, 2, 3])}, lambda a: {"a": a}, np.array([False, False, True])),
        ParsedColumn(BytesColumn.of([b"1", b"2", b"3"]), JSON, {"n": NumberColumn(np.array([1, 2, 3]))}, None),
    ],
    ids=lambda column: type(column).__name__,
)
def test_nulls_are_added(column: Column) -> None:
    made = with_nulls(column, NULLS)
    assert made is not None
    values = column.to_list()
    assert made.to_list() == [values[0], None, values[2]]
    assert with_nulls(column, np.zeros(3, np.bool_)) is column
    if isinstance(made, StructColumn):
        assert all(field.to_list()[1] is None for field in made.fields.values())
    places, rows = present(Batch([1, 2, 3], [0] * 3, [4, 5, 6], [0] * 3), made)
    assert places is not None
    assert rows.keys == [n for n, v in zip([1, 2, 3], made.to_list(), strict=True) if v is not None]
    back = spread_over(column.take(places), places, 3)
    assert back is not None
    assert back.to_list() == made.to_list()


def test_nothing_is_spread_as_nulls() -> None:
    column = spread_over(NumberColumn(np.zeros(0, np.int64)), np.zeros(0, np.intp), 2)
    assert column is not None
    assert column.to_list() == [None, None]


DECLARED = Serde(
    JSON.name, JSON.serialize, JSON.deserialize, declared=struct_of({"n": INT64, "x": FLOAT64, "m": INT64.or_null()})
)


def test_declared_fields_of_json_are_read_apart() -> None:
    records = records_of(DECLARED)
    assert records is not None
    assert records.why_not(["n", "m"]) is None
    assert records.why_not(["x"]) == "of untyped JSON, x cannot be read apart"
    assert records.why_not([("n", "a")]) is not None
    rows = BytesColumn.of([b'{"n":1,"x":0.5,"m":null}', None, b'{"m": 3, "n": 18446744073709551615, "more": []}'])
    columns, failed = records.projection(["n", "m"]).read(rows)
    assert not failed
    assert columns["n"].to_list() == [1, None, 18446744073709551615]
    assert columns["m"].to_list() == [None, None, 3]


@pytest.mark.parametrize(
    "row", [b'{"n":1.0,"m":1}', b'{"n":true,"m":1}', b'{"m":1}', b"[]", b"1", b"null", b'{"n":1', b'{"n":"1","m":1}']
)
def test_other_records_are_not(row: bytes) -> None:
    records = records_of(DECLARED)
    assert records is not None
    assert records.projection(["n", "m"]).read(BytesColumn.of([row])).failed


def test_records_without_a_declaration_are_not() -> None:
    assert records_of(JSON) is None
    assert records_of(BYTES) is None
