"""Columns that keep the log's bytes give what their serde reads, also of parts of them."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from penstock.state.serdes.serde import FLOAT, INT, STRING, Serde, typed_json
from penstock.topologies.columnar.encoded_columns import AddressedColumn, EncodedColumn, ParsedColumn, WrittenColumn
from penstock.topologies.columnar.kernels import Coder
from penstock.topologies.columnar.text_columns import FieldReaders, TextColumn, TextPool
from penstock.topologies.operator_api.columns import BytesColumn, CodedColumn, StructColumn, joined


class Row(msgspec.Struct):
    a: str
    b: int


@pytest.mark.parametrize(
    ("serde", "values"),
    [(STRING, ["x", "größe", "", None, "x"]), (INT, [1, -1, None, 2**62, 1]), (FLOAT, [0.0, -0.0, 1.5, None])],
)
def test_values_are_what_the_serde_reads(serde: Serde[Any], values: list[Any]) -> None:
    raw = BytesColumn.of(serde.serialize_all(values))
    for first in ("to_list", "codes"):
        column = EncodedColumn(raw, serde, Coder())
        getattr(column, first, None) if first == "codes" else column.to_list()
        places = np.array([len(values) - 1, 0, 0])
        assert [repr(v) for v in column.to_list()] == [repr(v) for v in values]
        assert column.take(places).to_list() == [values[i] for i in places]
        part = column.slice(1, 4).take(np.array([2, 0]))
        assert part.to_list() == [values[3], values[1]]
        assert part.raw.to_list() == [raw.to_list()[3], raw.to_list()[1]]
        assert len(part) == 2
        assert [repr(part.values[c]) for c in part.codes.tolist()] == [repr(values[3]), repr(values[1])]


def test_records_are_read_from_their_bytes() -> None:
    serde = typed_json(Row)
    rows = [Row("x", 1), None, Row("y", 2)]
    raw = BytesColumn.of(serde.serialize_all(rows))
    fields = {"a": CodedColumn.of(["x", None, "y"])}
    column = ParsedColumn(raw, serde, fields, raw.nulls)
    assert column.to_list() == rows
    part = column.take(np.array([2, 1])).slice(0, 1)
    assert part.to_list() == [Row("y", 2)]
    assert part.fields["a"].to_list() == ["y"]
    assert len(part) == 1
    whole = joined([column, part, column])
    assert isinstance(whole, ParsedColumn)
    assert whole.to_list() == [*rows, Row("y", 2), *rows]
    assert whole.fields["a"].to_list() == ["x", None, "y", "y", "x", None, "y"]
    # nobody may take them for records built of their fields
    assert joined([column, StructColumn(fields, Row, raw.nulls)]) is None
    assert joined([column, ParsedColumn(raw, serde, {}, raw.nulls)]) is None
    assert ParsedColumn(raw, serde, {}, raw.nulls).take(np.array([0])).to_list() == [Row("x", 1)]


def test_values_stay_bytes_one_behind_the_other() -> None:
    raw = BytesColumn.of(INT.serialize_all([1, None, 1, 2]))
    column = WrittenColumn(raw, INT, Coder())
    for parts in ([column, column.slice(1, 3)], [column.take(np.array([0])), column, column.slice(2, 4)]):
        for known in (False, True):
            if known:
                assert all(len(part.codes) == len(part) for part in parts)
            whole = joined(parts)
            assert type(whole) is WrittenColumn
            assert whole.to_list() == [value for part in parts for value in part.to_list()]
            assert whole.raw.to_list() == [data for part in parts for data in part.raw.to_list()]
    mixed = joined([column, EncodedColumn(raw, INT, Coder())])
    assert not isinstance(mixed, EncodedColumn) and mixed is not None and mixed.to_list() == [1, None, 1, 2] * 2


def test_values_keep_their_partitions() -> None:
    def route(key: Any, value: int, partitions: int) -> int:
        return value % partitions

    raw = BytesColumn.of(INT.serialize_all([5, 6, 7]))
    column = AddressedColumn(raw, INT, Coder(), np.array([1, 2, 0]), route, lambda value, partition: (value, partition))
    assert column.to_list() == [(5, 1), (6, 2), (7, 0)]
    parts = [column.take(np.array([2, 0])), column.slice(1, 3)]
    whole = joined(parts)
    assert isinstance(whole, AddressedColumn)
    assert whole.partitions.tolist() == [0, 1, 2, 0]
    assert whole.to_list() == [(7, 0), (5, 1), (6, 2), (7, 0)]


def test_records_of_pools_follow_each_other() -> None:
    serde = typed_json(Row)
    readers = FieldReaders(serde, msgspec.json.Decoder(Row))
    one, other = (
        TextPool(BytesColumn.of(serde.serialize_all([Row(a, n), Row(a, n + 1)])), readers)
        for a, n in (("x", 1), ("y", 5))
    )
    columns = [
        TextColumn(one, np.array([1, -1])),
        TextColumn(other, np.array([0, 1, 0])),
        TextColumn(one, np.array([0])),
    ]
    for parts in (columns, [columns[0], columns[2]]):
        whole = joined(parts)
        assert isinstance(whole, TextColumn)
        assert whole.to_list() == [value for part in parts for value in part.to_list()]
        assert whole.fields["b"].to_list() == [None if row is None else row.b for row in whole.to_list()]
        assert whole.raw.to_list() == [data for part in parts for data in part.raw.to_list()]
    assert joined([columns[1], TextColumn(one, np.array([-1]))]) is not None
