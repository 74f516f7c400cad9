"""Text serdes: what they read, what they write, and what they refuse."""

from __future__ import annotations

import csv
import io
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.state.errors import SerdeError
from penstock.state.serdes.serde import Serde
from penstock.state.serdes.text_serdes import TEXT_LINE, csv_row

TRADES = {"sym": str, "qty": int, "price": Decimal, "live": bool, "rate": float}
ROW = {"sym": 'A, "B"\nC', "qty": -3, "price": Decimal("1.50"), "live": True, "rate": 0.5}


def test_a_line_has_no_end() -> None:
    for data in (b"caf\xc3\xa9", b"caf\xc3\xa9\n", b"caf\xc3\xa9\r\n"):
        assert TEXT_LINE.deserialize(data) == "café"
    assert TEXT_LINE.serialize("café") == b"caf\xc3\xa9"


@pytest.mark.parametrize("bad", [b"\xff", b"a\nb", b"a\n\n"])
def test_what_is_no_line_is_refused(bad: bytes) -> None:
    with pytest.raises(SerdeError, match="text-line"):
        TEXT_LINE.deserialize(bad)


def test_lines_are_written_one_a_record() -> None:
    with pytest.raises(SerdeError, match="one line per record"):
        TEXT_LINE.serialize("a\nb")


def test_csv_reads_types_quotes_and_nulls() -> None:
    serde = csv_row(TRADES)
    assert serde.deserialize(b'"A, ""B""\nC",-3,1.50,true,0.5\r\n') == ROW
    assert serde.deserialize(b"X,,,false,1e3") == {"sym": "X", "qty": None, "price": None, "live": False, "rate": 1e3}
    assert serde.serialize(ROW) == b'"A, ""B""\nC",-3,1.50,true,0.5'


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"X,1,1,true", "4 fields"),
        (b"X,1,1,true,1,2", "6 fields"),
        (b"X,one,1,true,1", "'qty' cannot be 'one'"),
        (b"X,1,1,True,1", "'live' cannot be 'True'"),
        (b"X,1,1,true,1\nY,1,1,true,1", "2 rows"),
        (b"", "0 rows"),
        (b'"X,1,1,true,1', "cannot read"),
        (b'"X"y,1,1,true,1', "cannot read"),
        (b"\xff,1,1,true,1", "UTF-8"),
    ],
)
def test_bad_rows_are_refused_with_their_reason(data: bytes, why: str) -> None:
    with pytest.raises(SerdeError, match=why):
        csv_row(TRADES).deserialize(data)


def test_a_header_names_the_columns_in_its_own_order() -> None:
    serde = csv_row({"a": int, "b": str}, header=True)
    assert serde.deserialize(b"b,a\nx,1\n") == {"a": 1, "b": "x"}
    assert serde.serialize({"a": 1, "b": "x"}) == b"a,b\n1,x"
    for data, why in ((b"a,c\n1,x", "the header is"), (b"a,b", "1 rows"), (b"a,b\n1,x\n2,y", "3 rows")):
        with pytest.raises(SerdeError, match=why):
            serde.deserialize(data)


def test_other_delimiters_quotes_and_nulls() -> None:
    serde = csv_row(["a", "b"], delimiter=";", quote="'", null="NULL")
    assert serde.deserialize(b"'x;''y';NULL") == {"a": "x;'y", "b": None}
    assert serde.serialize({"a": "x;'y", "b": None}) == b"'x;''y';NULL"
    assert serde.deserialize(b";") == {"a": "", "b": ""}


@given(
    rows=st.fixed_dictionaries(
        {
            "a": st.none() | st.text(min_size=1, max_size=6).filter(lambda s: "\0" not in s),
            "b": st.none() | st.integers(),
            "c": st.none() | st.floats(allow_nan=False),
        }
    ),
    header=st.booleans(),
)
def test_csv_rows_come_back(rows: dict[str, Any], header: bool) -> None:
    serde = csv_row({"a": str, "b": int, "c": float}, header=header)
    assert serde.deserialize(serde.serialize(rows)) == rows


def test_what_would_come_back_otherwise_is_not_written() -> None:
    with pytest.raises(SerdeError, match="no value"):
        csv_row(["a"]).serialize({"a": ""})
    with pytest.raises(SerdeError, match="any text"):
        csv_row(["a"], null=None).serialize({"a": None})
    for row in ({"b": 1}, {"a": 1, "b": 2}, ["x"]):
        with pytest.raises(SerdeError, match="give a dict with the keys a"):
            csv_row(["a"]).serialize(row)  # type: ignore[arg-type]  # the refusal is what is tested


@pytest.mark.parametrize(
    "make",
    [
        lambda: csv_row([]),
        lambda: csv_row(["a", "a"]),
        lambda: csv_row({"a": "int"}),  # type: ignore[dict-item]  # the refusal is what is tested
        lambda: csv_row(["a"], delimiter=",,"),
        lambda: csv_row(["a"], delimiter='"'),
    ],
)
def test_serdes_that_cannot_be_are_refused_when_made(make: Any) -> None:
    with pytest.raises(SerdeError):
        serde: Serde[Any] = make()
        assert serde


def by_the_module(text: str, delimiter: str, quote: str) -> list[str] | None:
    """The fields that Python's reader finds; ``None`` where it refuses the line or finds more than one."""
    try:
        rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, quotechar=quote, strict=True))
    except csv.Error:
        return None
    return (rows[0] or [""]) if len(rows) == 1 else None


@given(
    text=st.text(alphabet="ab,;\"' \t\r\n\0-1", max_size=12),
    delimiter=st.sampled_from(",; \t"),
    quote=st.sampled_from("\"'"),
    columns=st.integers(1, 4),
)
def test_simple_lines_are_split_as_the_module_splits_them(text: str, delimiter: str, quote: str, columns: int) -> None:
    serde = csv_row([f"c{n}" for n in range(columns)], delimiter=delimiter, quote=quote, null=None)
    fields = by_the_module(text, delimiter, quote)
    if fields is None or len(fields) != columns:
        with pytest.raises(SerdeError):
            serde.deserialize(text.encode())
    else:
        assert list(serde.deserialize(text.encode()).values()) == fields


@pytest.mark.parametrize("null", ["", None, "NULL", "-1", "7"])
@given(numbers=st.lists(st.integers() | st.booleans() | st.none(), min_size=2, max_size=2))
def test_rows_of_numbers_are_written_as_any_other(null: str | None, numbers: list[Any]) -> None:
    """A column of text beside them makes the line take the long way."""
    short, long = (csv_row({"a": int, "b": int, **more}, null=null) for more in ({}, {"c": str}))
    row = {"a": numbers[0], "b": numbers[1]}
    try:
        expected = long.serialize({**row, "c": "x"}).removesuffix(b",x")
    except SerdeError:
        with pytest.raises(SerdeError):
            short.serialize(row)
    else:
        assert short.serialize(row) == expected
