"""Types: read off declarations, inferred through expressions, and refused with advice."""

from __future__ import annotations

import dataclasses
import datetime
import enum
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, NewType, TypedDict

import msgspec
import pytest

from penstock.state.errors import TopologyError
from penstock.topologies.expressions.functions import (
    coalesce,
    col,
    greatest,
    header,
    key,
    least,
    left,
    lit,
    right,
    struct,
    timestamp,
    value,
    when,
)
from penstock.topologies.expressions.inference import ExpressionScope, infer
from penstock.topologies.expressions.tree import Expression, Extend, StructOf
from penstock.topologies.expressions.types import DataType, common_type, schema_of

UserId = NewType("UserId", int)


class Node(msgspec.Struct):
    name: str
    next: Node | None = None


@dataclasses.dataclass
class Bid:
    price: int
    note: str | None
    when: datetime.datetime
    rate: float = 1.0


class Flags(TypedDict, total=False):
    on: bool


class Row(NamedTuple):
    bid: Bid
    ids: list[UserId]
    cost: Decimal
    raw: bytes
    flags: Flags
    level: Literal["low", "high", None]
    odd: int | str
    some: tuple[str, ...] | None
    any: Any
    note: Annotated[int, "x"]
    colour: enum.Enum


@pytest.mark.parametrize(
    ("like", "text"),
    [
        (int, "int64"),
        (float | None, "float64?"),
        ("string?", "string?"),
        (dict, "unknown"),
        (list, "list[unknown]"),
        (datetime.datetime, "timestamp"),
        ({"a": "int64", "b": {"c": bool}}, "struct[a: int64, b: struct[c: bool]]"),
        (Bid, "struct[price: int64, note: string?, when: timestamp, rate: float64]"),
        (Node, "struct[name: string, next: unknown]"),
        (object, "unknown"),
        (DataType("bool"), "bool"),
    ],
)
def test_declarations(like: Any, text: str) -> None:
    """Python's types, names and dicts of them."""
    assert str(schema_of(like)) == text


def test_the_fields_of_a_class() -> None:
    """What has no type here is unknown."""
    assert {n: str(t) for n, t in schema_of(Row).fields if n != "bid"} == {
        "ids": "list[int64]",
        "cost": "decimal",
        "raw": "bytes",
        "flags": "struct[on: bool?]",
        "level": "string?",
        "odd": "unknown",
        "some": "list[string]?",
        "any": "unknown",
        "note": "int64",
        "colour": "unknown",
    }
    with pytest.raises(TopologyError, match="unknown type 'integer'; use int64"):
        schema_of({"a": "integer"})


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (col("price") + 1, "int64"),
        (col("price") / 2, "float64"),
        (col("price") // 2, "int64"),
        (col("price") * col("rate"), "float64"),
        (col("price") * Decimal(2), "decimal"),
        (-col("rate"), "float64"),
        (col("note") + "x", "string?"),
        (col("price") > col("rate"), "bool"),
        (col("note") == "x", "bool?"),
        (col("note").is_null() | (col("price") > 1), "bool"),
        (col("when") - 5, "timestamp"),
        (col("when") - col("when"), "int64"),
        (col("when") > 5, "bool"),
        (col("when").hour(), "int64"),
        (col("when").floor_time("1h"), "timestamp"),
        (coalesce(col("note"), "x"), "string"),
        (coalesce(col("note"), lit(None)), "string?"),
        (when(col("price") > 1).then(col("price")).otherwise(0.5), "float64"),
        (when(col("price") > 1).then(col("price")), "int64?"),
        (least(col("price"), col("rate")), "float64"),
        (greatest(col("price"), lit(None)), "int64?"),
        (col("note").split("/"), "list[string]?"),
        (col("note").split("/")[0].length(), "int64?"),
        (col("note").regexp_extract("(a)"), "string?"),
        (col("price").cast("string"), "string"),
        (col("price").cast("string", strict=False), "string?"),
        (struct(a=col("price"), b=None), "struct[a: int64, b: null]"),
        (Extend(value(), (("rate", lit(1)),)), "struct[price: int64, note: string?, when: timestamp, rate: int64]"),
        (header("h"), "bytes?"),
        (timestamp(), "timestamp"),
        (key(), "unknown"),
        (key() + 1, "unknown"),
        (key() == 1, "bool?"),
        (lit(None) + 1, "int64?"),
        (col("price").is_in(1, None), "bool?"),
        (col("price").alias("p"), "int64"),
    ],
)
def test_types(expression: Expression, text: str) -> None:
    """Through every kind of node."""
    assert str(infer(expression, Bid)) == text


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        (
            col("prise"),
            "there is no column 'prise'; did you mean 'price'? the columns of Bid are: price, note, when, rate",
        ),
        (
            col("city"),
            "there is no column 'city'; the columns of Bid are: price, note, when, rate; if a function before it returns "
            "another type, name that in its call: value=…",
        ),
        (col("price.x"), "price is int64, which has no fields, and no 'x'; use price itself"),
        (col("price") + "x", "price + 'x': int64 + string is not defined; cast one of them"),
        (col("rate") + Decimal(1), "rate + Decimal('1'): float64 + decimal is not defined; cast one of them"),
        (5 - col("when"), "int64 - timestamp is not defined"),
        (col("price") == "x", "== cannot compare price, int64, with 'x', string"),
        (col("price").is_in(1, "x"), "is_in cannot compare price, int64, with 'x', string"),
        (col("price").between(1, "x"), "between cannot compare price, int64, with 'x', string"),
        (value() == value(), "cannot compare value()"),
        (col("price") & True, "& takes conditions, and price is int64; compare it with something"),
        (~col("price"), "~ takes a condition, and price is int64"),
        (-col("note"), "- takes a number, and note is string?; cast it"),
        (col("price").lower(), "lower() takes string at place 1, and price is int64; cast it"),
        (col("rate").substring(col("rate")), "substring() takes string at place 1"),
        (when(col("price")).then(1), "when() takes a condition, and price is int64"),
        (when(col("price") > 1).then(1).otherwise("x"), "int64 and string have no common type; cast one of them"),
        (coalesce(col("price"), col("note")), "int64 and string? have no common type"),
        (col("when").cast("bool"), "when is timestamp, which cannot be cast to bool"),
        (col("price").sum(), "is an aggregate over rows; it is only allowed in agg(…)"),
        (left("price"), "is only allowed in the functions of joins"),
        (Extend(col("price"), ()), "price is int64, which has no columns to add to"),
        (StructOf((("price", lit(1)),), Bid), "Bid needs note, when too"),
        (StructOf((("prize", lit(1)),), Bid), "Bid has no field 'prize'; did you mean 'price'?"),
        (StructOf((("price", col("note")),), Bid), "Bid.price is int64, but got string?"),
        (StructOf((("name", col("note")),), Node), "Node.name is string, but got string?; cast it, or coalesce"),
        (StructOf((("a", lit(1)),), int), "int cannot be built from columns"),
    ],
)
def test_refusals(expression: Expression, problem: str) -> None:
    """Each names the operator and the expression, and says what to do."""
    with pytest.raises(TopologyError) as caught:
        infer(expression, Bid, operator="views-filter")
    assert str(caught.value).startswith(f"operator 'views-filter', expression {expression.text()}: ")
    assert problem in str(caught.value)


def test_what_a_function_is_not_given() -> None:
    """The record's time and key, and the one value of a join."""
    for expression, scope, problem in (
        (timestamp(), ExpressionScope(record=False), "timestamp() is not available here"),
        (header("h"), ExpressionScope(record=False), "header('h') is not available here"),
        (key(), ExpressionScope(keyed=False), "key() is not available here"),
        (col("a"), ExpressionScope(right=schema_of(int)), "a join has two values; say left('…') or right('…')"),
    ):
        with pytest.raises(TopologyError) as caught:
            infer(expression, scope)
        assert problem in str(caught.value)
    assert infer(right("a"), ExpressionScope(right=schema_of({"a": int}))).kind == "int64"


def test_common_types() -> None:
    """Of lists and structs only what is the same."""
    for a, b, text in (
        (list[int], list[int | None], "list[int64?]"),
        (list[int], list[float], None),
        (list[int], list, "list[unknown]"),
        ({"a": int}, {"a": int}, "struct[a: int64]"),
        ({"a": int}, {"a": float}, None),
        (int, Any, "unknown"),
        (None, str, "string?"),
        (int, datetime.datetime, "timestamp"),
    ):
        both = common_type(schema_of(a), schema_of(b))
        assert (None if both is None else str(both)) == text
