"""Serdes of one schema: bare bytes that the formats' own libraries read, and errors that name the field."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import io
import json
import pickle
from typing import Any

import attrs
import fastavro
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock import schemas
from tests.unit.streams.kafka.schemas.messages import order_message

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "cents", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    ],
}
JSON_ORDER = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "note": {"type": ["string", "null"]}},
    "required": ["id"],
    "additionalProperties": False,
}


@dataclasses.dataclass(frozen=True)
class OrderData:
    id: int
    note: str | None
    cents: decimal.Decimal
    at: datetime.datetime


@attrs.frozen
class OrderAttrs:
    id: int
    note: str | None
    cents: decimal.Decimal
    at: datetime.datetime


class OrderStruct(msgspec.Struct, frozen=True):
    id: int
    note: str | None
    cents: decimal.Decimal
    at: datetime.datetime


FIELDS = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**63), 2**63 - 1),
        "note": st.none() | st.text(),
        "cents": st.integers(-(10**11), 10**11).map(lambda n: decimal.Decimal(n).scaleb(-2)),
        "at": st.datetimes(
            datetime.datetime(1970, 1, 1), datetime.datetime(2200, 1, 1), timezones=st.just(datetime.UTC)
        ),
    }
)


@given(FIELDS)
def test_avro_is_what_its_library_writes_and_reads(fields: dict[str, Any]) -> None:
    serde = schemas.avro(ORDER)
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(ORDER), fields)
    assert serde.serialize(fields) == out.getvalue()
    assert serde.deserialize(out.getvalue()) == fields


@pytest.mark.parametrize("kind", [OrderData, OrderAttrs, OrderStruct])
@given(fields=FIELDS)
def test_typed_values_are_the_same_bytes(kind: Any, fields: dict[str, Any]) -> None:
    serde = schemas.avro(json.dumps(ORDER), type=kind)
    assert serde.serialize(kind(**fields)) == schemas.avro(ORDER).serialize(fields)
    assert serde.deserialize(serde.serialize(kind(**fields))) == kind(**fields)


def test_a_schema_is_part_of_the_name() -> None:
    other = {**ORDER, "fields": ORDER["fields"][:2]}
    assert schemas.avro(ORDER).name == schemas.avro(json.dumps(ORDER, indent=1)).name
    assert schemas.avro(ORDER).name != schemas.avro(other).name
    assert schemas.avro(ORDER).name.startswith("avro(shop.Order:")
    assert schemas.json_schema(JSON_ORDER).name != schemas.json_schema({**JSON_ORDER, "required": []}).name


def test_equal_schemas_are_one_serde_and_serdes_travel() -> None:
    assert schemas.avro(ORDER) is schemas.avro(ORDER)
    again = pickle.loads(pickle.dumps(schemas.avro(ORDER, type=OrderData)))
    value = OrderData(1, None, decimal.Decimal("1.50"), datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC))
    assert again.deserialize(schemas.avro(ORDER, type=OrderData).serialize(value)) == value


def test_what_does_not_fit_is_refused() -> None:
    serde = schemas.avro(ORDER)
    good = {
        "id": 1,
        "note": None,
        "cents": decimal.Decimal(1),
        "at": datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC),
    }
    for bad in ({}, {**good, "id": "x"}, {**good, "more": 1}, 3):
        with pytest.raises(Exception):  # noqa: B017 - fastavro's own; serialize_all makes them SerdeError
            serde.serialize(bad)
        with pytest.raises(ps.SerdeError, match="avro"):
            serde.serialize_all([bad])
    with pytest.raises(ps.SerdeError, match="1 bytes are left"):
        serde.deserialize(serde.serialize(good) + b"\x00")
    with pytest.raises(TypeError, match="expected OrderData, got dict"):
        schemas.avro(ORDER, type=OrderData).serialize(good)
    with pytest.raises(msgspec.ValidationError, match=r"\$\.id"):
        schemas.json_schema({"type": "object"}, type=OrderData).deserialize(b'{"id": "x"}')


def test_json_is_held_to_its_schema_both_ways() -> None:
    serde = schemas.json_schema(JSON_ORDER)
    assert serde.deserialize(serde.serialize({"id": 1, "note": "ü"})) == {"id": 1, "note": "ü"}
    for bad in ({"id": "1"}, {"id": 1, "more": 2}, {}):
        with pytest.raises(ps.SerdeError):
            serde.serialize(bad)
        with pytest.raises(ps.SerdeError):
            serde.deserialize(json.dumps(bad).encode())
    with pytest.raises(ps.SerdeError, match=r"\$\.id: '1' is not of type 'integer'"):
        serde.serialize({"id": "1"})
    with pytest.raises(ValueError, match="not JSON compliant"):
        schemas.json_schema({}).serialize(float("nan"))


def test_messages_are_their_own_bytes() -> None:
    message = order_message()
    serde = schemas.protobuf(message)
    assert serde.name == "protobuf(shop.Order)"
    forward = message(id=3, counts={"a": 1, "b": 2})
    backward = message(id=3, counts={"b": 2, "a": 1})
    assert serde.serialize(forward) == serde.serialize(backward)
    assert serde.deserialize(serde.serialize(forward)) == forward
    with pytest.raises(TypeError, match="expected Order"):
        serde.serialize({"id": 3})


@pytest.mark.parametrize(
    "make",
    [
        lambda: schemas.avro("{"),
        lambda: schemas.avro({"type": "record"}),
        lambda: schemas.json_schema({"type": "nothing"}),
        lambda: schemas.protobuf(dict),
        lambda: schemas.avro(ORDER, type=lambda: 1),
    ],
)
def test_what_is_not_a_schema_is_refused_at_once(make: Any) -> None:
    with pytest.raises(ps.SettingsError):
        make()


def test_a_stream_of_avro_is_counted() -> None:
    builder = ps.StreamsBuilder("orders", key=str)
    orders = builder.stream("orders", value=schemas.avro(ORDER, type=OrderData))
    orders.map_values(lambda o: {"id": o.id}, value=schemas.json_schema(JSON_ORDER)).to("ids")
    at = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
    with ps.TopologyTestDriver(builder.build()) as driver:
        for n in range(3):
            driver.pipe("orders", "k", OrderData(n, "x", decimal.Decimal(n), at))
        assert [record.value for record in driver.read("ids")] == [{"id": 0}, {"id": 1}, {"id": 2}]
