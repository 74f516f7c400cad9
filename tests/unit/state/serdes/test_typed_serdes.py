"""attrs classes as values, and MessagePack: bytes, checks, what is refused, and topologies that use them."""

from __future__ import annotations

from typing import Any, Generic, NamedTuple, TypeVar

import attrs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.state.errors import ProcessingError, SerdeError
from penstock.state.serdes.serde import JSON, finite, serde_of, taking_dicts, typed_json, typed_msgpack
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.aggregators import agg, count, sum_
from penstock.topologies.aggregators.encoding import INT_JSON
from penstock.topologies.dsl.builder import StreamsBuilder

T = TypeVar("T")


@attrs.define
class Line:
    sku: str
    n: int = attrs.field(default=1, validator=attrs.validators.ge(0))


@attrs.frozen
class Order:
    id: int
    lines: list[Line] = attrs.Factory(list)
    price: float | None = None


@attrs.define
class Box(Generic[T]):
    held: T


@attrs.define
class Converted:
    text: str = attrs.field(converter=str.upper)


@attrs.define
class Hidden:
    n: int
    _seen: int = 0


@attrs.define
class Around:
    inner: list[Converted | None]


class Holder(msgspec.Struct):
    hidden: Hidden


class Total(msgspec.Struct, frozen=True):
    total: int
    seen: int


class Pair(NamedTuple):
    a: int
    b: str


ORDER = Order(7, [Line("a"), Line("b", 3)], 1.5)


def test_an_attrs_class_is_written_as_an_object_and_read_back() -> None:
    serde = serde_of(Order)
    assert serde.name == "json:Order" and serde is serde_of(Order)
    data = serde.serialize(ORDER)
    assert data == b'{"id":7,"lines":[{"n":1,"sku":"a"},{"n":3,"sku":"b"}],"price":1.5}'
    assert serde.deserialize(data) == ORDER
    assert serde.deserialize(b'{"id":7,"more":true}') == Order(7)
    assert not serde.immutable
    box: Any = typed_json(Box[int])
    assert box.deserialize(box.serialize(Box(1))) == Box(1)


@pytest.mark.parametrize("form", [typed_json, typed_msgpack])
def test_reading_an_attrs_class_checks_types_and_runs_validators(form: Any) -> None:
    serde = form(Line)
    plain = form(dict)
    assert serde.deserialize(plain.serialize({"sku": "a", "n": 2})) == Line("a", 2)
    for wrong in ({"sku": "a", "n": -1}, {"sku": 1}, {"n": 1}):
        with pytest.raises(msgspec.ValidationError):
            serde.deserialize(plain.serialize(wrong))
    with pytest.raises(SerdeError, match=r"writes instances of Line, and .* is a dict; name the serde"):
        serde.serialize({"sku": "a"})


@pytest.mark.parametrize("form", [typed_json, typed_msgpack, serde_of])
@pytest.mark.parametrize(
    ("tp", "message"),
    [
        (Converted, r"Converted\.text has a converter, which does not run when records are read"),
        (Around, r"Converted\.text has a converter"),
        (Hidden, r"Hidden\._seen begins with an underscore, and such attributes are not written"),
        (Holder, r"Hidden\._seen begins with an underscore"),
    ],
)
def test_a_class_whose_instances_would_come_back_changed_is_refused(form: Any, tp: Any, message: str) -> None:
    with pytest.raises(SerdeError, match=message):
        form(tp)


def test_inf_in_an_attrs_class_is_found_where_json_refuses_it() -> None:
    with pytest.raises(SerdeError, match=r"there is inf at \.price"):
        finite(INT_JSON).serialize(Order(1, [], float("inf")))


def test_messagepack_has_the_bytes_of_its_specification() -> None:
    serde = serde_of("msgpack")
    assert serde.serialize({"compact": True, "schema": 0}) == b"\x82\xa7compact\xc3\xa6schema\x00"
    assert typed_msgpack(Total).serialize(Total(5, 300)) == b"\x82\xa5total\x05\xa4seen\xcd\x01\x2c"
    assert typed_msgpack(Total).deserialize(b"\x83\xa1x\xc0\xa5total\x05\xa4seen\xcd\x01\x2c") == Total(5, 300)
    assert typed_msgpack(Total).immutable and not typed_msgpack(Line).immutable


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(VALUES)
def test_messagepack_gives_back_what_it_was_given(value: Any) -> None:
    serde = serde_of("msgpack")
    assert serde.deserialize(serde.serialize(value)) == value


@pytest.mark.parametrize("form", [typed_json, typed_msgpack])
def test_dicts_for_a_class_are_written_in_the_serdes_own_form(form: Any) -> None:
    for cls, fields in ((Total, {"total": 5, "seen": 2}), (Line, {"sku": "a", "n": 2})):
        serde = form(cls)
        both = taking_dicts(serde)
        assert both is taking_dicts(serde) and both.name == serde.name
        assert both.serialize(fields) == both.serialize(cls(**fields)) == serde.serialize(cls(**fields))
        assert serde.deserialize(both.serialize(fields)) == cls(**fields)
        with pytest.raises(SerdeError, match="writes instances of"):
            both.serialize(["u"])
    assert taking_dicts(form(Pair)) is not None and taking_dicts(JSON) is JSON


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("form", [typed_json, typed_msgpack])
def test_a_topology_of_attrs_classes_and_messagepack(form: Any, columns: bool, restart: bool) -> None:
    builder = StreamsBuilder("t", value=form(Order))
    orders = builder.stream("in")
    orders.filter(ps.col("price") > 1).map_values(ps.col("id"), value=int).to("ids")
    grouped = orders.group_by_key()
    grouped.reduce(lambda a, b: Order(a.id + b.id, [*a.lines, *b.lines]), name="sum").to("sums")
    grouped.aggregate(agg(total=sum_("id"), seen=count()), value=form(Total), name="agg").to("totals")
    with TopologyTestDriver(builder, columns=columns) as driver:
        driver.pipe("in", "k", ORDER, 1)
        if restart:
            driver.restart()
        driver.pipe("in", "k", Order(1), 2)
        assert [r.value for r in driver.read("ids")] == [7]
        assert [r.value for r in driver.read("sums")][-1] == Order(8, ORDER.lines)
        assert [r.value for r in driver.read("totals")][-1] == Total(8, 2)


def test_columns_are_not_built_into_an_attrs_class_in_silence() -> None:
    stream = StreamsBuilder("t", value=Line).stream("in")
    with pytest.raises(ps.TopologyError, match=r"Box cannot be built from columns; use a Struct, a dataclass or dict"):
        stream.select(held=ps.col("n"), value=Box)
    builder = StreamsBuilder("t", value=Line)
    builder.stream("in").with_columns(twice=ps.col("n") * 2, value=dict).to("out")
    with TopologyTestDriver(builder) as driver:
        driver.pipe("in", "k", Line("a", 2))
        assert driver.read("out")[0].value == {"sku": "a", "n": 2, "twice": 4}


def test_a_column_that_an_attrs_class_lacks_is_named() -> None:
    builder = StreamsBuilder("t", value=Line)
    builder.stream("in").filter(ps.col("nn") > 1).to("out")
    with (
        pytest.raises(ProcessingError, match="has no field 'nn'"),
        TopologyTestDriver(builder) as driver,
    ):
        driver.pipe("in", "k", Line("a"))
