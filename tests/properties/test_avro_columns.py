"""Fields read out of Avro into columns are what the row decoder says, for any schemas, versions and damage."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator
from typing import Any

import fastavro
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import schemas
from penstock.state import native
from penstock.state.serdes.models import converted
from penstock.streams.kafka.schemas.typed_values import AVRO_KINDS
from penstock.topologies.columnar.avro_columns import AvroForm, AvroProjection, avro_form, why_not_avro
from penstock.topologies.operator_api.columns import BytesColumn

NAMES = ["a", "b", "c", "d", "e"]
INTS, LONGS = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": INTS,
    "long": LONGS,
    "float": st.floats(width=32),
    "double": st.floats(),
    "bytes": st.binary(max_size=8) | st.text(max_size=4).map(str.encode),
    "string": st.text(max_size=6),
}
# what a text default becomes depends on the library, and some types refuse it
DEFAULTS: dict[str, st.SearchStrategy[Any]] = {**VALUES, "bytes": st.text("abc"), "float": LONGS | st.floats(-9, 9)}
SYMBOLS = ["RED", "GREEN", "BLUE"]
ANNOTATIONS: list[Any] = [str, int, float, bool, bytes, Any]
LIKELY: dict[str, list[Any]] = {
    "null": [Any],
    "boolean": [bool],
    "int": [int, float],
    "long": [int, float],
    "float": [float],
    "double": [float],
    "bytes": [bytes],
    "string": [str],
    "enum": [str],
}
NEXT = {
    "int": ["long", "float", "double"],
    "long": ["double"],
    "float": ["double"],
    "string": ["bytes"],
    "bytes": ["string"],
}


@pytest.fixture(params=["auto", "off"])
def choice(request: pytest.FixtureRequest) -> Iterator[native.Choice]:
    """With the compiled part, where it is there, and without."""
    native.choose(request.param)
    yield request.param
    native.choose("auto")


class Field:
    """A field of a schema, as drawn: its type, and values of it."""

    def __init__(self, draw: Callable[[Any], Any], name: str, kind: str | None = None) -> None:
        self.name = name
        self.kind = draw(st.sampled_from([*VALUES, "enum"])) if kind is None else kind
        self.union = draw(st.sampled_from([None, None, 0, 1])) if self.kind != "null" else None
        self.symbols = draw(st.permutations(SYMBOLS))[: draw(st.integers(1, 3))]
        self.values = st.sampled_from(self.symbols) if self.kind == "enum" else VALUES[self.kind]
        if self.union is not None:
            self.values = st.none() | self.values

    def schema(self, default: tuple[Any, ...] = ()) -> dict[str, Any]:
        tp: Any = self.kind
        if tp == "enum":
            tp = {"type": "enum", "name": f"E{self.name}", "symbols": self.symbols}
        if self.union is not None:
            tp = ["null", tp] if self.union == 0 else [tp, "null"]
        return {"name": self.name, "type": tp, **({"default": default[0]} if default else {})}


def record(fields: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "record", "name": "shop.R", "fields": fields}


def with_default(draw: Callable[[Any], Any], field: Field) -> dict[str, Any]:
    if field.union == 0 or field.kind == "null":
        return field.schema((None,))
    return field.schema((draw(DEFAULTS.get(field.kind, st.sampled_from(field.symbols))),))


@st.composite
def cases(
    draw: Callable[[Any], Any],
) -> tuple[Any, dict[str, Any] | None, list[dict[str, Any]], list[tuple[int, bytes]]]:
    """A type, the schema that records are read as, those that they were written by, and records with numbers of them."""
    names = draw(st.permutations(NAMES))[: draw(st.integers(1, 5))]
    first = [Field(draw, n) for n in names]
    versions: list[list[Field]] = [first]
    for _ in range(draw(st.integers(0, 2))):
        fields = draw(st.permutations([f for f in first if draw(st.booleans()) or draw(st.booleans())] or first))
        fields = [Field(draw, f.name, draw(st.sampled_from([f.kind, *NEXT.get(f.kind, [])]))) for f in fields]
        versions.append([*fields, *(Field(draw, n) for n in NAMES if n not in names and draw(st.booleans()))])
    writers = [record([f.schema() for f in fields]) for fields in versions]
    reader = None
    if draw(st.booleans()):
        read = draw(st.permutations(draw(st.sampled_from(versions))))
        reader = record([with_default(draw, f) if draw(st.booleans()) else f.schema() for f in read])
    kinds = {f.name: f.kind for f in draw(st.sampled_from(versions))}
    columns: list[Any] = []
    for name, kind in kinds.items():
        tp = draw(st.sampled_from(LIKELY[kind] if draw(st.integers(0, 9)) else ANNOTATIONS))
        tp = tp | None if tp is not Any and draw(st.integers(0, 3)) else tp
        columns.append((name, tp, None) if draw(st.booleans()) and tp not in ANNOTATIONS else (name, tp))
    columns.sort(key=len)
    tp = msgspec.defstruct("R", columns, forbid_unknown_fields=draw(st.integers(0, 5)) == 0)
    records: list[tuple[int, bytes]] = []
    for _ in range(draw(st.integers(1, 12))):
        number = draw(st.integers(0, len(versions) - 1))
        out = io.BytesIO()
        value = {f.name: draw(f.values) for f in versions[number]}
        fastavro.schemaless_writer(out, fastavro.parse_schema(writers[number]), value, strict=True)
        records.append((number, damaged(draw, out.getvalue())))
    return tp, reader, writers, records


def damaged(draw: Callable[[Any], Any], data: bytes) -> bytes:
    """Mostly as it is; else cut, longer, or with another byte."""
    how = draw(st.sampled_from(["", "", "", "", "cut", "longer", "byte"]))
    if how == "longer":
        return data + draw(st.binary(min_size=1, max_size=3))
    at = draw(st.integers(0, max(len(data) - 1, 0)))
    if how == "cut":
        return data[:at]
    return data[:at] + draw(st.binary(min_size=1, max_size=1)) + data[at + 1 :] if how and data else data


def seen(value: Any) -> str:
    """Tells 1 from 1.0, 0.0 from -0.0, and takes one nan for another."""
    return "nan" if isinstance(value, float) and math.isnan(value) else repr(value)


def check(
    projection: AvroProjection, names: list[str], decode: Callable[[bytes], Any], records: list[bytes | None]
) -> None:
    expected: dict[str, list[str]] = {name: [] for name in names}
    errors: list[tuple[int, str]] = []
    for row, data in enumerate(records):
        try:
            value = None if data is None else decode(data)
        except Exception as exc:
            errors.append((row, type(exc).__name__))
            continue
        for name in names:
            expected[name].append(seen(getattr(value, name, None)))
    columns, failed = projection.read(BytesColumn.of(records))
    assert [(row, type(exc).__name__) for row, exc in failed] == errors
    bad = {row for row, _ in failed}
    for name in names:
        assert [seen(v) for row, v in enumerate(columns[name].to_list()) if row not in bad] == expected[name], name


def needed(tp: Any) -> list[str]:
    return [f.name for f in msgspec.structs.fields(tp) if f.type is not Any]


@settings(max_examples=200, deadline=None)
@given(cases(), st.sampled_from(["auto", "auto", "off"]))
def test_columns_of_any_versions_are_what_the_decoder_says(case: Any, choice: native.Choice) -> None:
    tp, reader, writers, records = case
    parsed = [fastavro.parse_schema(w) for w in writers]
    as_read = None if reader is None else fastavro.parse_schema(reader)

    def decode(data: bytes) -> Any:
        number = int.from_bytes(data[1:5])
        value = fastavro.schemaless_reader(io.BytesIO(data[5:]), parsed[number], as_read)
        return converted(value, tp, kinds=AVRO_KINDS)

    form, names = AvroForm(tp, as_read, True, parsed.__getitem__), needed(tp)
    framed = [b"\0" + number.to_bytes(4) + data for number, data in records]
    # a record without bytes is refused by the clients, and so is a number that nobody knows
    given_records = [data for data in framed if len(data) > 5]
    if not names or why_not_avro(form, names) is not None:
        return
    native.choose(choice)
    try:
        projection = AvroProjection(form, names, decode)
        for _ in range(2):  # the second time it knows the schemas
            check(projection, names, decode, [*given_records, None, b"\0\0\0\1\0\0", *given_records])
    finally:
        native.choose("auto")


@settings(max_examples=100, deadline=None)
@given(cases())
def test_columns_of_bare_bytes_are_what_the_serde_says(case: Any) -> None:
    tp, _, writers, records = case
    serde = schemas.avro(writers[0], type=tp)
    form, names = avro_form(serde), needed(tp)
    assert form is not None
    if not names or why_not_avro(form, names) is not None:
        return
    check(AvroProjection(form, names, serde.deserialize), names, serde.deserialize, [data for _, data in records])


class Order(msgspec.Struct):
    shop: str
    cents: int
    note: str | None = None


ORDER = record(
    [
        {"name": "cents", "type": "long"},
        {"name": "shop", "type": "string"},
        {"name": "note", "type": ["null", "string"]},
    ]
)


def test_the_decoder_is_asked_only_about_what_is_not_certain(choice: native.Choice) -> None:
    serde = schemas.avro(ORDER, type=Order)
    form = avro_form(serde)
    assert form is not None
    assert why_not_avro(form, ["shop", "cents", "note"]) is None
    asked: list[bytes] = []

    def decode(data: bytes) -> Any:
        asked.append(data)
        return serde.deserialize(data)

    records: list[bytes | None] = [serde.serialize(Order(f"s{i}", i, None if i % 3 else "n")) for i in range(90)]
    projection = AvroProjection(form, ["shop", "cents", "note"], decode)
    columns, failed = projection.read(BytesColumn.of([*records, b"\x02", None]))
    assert [row for row, _ in failed] == [90]
    assert columns["cents"].to_list()[:90] == list(range(90))
    assert columns["shop"].to_list()[:90] == [f"s{i}" for i in range(90)]
    assert asked == ([b"\x02"] if native.compiled() else [*records, b"\x02"])


@pytest.mark.parametrize(
    ("field", "why"),
    [
        ({"name": "note", "type": {"type": "array", "items": "string"}}, "neither a plain value"),
        ({"name": "note", "type": ["null", "string", "long"]}, "neither a plain value"),
        ({"name": "note", "type": {"type": "long", "logicalType": "timestamp-millis"}}, "neither a plain value"),
        ({"name": "note", "type": "long"}, "is not of the type's kind, str"),
        ({"name": "other", "type": "string", "aliases": ["note"]}, "aliases"),
    ],
)
def test_what_is_not_flat_is_read_whole(field: dict[str, Any], why: str) -> None:
    form = avro_form(schemas.avro(record([*ORDER["fields"][:2], field]), type=Order))
    assert form is not None
    assert why in (why_not_avro(form, ["cents"]) or "")
    untyped = avro_form(schemas.avro(ORDER))
    assert untyped is not None
    assert why_not_avro(untyped, ["cents"]) == "its values have no declared type"
