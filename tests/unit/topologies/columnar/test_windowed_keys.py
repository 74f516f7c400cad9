"""Windowed keys as columns are what the same keys as objects are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from penstock.state.log import Windowed
from penstock.state.serdes.serde import BYTES, FLOAT, INT, STRING, Serde
from penstock.state.serdes.window_keys import WindowedSerde, spanning_serde, windowed_serde
from penstock.topologies.columnar.column_parts import serialized
from penstock.topologies.columnar.windowed_keys import is_windowed, stored_keys, windowed_column
from penstock.topologies.operator_api.columns import BytesColumn, NumberColumn, StructColumn

KEYS: list[tuple[Serde[Any], list[Any]]] = [
    (STRING, ["a", "", "größe", "xy"]),
    (INT, [1, -1, 1 << 62, 0]),
    (BYTES, [b"", b"\xff\x00", b"a", b"aa"]),
    (FLOAT, [1.5, -0.0, 2.0, 1e300]),
]
STARTS, ENDS = [0, 7, -3, 1 << 61], [10, 17, 7, (1 << 61) + 9]


def column_of(serde: Serde[Any], keys: list[Any]) -> StructColumn:
    names = BytesColumn.of(serde.serialize_all(keys))
    return windowed_column(stored_keys(names, serde), np.array(STARTS), np.array(ENDS))


@pytest.mark.parametrize(("serde", "keys"), KEYS, ids=lambda of: getattr(of, "name", ""))
def test_a_column_lists_windowed_keys(serde: Serde[Any], keys: list[Any]) -> None:
    windows = list(map(Windowed, keys, STARTS, ENDS))
    column = column_of(serde, keys)
    assert repr(column.to_list()) == repr(windows)
    assert {type(number) for window in column.to_list() for number in window[1:]} == {int}
    assert repr(column.slice(1, 3).to_list()) == repr(windows[1:3])
    assert repr(column.take(np.array([3, 0])).to_list()) == repr([windows[3], windows[0]])


@pytest.mark.parametrize("of", [lambda serde: windowed_serde(serde, 10), spanning_serde])
@pytest.mark.parametrize(("serde", "keys"), KEYS, ids=lambda of: getattr(of, "name", ""))
def test_its_bytes_are_those_that_the_serde_writes(serde: Serde[Any], keys: list[Any], of: Any) -> None:
    windowed: WindowedSerde = of(serde)
    whole = column_of(serde, keys)
    for column in (whole, whole.slice(1, 4), whole.take(np.array([2, 2, 1])), whole.slice(0, 0)):
        data = serialized(column, windowed)
        assert isinstance(data, BytesColumn)
        assert data.to_list() == windowed.serialize_all(column.to_list())


def test_other_columns_are_none() -> None:
    whole = column_of(INT, [1, 2, 3, 4])
    assert is_windowed(whole)
    assert not is_windowed(NumberColumn(np.array([1])))
    assert not is_windowed(StructColumn(whole.fields, dict))
    assert not is_windowed(StructColumn(whole.fields, Windowed, np.ones(4, np.bool_)))
    assert not is_windowed(None)
    assert serialized(whole, windowed_serde(STRING, 10)) is None
