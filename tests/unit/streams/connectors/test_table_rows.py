"""Records become rows."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import uuid

import msgspec
import pytest

from penstock.state.errors import SettingsError
from penstock.state.log import Windowed
from penstock.streams.connectors.table_rows import RowShape, TableRow, names_of


class Order(msgspec.Struct):
    cents: int
    at: datetime.date


@dataclasses.dataclass
class Place:
    city: str
    street: str


def test_values_with_and_without_fields() -> None:
    shape = RowShape(("id",), timestamp="at_ms")
    assert shape.row("a", Order(5, datetime.date(2024, 2, 1)), 9) == TableRow(
        ("a",), {"cents": 5, "at": "2024-02-01", "id": "a", "at_ms": 9}
    )
    assert shape.row("a", {"x": b"\x00", "y": [1]}, 9).columns == {"x": b"\x00", "y": [1], "id": "a", "at_ms": 9}
    assert RowShape(("id",), "n").row("a", 7, 9) == TableRow(("a",), {"n": 7, "id": "a"})
    made = RowShape((), "n").row(None, decimal.Decimal("1.10"), 9)
    assert made == TableRow((), {"n": "1.10"})
    assert RowShape(("id",)).row(uuid.UUID(int=1), 1, 0).key == ("00000000-0000-0000-0000-000000000001",)


def test_null_deletes() -> None:
    assert RowShape(("id",)).row("a", None, 9) == TableRow(("a",), None)


def test_keys_with_parts() -> None:
    assert RowShape(("city", "street")).row(Place("b", "s"), 1, 0).key == ("b", "s")
    assert RowShape(("street", "city")).row({"city": "b", "street": "s", "more": 1}, 1, 0).key == ("s", "b")
    assert RowShape(("a", "b")).row(("x", "y"), 1, 0).key == ("x", "y")
    window = Windowed("berlin", 0, 60_000)
    assert RowShape(("city", "start")).row(window, 1, 0).key == ("berlin", 0)
    assert RowShape(("city", "start", "end")).row(window, 1, 0).columns == {
        "value": 1,
        "city": "berlin",
        "start": 0,
        "end": 60_000,
    }
    assert RowShape(("city", "street", "start")).row(Windowed(Place("b", "s"), 5, 9), 1, 0).key == ("b", "s", 5)


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        (None, 1, "null for a key column"),
        (("a", "b"), 1, "has 2 parts and key= names 1 columns: id"),
        ({"x": 1}, 1, "no field 'id'"),
        ("a", {1: 2}, "columns have texts for names"),
    ],
)
def test_records_that_make_no_row(key: object, value: object, why: str) -> None:
    with pytest.raises((ValueError, TypeError), match=why):
        RowShape(("id",)).row(key, value, 0)


def test_names() -> None:
    assert names_of("a", "key") == ("a",)
    assert names_of(["a", "b"], "key") == ("a", "b")
    for wrong in ("", ["a", "a"], ["a", 1], "a\0"):
        with pytest.raises(SettingsError, match="key="):
            names_of(wrong, "key")  # type: ignore[arg-type]  # some are no names
