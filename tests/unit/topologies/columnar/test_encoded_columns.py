"""Columns that keep the log's bytes give what their serde reads, also of parts of them."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from penstock.state.serdes.serde import FLOAT, INT, STRING, Serde, typed_json
from penstock.topologies.columnar.encoded_columns import EncodedColumn, ParsedColumn
from penstock.topologies.columnar.kernels import Coder
from penstock.topologies.operator_api.columns import BytesColumn, CodedColumn, joined


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
    assert joined([column, part]) is None  # nobody may take them for records built of their fields
    assert ParsedColumn(raw, serde, {}, raw.nulls).take(np.array([0])).to_list() == [Row("x", 1)]
