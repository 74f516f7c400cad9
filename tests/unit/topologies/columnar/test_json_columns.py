"""Which types are read by field, and what the columns of odd batches are."""

from __future__ import annotations

import dataclasses
import typing
from typing import Annotated, Any

import msgspec
import numpy as np
import pytest

from penstock.topologies.columnar.json_columns import JsonProjection
from penstock.topologies.columnar.record_shapes import why_not_projected
from penstock.topologies.operator_api.columns import BytesColumn, CodedColumn, NumberColumn
from penstock.topologies.operator_api.required_columns import FieldPath


class Order(msgspec.Struct):
    item: str
    price: float
    count: int = 1
    note: Any = None


class Tagged(msgspec.Struct, tag="order"):
    item: str


class AsArray(msgspec.Struct, array_like=True):
    item: str


class Bounded(msgspec.Struct):
    count: Annotated[int, msgspec.Meta(ge=0)]


class Nested(msgspec.Struct):
    order: Order


class OfTagged(msgspec.Struct):
    order: Tagged | None = None


class OfList(msgspec.Struct):
    orders: list[Order]


class Tree(msgspec.Struct):
    value: int
    left: Tree | None = None


class Fixed(msgspec.Struct, frozen=True):
    item: str


class MadeWithin(msgspec.Struct):
    order: Fixed = Fixed("a")


class Checked(msgspec.Struct):
    item: str

    def __post_init__(self) -> None:
        raise AssertionError


class Made(msgspec.Struct):
    item: str = msgspec.field(default_factory=str)


class IntDefault(msgspec.Struct):
    price: float = 0


class Unset(msgspec.Struct):
    count: int | msgspec.UnsetType = msgspec.UNSET


class Partial(typing.TypedDict, total=False):
    item: str


@dataclasses.dataclass
class Data:
    item: str
    price: float = 1.0


@dataclasses.dataclass
class DataChecked(Data):
    def __post_init__(self) -> None:
        raise AssertionError


@dataclasses.dataclass
class DataAsking(Data):
    def __getattr__(self, name: str) -> Any:
        return name


@dataclasses.dataclass
class DataReading(Data):
    def __getattribute__(self, name: str) -> Any:
        return name


@dataclasses.dataclass
class DataMade(Data):
    def __new__(cls, *args: Any) -> DataMade:
        return super().__new__(cls)


@dataclasses.dataclass
class DataWorkedOut(Data):
    @property
    def count(self) -> int:
        return 1


class _WorkedOut:
    @property
    def count(self) -> int:
        return 1


@dataclasses.dataclass
class DataHidden(_WorkedOut):
    count: int = dataclasses.field()
    item: str = ""


Large = msgspec.defstruct("Large", [(f"f{i}", int) for i in range(65)])


@pytest.mark.parametrize(
    ("tp", "fields", "reason"),
    [
        (Order, ["item", "price", "count"], None),
        (Order, ["missing"], "no field missing"),
        (Order, ["note"], "note is of any type"),
        (Tagged, ["item"], "tag"),
        (AsArray, ["item"], "array"),
        (Bounded, ["count"], "count is not a plain"),
        (Nested, ["order", ("order", "item")], None),
        (Nested, [("order", "missing")], "no field order.missing"),
        (Nested, [("order", "note")], "order.note is of any type"),
        (Nested, [("order", "item", "more")], "no field order.item.more"),
        (OfTagged, ["order"], "order is an object that cannot be read by field: its JSON is an array, or has a tag"),
        (OfList, ["orders"], "orders is not a plain"),
        (Tree, ["value"], "left is an object that cannot be read by field: its type holds itself"),
        (MadeWithin, ["order"], "default"),
        (Checked, ["item"], "__post_init__"),
        (Made, ["item"], "default_factory"),
        (IntDefault, ["price"], "default of another type"),
        (Unset, ["count"], "may be missing"),
        (Partial, ["item"], "item may be missing"),
        (Large, ["f0"], "65 fields"),
        (Data, ["item", "price"], None),
        (DataChecked, ["item"], "__post_init__"),
        (DataAsking, ["item"], "customizes attribute access"),
        (DataReading, ["item"], "customizes attribute access"),
        (DataMade, ["item"], "__new__"),
        (DataWorkedOut, ["item"], None),
        (DataHidden, ["item"], "count is not a plain field"),
        (dict, ["item"], "neither"),
        ("no type", ["item"], "cannot be read"),
    ],
)
def test_types_that_cannot_be_read_by_field_say_why(tp: Any, fields: list[FieldPath], reason: str | None) -> None:
    found = why_not_projected(tp, fields)
    assert found is None if reason is None else found is not None and reason in found


def projected(records: list[bytes | None], fields: list[str]) -> Any:
    return JsonProjection(Order, fields, msgspec.json.Decoder(Order).decode).read(BytesColumn.of(records))


def test_a_batch_without_records_has_empty_columns() -> None:
    columns, failed = projected([], ["item", "count"])
    assert {name: column.to_list() for name, column in columns.items()} == {"item": [], "count": []}
    assert failed == []


def test_columns_are_still_whole_when_no_record_can_be_read() -> None:
    columns, failed = projected([b"{", b""], ["item", "price"])
    assert [row for row, _ in failed] == [0, 1]
    assert [len(column.to_list()) for column in columns.values()] == [2, 2]


def test_an_integer_of_more_than_64_bits_makes_the_batch_hold_objects() -> None:
    large = b'{"item":"a","price":1,"count":18446744073709551616}'
    columns, failed = projected([b'{"item":"a","price":1}', large], ["count"])
    assert isinstance(columns["count"], CodedColumn)
    assert columns["count"].to_list() == [1, 1 << 64]
    assert failed == []
    later, _ = projected([large.replace(b"18446744073709551616", b"2")], ["count"])
    assert isinstance(later["count"], NumberColumn)


def test_records_out_of_a_larger_buffer() -> None:
    record = b'{"item":"a\xc3\xa9","price":-2.5e-3}'
    whole = BytesColumn.of([record + b"}", record, record[:-1], None])
    columns, failed = JsonProjection(Order, ["price", "item"], msgspec.json.Decoder(Order).decode).read(
        whole.slice(1, 4)
    )
    assert [row for row, _ in failed] == [1]
    assert columns["price"].take(whole.offsets[:2] * 0).to_list() == [-0.0025, -0.0025]
    assert [columns["item"].to_list()[row] for row in (0, 2)] == ["aé", None]


def test_a_record_that_ends_early_is_not_read_on_in_the_next_one() -> None:
    record = b'{"item":"a","price":12.5,"count":3}'
    for cut in range(len(record)):
        # four whole records to learn the layout from, then one in two parts; where nothing comes behind, too
        starts = [len(record) * i for i in range(5)] + [len(record) * 4 + cut, len(record) * 5]
        columns, failed = JsonProjection(Order, ["item", "price", "count"], msgspec.json.Decoder(Order).decode).read(
            BytesColumn(record * 5, np.array(starts, np.int64))
        )
        whole = [0, 1, 2, 3] + ([5] if cut == 0 else [])
        assert [row for row, _ in failed] == [row for row in range(6) if row not in whole]
        assert [columns["price"].to_list()[row] for row in whole] == [12.5] * len(whole)


TORN = [b'{"note":%s{"item":"b","price":1}' % value for value in (b"1", b'"torn"', b"null", b"[]")]


@pytest.mark.parametrize("torn", TORN)
def test_what_opens_a_record_does_not_part_its_members(torn: bytes) -> None:
    """Also behind a member that the records before it did not have."""
    projection = JsonProjection(Order, ["price"], msgspec.json.Decoder(Order).decode)
    whole = b'{"item":"a","price":2}'
    columns, failed = projection.read(BytesColumn.of([whole, whole, torn, whole]))
    assert [(row, type(exc)) for row, exc in failed] == [(2, msgspec.DecodeError)]
    assert np.delete(np.array(columns["price"].to_list()), 2).tolist() == [2.0, 2.0, 2.0]
