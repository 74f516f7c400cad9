"""pydantic models as keys and values: bytes, checks, what is refused, and everything that reads and writes values."""

from __future__ import annotations

import datetime
import decimal
import json
from typing import Annotated, Any, Generic, TypeVar

import msgspec
import pyarrow as pa
import pydantic
import pydantic.dataclasses
import pytest
from pydantic import AliasChoices, AliasPath, BaseModel, Field, PrivateAttr

import penstock as ps
from penstock import connectors, schemas
from penstock.state.errors import SerdeError
from penstock.state.log import Record
from penstock.state.serdes.serde import serde_of, taking_dicts, typed_json, typed_msgpack
from penstock.streams.cli.typed_bytes import codec_of
from penstock.streams.connectors.ingestion import RecordWriter
from penstock.streams.connectors.source import SourceRecord
from penstock.streams.spark.frames.types import typed
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.aggregators import agg, count, sum_
from penstock.topologies.columnar.record_shapes import why_not_projected
from penstock.topologies.dsl.builder import StreamsBuilder

T = TypeVar("T")
NOON = datetime.datetime(2026, 1, 2, 12, tzinfo=datetime.UTC)


class Line(BaseModel):
    sku: str
    n: int = Field(default=1, ge=0)

    @pydantic.field_validator("sku")
    @classmethod
    def upper(cls, text: str) -> str:
        return text.upper()


class Order(BaseModel):
    id: int = Field(alias="orderId")
    lines: list[Line] = []
    price: float | None = None
    at: datetime.datetime = NOON

    @pydantic.computed_field
    def size(self) -> int:
        return len(self.lines)


class City(BaseModel, frozen=True):
    country: str
    name: str


class Total(BaseModel):
    total: int
    seen: int = Field(gt=0)


class Box(BaseModel, Generic[T]):
    held: T


@pydantic.dataclasses.dataclass
class Checked:
    n: Annotated[int, Field(gt=0)]


class Money(BaseModel):
    amount: decimal.Decimal
    raw: bytes = b"x"


ORDER = Order(orderId=7, lines=[Line(sku="a"), Line(sku="b", n=3)], price=1.5)
DATA = b'{"orderId":7,"lines":[{"sku":"A","n":1},{"sku":"B","n":3}],"price":1.5,"at":"2026-01-02T12:00:00Z"}'


def test_a_model_is_written_under_its_aliases_without_computed_fields_and_read_back() -> None:
    serde = serde_of(Order)
    assert serde.name == "json:Order" and serde is serde_of(Order)
    assert serde.serialize(ORDER) == DATA
    assert serde.deserialize(DATA) == ORDER
    assert serde.deserialize(b'{"orderId":"7","more":true}') == Order(orderId=7)
    box: Any = typed_json(Box[Line])
    assert box.deserialize(box.serialize(Box[Line](held=Line(sku="a")))) == Box[Line](held=Line(sku="a"))
    lines: Any = typed_json(list[Line])
    assert lines.deserialize(lines.serialize([Line(sku="a")])) == [Line(sku="a")]


@pytest.mark.parametrize("form", [typed_json, typed_msgpack])
def test_pydantic_checks_what_is_read_and_what_is_written(form: Any) -> None:
    serde, anything = form(Order), form(dict)
    assert serde.deserialize(serde.serialize(ORDER)) == ORDER
    wrong = {"orderId": "x", "lines": [{"sku": "a", "n": -1}]}
    with pytest.raises(
        SerdeError, match=r"^orderId: Input should be a valid integer.*; lines\.0\.n: Input should be gr"
    ):
        serde.deserialize(anything.serialize(wrong))
    with pytest.raises(SerdeError, match=r"writes instances of Order, and .* is a dict; name the serde"):
        serde.serialize({"orderId": 1})
    spoiled = ORDER.model_copy(update={"id": "x"})
    with pytest.raises(SerdeError, match="Expected `int`"):
        serde.serialize(spoiled)
    with pytest.raises(SerdeError, match="Expected `int`"):
        serde.serialize_all([ORDER, spoiled])
    checked = form(Checked)
    assert checked.deserialize(checked.serialize(Checked(1))) == Checked(1)
    with pytest.raises(SerdeError, match="n: Input should be greater than 0"):
        checked.deserialize(anything.serialize({"n": 0}))


def test_bytes_that_are_no_json_are_named() -> None:
    with pytest.raises(SerdeError, match="Invalid JSON"):
        serde_of(Order).deserialize(b"{")


class Excluded(BaseModel):
    n: int
    secret: str = Field(default="", exclude=True)


class Private(BaseModel):
    n: int
    _seen: int = PrivateAttr(default=0)


class TwoNames(BaseModel):
    n: int = Field(serialization_alias="out", validation_alias="in")


class OnlyRead(BaseModel):
    n: int = Field(validation_alias=AliasPath("a", "b"))


class Holder(BaseModel):
    inner: list[Excluded | None]


class Struct(msgspec.Struct):
    line: Line


@pytest.mark.parametrize("form", [typed_json, typed_msgpack, serde_of])
@pytest.mark.parametrize(
    ("tp", "message"),
    [
        (Excluded, r"Excluded\.secret is not written \(exclude=True\)"),
        (Holder, r"Excluded\.secret is not written"),
        (Private, r"Private\._seen is private"),
        (TwoNames, r"TwoNames\.n is written as 'out' and not read by that name"),
        (OnlyRead, r"OnlyRead\.n is written as 'n' and not read"),
        (Struct, r"Line is a pydantic model within Struct, which is none; make Struct one, too"),
    ],
)
def test_a_model_whose_instances_would_not_come_back_is_refused(form: Any, tp: Any, message: str) -> None:
    with pytest.raises(SerdeError, match=message):
        form(tp)


def test_several_names_for_reading_are_fine_if_one_is_written() -> None:
    class Lenient(BaseModel):
        n: int = Field(validation_alias=AliasChoices("n", "number"))
        m: int = Field(default=0, alias="em")

    serde = typed_json(Lenient)
    assert serde.serialize(Lenient(number=1)) == b'{"n":1,"em":0}'  # type: ignore[call-arg]  # pydantic's alias
    assert serde.deserialize(b'{"number":1,"em":2}') == Lenient(n=1, em=2)


@pytest.mark.parametrize("form", [typed_json, typed_msgpack])
def test_dicts_for_a_model_are_validated(form: Any) -> None:
    serde = form(Total)
    both = taking_dicts(serde)
    assert both is taking_dicts(serde) and both.name == serde.name
    assert both.serialize({"total": 5, "seen": 2}) == serde.serialize(Total(total=5, seen=2))
    with pytest.raises(SerdeError, match="seen: Input should be greater than 0"):
        both.serialize({"total": 5, "seen": 0})


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("form", [typed_json, typed_msgpack])
def test_a_topology_of_models(form: Any, columns: bool, restart: bool) -> None:
    builder = StreamsBuilder("t", key=City, value=form(Order))
    orders = builder.stream("in")
    orders.filter(ps.col("price") > 1).map_values(ps.col("id"), value=int).to("ids")
    grouped = orders.group_by_key()
    grouped.reduce(lambda a, b: Order(orderId=a.id + b.id, lines=[*a.lines, *b.lines]), name="sum").to("sums")
    grouped.aggregate(agg(total=sum_("id"), seen=count()), value=form(Total), name="agg").to("totals")
    orders.group_by(lambda city, order: city.country, key=str).count(name="n").to("countries")
    with TopologyTestDriver(builder, columns=columns) as driver:
        city = City(country="no", name="Oslo")
        driver.pipe("in", city, ORDER, 1)
        if restart:
            driver.restart()
        driver.pipe("in", city, Order(orderId=1), 2)
        assert [(r.key, r.value) for r in driver.read("ids")] == [(city, 7)]
        assert [r.value for r in driver.read("sums")][-1] == Order(orderId=8, lines=ORDER.lines)
        assert [r.value for r in driver.read("totals")][-1] == Total(total=8, seen=2)
        assert [(r.key, r.value) for r in driver.read("countries")][-1] == ("no", 2)


def test_a_record_that_does_not_fit_meets_the_policy_of_its_source() -> None:
    builder = StreamsBuilder("t", key=str, value=Order)
    builder.stream("in").on_error("skip").map_values(lambda o: o.id, value=int).to("out")
    with TopologyTestDriver(builder) as driver:
        driver.pipe_raw({"in": [Record(b"k", b'{"orderId":"x"}', 0, ())]})
        driver.pipe("in", "k", ORDER)
        assert [r.value for r in driver.read("out")] == [7]


def test_validators_run_where_fields_are_read_as_columns() -> None:
    assert why_not_projected(Checked, ["n"]) == "it is pydantic's, whose validators must run"
    assert why_not_projected(Order, ["id"]) is not None


def test_rows_of_sinks_and_of_sources() -> None:
    sink = connectors.SqliteSink("t", path="x.db", key=["country", "name"])
    row = sink.row(City(country="no", name="Oslo"), Money(amount=decimal.Decimal("1.50"), raw=b"\xff"), 0, ())
    assert row.columns == {"country": "no", "name": "Oslo", "amount": "1.50", "raw": b"\xff"}
    assert sink.row(City(country="no", name="Oslo"), ORDER, 0, ()).columns["orderId"] == 7
    into = connectors.Ingestion("i", connectors.CsvSource("in/*.csv"), "t", key=City, value=Line)
    record = SourceRecord({"country": "no", "name": "Oslo"}, {"sku": "a", "n": "3"})
    assert RecordWriter(into).written(record) == (b'{"country":"no","name":"Oslo"}', b'{"sku":"A","n":3}')


def test_commands_show_and_take_models() -> None:
    codec = codec_of(serde_of(Order))
    assert codec.show(DATA)["orderId"] == 7
    assert codec.read is not None
    assert codec.read({"orderId": 7, "lines": [{"sku": "a"}]}) == serde_of(Order).serialize(
        Order(orderId=7, lines=[Line(sku="a")])
    )


def test_spark_has_a_column_for_each_field() -> None:
    made = typed(Order)
    assert made.type.field("lines").type == pa.list_(pa.struct([("sku", pa.string()), ("n", pa.int64())]))
    assert made.build([ORDER, None]).to_pylist()[0]["id"] == 7
    assert json.loads(typed(Any).build([ORDER]).to_pylist()[0])["orderId"] == 7


def test_schemas_read_and_write_models() -> None:
    schema = {
        "type": "record",
        "name": "M",
        "fields": [
            {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
            {"name": "raw", "type": "bytes"},
        ],
    }
    avro = schemas.avro(schema, type=Money)
    money = Money(amount=decimal.Decimal("1.50"), raw=b"\xff")
    assert avro.deserialize(avro.serialize(money)) == money
    with pytest.raises(TypeError, match="expected Money, got dict"):
        avro.serialize({"amount": 1})
    plain = schemas.json_schema({"type": "object", "properties": {"n": {"type": "integer"}}}, type=Line)
    assert plain.deserialize(plain.serialize(Line(sku="a"))) == Line(sku="a")
