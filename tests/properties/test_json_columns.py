"""Fields read out of JSON into columns are what the row decoder says, with and without the compiled part."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from typing import Any, TypedDict

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.state import native
from penstock.topologies.columnar.json_columns import JsonProjection
from penstock.topologies.columnar.record_shapes import why_not_projected
from penstock.topologies.operator_api.columns import BytesColumn
from tests.properties.json_records import INTERESTING, batch


class Plain(msgspec.Struct):
    s: str
    i: int
    f: float
    b: bool


class Loose(msgspec.Struct, rename={"s": "ess", "f": "ä"}):
    s: str | None = "default"
    i: int | None = None
    f: float = -0.0
    b: bool = True
    a: Any = None


class Narrow(msgspec.Struct, forbid_unknown_fields=True):
    i: int
    s: str = ""


@dataclasses.dataclass
class Written:
    s: str
    i: int
    f: float = -0.0
    b: bool | None = None
    a: Any = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Slotted:
    i: int | None = 7
    s: str


class Row(TypedDict):
    s: str | None
    f: float


TYPES: list[tuple[Any, list[str]]] = [
    (Plain, ["s", "i", "f", "b"]),
    (Plain, ["f"]),
    (Loose, ["b", "s", "f", "i"]),
    (Loose, ["i"]),
    (Narrow, ["s", "i"]),
    (Row, ["f", "s"]),
    (Written, ["b", "s", "i", "f"]),
    (Written, ["i"]),
    (Slotted, ["s", "i"]),
]


@pytest.fixture(params=["auto", "off"])
def choice(request: pytest.FixtureRequest) -> Iterator[native.Choice]:
    """With the compiled part, where it is there, and without."""
    native.choose(request.param)
    yield request.param
    native.choose("auto")


def check(tp: Any, fields: list[str], projection: JsonProjection, records: list[bytes | None]) -> None:
    decode = msgspec.json.Decoder(tp).decode
    expected: dict[str, list[Any]] = {name: [] for name in fields}
    errors: list[tuple[int, str]] = []
    for row, data in enumerate(records):
        try:
            record = None if data is None else decode(data)
        except Exception as exc:
            errors.append((row, repr(exc)))
            continue
        for name in fields:
            value = record[name] if isinstance(record, dict) else getattr(record, name, None)
            expected[name].append(value)
    columns, failed = projection.read(BytesColumn.of(records))
    assert [(row, repr(exc)) for row, exc in failed] == errors
    assert list(columns) == fields
    bad = {row for row, _ in failed}
    for name, column in columns.items():
        assert len(column) == len(records)
        found = [v for row, v in enumerate(column.to_list()) if row not in bad]
        assert repr(found) == repr(expected[name]), name  # tells -0.0 from 0.0, 1 from 1.0 and from True


@pytest.mark.parametrize(("tp", "fields"), TYPES)
def test_columns_are_what_the_decoder_says(choice: native.Choice, tp: Any, fields: list[str]) -> None:
    assert why_not_projected(tp, fields) is None
    projection = JsonProjection(tp, fields, msgspec.json.Decoder(tp).decode)

    rng = random.Random(repr((tp, fields)))
    for _ in range(60):
        check(tp, fields, projection, batch(rng))  # one projection, which remembers how records were laid out


@pytest.mark.parametrize("field", ["s", "i", "f", "b", "x"])
def test_every_odd_value_in_every_field(choice: native.Choice, field: str) -> None:
    plain = {"s": '"view"', "i": "1", "f": "0.5", "b": "true", "x": "null"}
    fields = ["s", "i", "f", "b"]
    projection = JsonProjection(Plain, fields, msgspec.json.Decoder(Plain).decode)
    for value in INTERESTING:
        members = ",".join(f'"{k}":{value if k == field else v}' for k, v in plain.items())
        check(Plain, fields, projection, [f"{{{members}}}".encode()] * 2)


@given(st.randoms(use_true_random=True))
def test_any_batch(rng: random.Random) -> None:
    tp, fields = rng.choice(TYPES)
    projection = JsonProjection(tp, fields, msgspec.json.Decoder(tp).decode)
    check(tp, fields, projection, batch(rng))
