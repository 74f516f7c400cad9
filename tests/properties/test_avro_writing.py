"""Columns and typed values written as Avro are, byte for byte, what the serde writes, or are left to it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import schemas
from penstock.state.serdes.serde import Serde
from penstock.topologies.columnar.avro_writing import avro_writer
from penstock.topologies.columnar.json_writing import DictOf, InstanceOf
from penstock.topologies.operator_api.columns import BytesColumn, CodedColumn, Column, NumberColumn, StructColumn
from tests.properties.test_avro_columns import LIKELY, NAMES, Field, damaged, record

ODD = st.sampled_from(
    [None, 0, 1, True, 1.5, 2**31, -(2**31) - 1, 2**63, "x", "\ud800", b"x", "RED", [1], float("nan")]
)


@st.composite
def written(draw: Callable[[Any], Any], *, tame: bool = False) -> tuple[Serde[Any], Any, list[Any]]:
    """A serde of a type, its schema, and values of it, in a few of which a field holds something odd. ``tame``: values
    that cannot be changed, and nothing odd."""
    fields = [Field(draw, n) for n in draw(st.permutations(NAMES))[: draw(st.integers(1, 5))]]
    odd = not tame and draw(st.booleans())
    held = [(f.name, f.values | ODD if odd and draw(st.booleans()) else f.values) for f in fields]
    annotations: list[Any] = [(f.name, LIKELY[f.kind][0] | None if f.kind != "null" else Any) for f in fields]
    annotations = draw(st.permutations(annotations))
    if draw(st.booleans()):
        tp: Any = msgspec.defstruct("R", annotations, frozen=tame or draw(st.booleans()), kw_only=True)
    else:
        tp = dataclasses.make_dataclass("R", annotations, frozen=tame or draw(st.booleans()), slots=draw(st.booleans()))
    values = [tp(**{n: draw(v) for n, v in held}) for _ in range(draw(st.integers(8, 20)))]
    absent = draw(st.integers(0, 3)) == 0
    schema = record([f.schema() for f in fields])
    return schemas.avro(schema, type=tp), schema, [*values, *([None] if absent else []), values[0]]


def fields_of(value: Any) -> dict[str, Any]:
    return msgspec.structs.asdict(value) if isinstance(value, msgspec.Struct) else dataclasses.asdict(value)


def by_rows(serde: Serde[Any], values: list[Any]) -> list[bytes | None] | None:
    try:
        return serde.serialize_all(values)
    except Exception:
        return None


@settings(max_examples=150, deadline=None)
@given(written(), st.sampled_from(["", "", "another field", "a field less"]))
def test_values_are_what_the_serde_writes(case: Any, more: str) -> None:
    serde, schema, values = case
    writer = avro_writer(serde)
    if writer is None:
        return
    typed_found = writer.of_values(values)
    assert typed_found is None or typed_found.to_list() == by_rows(serde, values)
    untyped = schemas.avro(schema)
    writer, dicts = avro_writer(untyped), [None if v is None else fields_of(v) for v in values]
    if more:
        dicts[-1] = {**dicts[-1], "z": 1} if more == "another field" else dict(list(dicts[-1].items())[1:])
    assert writer is not None
    found = writer.of_values(dicts)
    assert found is None or found.to_list() == by_rows(untyped, dicts)
    assert typed_found is None or more or found is not None


@settings(max_examples=120, deadline=None)
@given(written(tame=True), st.data())
def test_records_are_passed_on_as_the_serde_would_write_them(case: Any, data: st.DataObject) -> None:
    serde, _, values = case
    writer, records = avro_writer(serde), by_rows(serde, values)
    if writer is None or records is None:
        return
    if data.draw(st.booleans()):
        row = data.draw(st.integers(0, len(records) - 1))
        records[row] = records[row] and damaged(data.draw, records[row])
    try:
        expected = serde.serialize_all([None if record is None else serde.deserialize(record) for record in records])
    except Exception:
        expected = None
    found = writer.of(BytesColumn.of(records))
    assert found is None or found.to_list() == expected


class Order(msgspec.Struct, frozen=True, rename={"cents": "amount"}):
    shop: str
    cents: int
    weight: float | None
    paid: bool
    kind: str
    raw: bytes | None


FIELDS: list[Any] = [
    {"name": "amount", "type": "long"},
    {"name": "shop", "type": ["string", "null"]},
    {"name": "weight", "type": ["null", "float"]},
    {"name": "paid", "type": "boolean"},
    {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["VIEW", "BUY"]}},
    {"name": "raw", "type": ["null", "bytes"]},
]
VALUES = [
    Order(
        f"s{n % 3}é", n**9 - 7, None if n % 4 == 0 else n / 2, n % 2 == 0, "BUY" if n % 5 else "VIEW", b"\xff" * (n % 3)
    )
    for n in range(50)
]


def test_ordinary_values_are_not_left_to_the_serde() -> None:
    serde = schemas.avro(record(FIELDS), type=Order)
    writer = avro_writer(serde)
    if writer is None:
        return
    data = serde.serialize_all(VALUES)
    values = writer.of_values([None, *VALUES])
    passed = writer.of(BytesColumn.of(data))
    assert values is not None
    assert passed is not None
    assert (values.to_list(), passed.to_list()) == ([None, *data], data)
    assert writer.of_values([*VALUES, Order("", 1, None, True, "SELL", None)]) is None
    assert writer.of_values([*VALUES, Order(None, 2**63, None, True, "BUY", None)]) is None  # type: ignore[arg-type]  # a wrong value
    assert writer.of(BytesColumn.of([*data, b"\x02"])) is None


def test_records_that_expressions_make_are_written_from_their_columns() -> None:
    names = [f["name"] for f in FIELDS]
    as_dicts = [dict(zip(names, (v.cents, v.shop, v.weight, v.paid, v.kind, v.raw), strict=True)) for v in VALUES]
    columns: dict[str, Column] = {
        "amount": NumberColumn(np.array([v.cents for v in VALUES])),
        "shop": CodedColumn.of([v.shop for v in VALUES]),
        "weight": NumberColumn(
            np.array([v.weight or 0.0 for v in VALUES]), np.array([v.weight is None for v in VALUES])
        ),
        "paid": CodedColumn.of([v.paid for v in VALUES]),
        "kind": CodedColumn.of([v.kind for v in VALUES]),
        "raw": BytesColumn.of([v.raw for v in VALUES]),
    }
    absent = np.arange(len(VALUES)) % 7 == 0
    untyped, typed = schemas.avro(record(FIELDS)), schemas.avro(record(FIELDS), type=Order)
    writer, of_type = avro_writer(untyped), avro_writer(typed)
    if writer is None or of_type is None:
        return
    expected: list[bytes | None] = untyped.serialize_all(as_dicts)
    expected = [None if none else data for none, data in zip(absent.tolist(), expected, strict=True)]
    found = writer.of_structs(StructColumn(columns, DictOf(columns), absent))
    assert found is not None
    assert found.to_list() == expected
    fields = {"cents" if name == "amount" else name: column for name, column in columns.items()}
    found = of_type.of_structs(StructColumn(fields, InstanceOf(fields, Order), absent))
    assert found is not None
    assert found.to_list() == expected
    assert of_type.of_structs(StructColumn(columns, DictOf(columns), absent)) is None
    assert writer.of_structs(StructColumn(fields, InstanceOf(fields, Order), absent)) is None
    some = {name: column for name, column in columns.items() if name != "raw"}
    assert writer.of_structs(StructColumn(some, DictOf(some), absent)) is None
