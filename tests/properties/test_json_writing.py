"""Records of columns written as JSON field by field: the bytes that the serde writes of the records, whatever the fields
hold; nothing where it refuses one."""

from __future__ import annotations

import dataclasses
import decimal
import enum
import math
import uuid
from typing import Any

import msgspec
import numpy as np
import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.state.errors import SerdeError
from penstock.state.serdes.serde import JSON, Serde, finite
from penstock.topologies.columnar.decimal_columns import DecimalColumn
from penstock.topologies.columnar.json_writing import DictOf, encoder_of, written_json
from penstock.topologies.operator_api.columns import BytesColumn, CodedColumn, Column, NumberColumn, StructColumn


class Colour(enum.Enum):
    RED = "red\n"


class Point(msgspec.Struct):
    x: int
    text: str


@dataclasses.dataclass
class Pair:
    b: int
    a: str


def _hooked(value: Any) -> Any:
    if isinstance(value, complex):
        return {"re": value.real, "im": value.imag}
    raise TypeError(f"no JSON for {value!r}")


def _serde(encoder: msgspec.json.Encoder) -> Serde[Any]:
    return Serde("own", encoder.encode, msgspec.json.decode)


SERDES: dict[str, Serde[Any]] = {
    "orjson": JSON,
    "msgspec": Serde("plain", msgspec.json.encode, msgspec.json.decode),
    "orjson, finite": finite(JSON),
    "msgspec, finite": finite(Serde("plain", msgspec.json.encode, msgspec.json.decode)),
    "typed": Serde("typed", msgspec.json.Encoder().encode, msgspec.json.Decoder(Point).decode),
    "decimals": _serde(msgspec.json.Encoder(decimal_format="number", uuid_format="hex")),
    "sorted": _serde(msgspec.json.Encoder(order="sorted")),
    "deterministic": _serde(msgspec.json.Encoder(order="deterministic")),
    "hooked": _serde(msgspec.json.Encoder(enc_hook=_hooked)),
}
TEXTS = st.text(alphabet=st.sampled_from('ab%{}"\\/\n\r\t\x00\x1f\x7f\x85\u2028é日😀 \ud800'), max_size=6)
FLOATS = st.floats() | st.sampled_from([0.0, -0.0, 1e16, 1e22, 5e-324, math.nan, math.inf, -math.inf])
INTS = st.integers(-3, 3) | st.sampled_from([2**63 - 1, -(2**63), 2**63, 2**64 - 1, 2**64, 2**53 + 1])
OTHERS = st.sampled_from(
    [
        b"",
        b"a\n",
        decimal.Decimal("1.50"),
        uuid.UUID(int=7),
        Colour.RED,
        Point(1, "%s\n"),
        Pair(1, "a"),
        {"b": 1, "a": {"d": 1, "c": [2]}},
        [1, True, 1.0, None],
        (1, "x"),
        {1: "not a text"},
        msgspec.Raw(b'{"b":1,\n"a":2}'),
        msgspec.Raw(b"1\n"),
        2j,
    ]
)
PLAIN = st.none() | st.booleans() | INTS | FLOATS | TEXTS
NAMES = st.sampled_from(["a", "b", "n", "50%", "%s", 'q"', "é", "", "\n", "a b", "\\"])


@st.composite
def columns(draw: st.DrawFn, rows: int, depth: int = 1) -> Column:
    """A field: coded, with values that nobody uses; an array, with nulls; or records again."""
    kind = draw(st.integers(0, 6 if depth else 5))
    if kind == 6:
        return draw(records(rows, depth - 1))
    if kind == 5:
        return draw(decimals(rows))
    if kind == 4:
        return BytesColumn.of(draw(st.lists(st.none() | st.binary(max_size=3), min_size=rows, max_size=rows)))
    if kind < 2:
        held = draw(st.sampled_from([PLAIN, PLAIN, TEXTS, PLAIN | OTHERS]))
        values = draw(st.lists(held, min_size=1, max_size=rows + 3))
        codes = draw(st.lists(st.integers(0, len(values) - 1), min_size=rows, max_size=rows))
        return CodedColumn(np.array(codes, np.int32), values)
    within = st.integers(-(2**63), 2**63 - 1)
    drawn, dtype = (
        (within, np.int64) if kind == 2 else draw(st.sampled_from([(FLOATS, np.float64), (st.booleans(), bool)]))
    )
    array = np.array(draw(st.lists(drawn, min_size=rows, max_size=rows)), dtype)
    nulls = np.array(draw(st.lists(st.booleans(), min_size=rows, max_size=rows)), np.bool_)
    return NumberColumn(array, nulls if draw(st.booleans()) else None)


@st.composite
def decimals(draw: st.DrawFn, rows: int) -> DecimalColumn:
    """Decimals, some of which stand in an exponent's place or are null, or parts of such a column."""
    number = st.integers(-(2**63), 2**63 - 1) | st.integers(-1_000, 1_000)
    unscaled = np.array(draw(st.lists(number, min_size=2 * rows, max_size=2 * rows)), np.int64)
    nulls = np.array(draw(st.lists(st.booleans(), min_size=2 * rows, max_size=2 * rows)), np.bool_)
    whole = DecimalColumn(unscaled, draw(st.integers(0, 9)), nulls if draw(st.booleans()) else None)
    way = draw(st.integers(0, 2))
    if way == 0:
        return whole.slice(rows, 2 * rows)
    if way == 1:
        return whole.take(np.arange(0, 2 * rows, 2))
    half = rows // 2
    joined = whole.slice(0, half).followed_by([whole.slice(2 * half, rows + half)])
    assert joined is not None
    return joined


@st.composite
def records(draw: st.DrawFn, rows: int | None = None, depth: int = 1) -> StructColumn:
    """Some records, of which some are null."""
    count = draw(st.integers(0, 5)) if rows is None else rows
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    fields = {name: draw(columns(count, depth)) for name in names}
    nulls = np.array(draw(st.lists(st.booleans(), min_size=count, max_size=count)), np.bool_)
    return StructColumn(fields, DictOf(names), nulls if draw(st.booleans()) else None)


def coded(**fields: list[Any]) -> StructColumn:
    """Records of coded fields, no value of which stands twice."""
    made = {n: CodedColumn(np.arange(len(v), dtype=np.int32), v) for n, v in fields.items()}
    return StructColumn(made, DictOf(made))


def check(name: str, column: StructColumn) -> bool:
    """Whether the records were written by their fields."""
    serde = SERDES[name]
    encode = encoder_of(serde)
    found = None if encode is None else written_json(column, encode)
    try:
        expected = serde.serialize_all(column.to_list())
    except SerdeError:
        assert found is None
        return False
    assert found is None or listed(found) == expected
    return found is not None


def listed(found: Column | list[bytes | None]) -> list[bytes | None]:
    return found.to_list() if isinstance(found, Column) else found


@example("sorted", coded(b=[1, 2], a=["x", "y"]))
@example("deterministic", coded(b=[1], a=[2]))
@example("typed", coded(b=[msgspec.Raw(b"[\n]"), msgspec.Raw(b"1")]))
@example("typed", coded(b=["plain", msgspec.Raw(b"1\n")]))
@given(st.sampled_from(sorted(SERDES)), records())
def test_fields_put_together_are_the_serde_s_records(name: str, column: StructColumn) -> None:
    check(name, column)


@pytest.mark.parametrize("name", ["orjson", "msgspec", "typed", "decimals", "hooked"])
def test_plain_records_are_written_by_their_fields(name: str) -> None:
    numbers = NumberColumn(np.array([0.5, -0.0, math.nan]), np.array([False, False, True]))
    texts = CodedColumn.of(["plain", '"', None])
    column = StructColumn({"x%": numbers, "t": texts, "n": NumberColumn(np.array([1, 2, 3]))}, DictOf(["x%", "t", "n"]))
    assert check(name, column)
    found = written_json(column, SERDES[name].serialize)
    assert found is not None
    assert orjson.loads(listed(found)[1] or b"") == {"x%": -0.0, "t": '"', "n": 2}
