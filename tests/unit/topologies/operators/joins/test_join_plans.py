"""Which joins of two streams run on columns, and what the plan says of the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

import penstock as ps
from penstock.topologies.expressions.functions import col, left, right, struct
from penstock.topologies.graph.describe import plan_as_text


class Item(msgspec.Struct, frozen=True):
    n: int
    name: str


class Nested(msgspec.Struct, frozen=True):
    n: int
    item: Item


class Both(msgspec.Struct, frozen=True):
    one: Item
    other: Item


class Perhaps(msgspec.Struct, frozen=True):
    one: Item
    other: Item | None


class Checked(msgspec.Struct, frozen=True):
    one: Item
    other: Item

    def __post_init__(self) -> None:
        assert self.one is not None


BOTH = struct(one=left(), other=right())
WITHIN: dict[str, Any] = {"within": "1m", "grace": 0}


def line_of(join: Callable[[Any, Any], Any], tp: Any = Item, key: Any = str, **source: Any) -> str:
    """The plan's line of the join, or one for each side."""
    builder = ps.StreamsBuilder("plans")
    one, other = (builder.stream(topic, key=key, value=tp, **source) for topic in ("left", "right"))
    join(one, other).to("out")
    lines = plan_as_text(builder.build()).splitlines()
    return "; ".join(line.strip() for line in lines if "(StreamStreamJoin)" in line)


@pytest.mark.parametrize(
    "join",
    [
        lambda one, other: one.join(other, BOTH, **WITHIN, name="pairs"),
        lambda one, other: one.join(other, BOTH, value=Both, **WITHIN, name="pairs"),
        lambda one, other: one.join(other, left(), condition=left("n") < right("n"), **WITHIN, name="pairs"),
        lambda one, other: one.join(other, left("n") + right("n"), **WITHIN, name="pairs"),
        lambda one, other: one.join(other, BOTH, condition=lambda a, b: a.n < b.n, **WITHIN, name="pairs"),
        lambda one, other: one.filter_values(col("n") > 1).join(other, right(), **WITHIN, name="pairs"),
        lambda one, other: one.left_join(other, BOTH, **WITHIN, name="pairs"),
        lambda one, other: one.left_join(other, BOTH, value=Perhaps, **WITHIN, name="pairs"),
        lambda one, other: one.right_join(other, left("n") + right("n"), **WITHIN, eager=True, name="pairs"),
        lambda one, other: one.outer_join(other, right(), condition=left("n") < right("n"), **WITHIN, name="pairs"),
    ],
)
def test_expressions_run_on_columns(join: Callable[[Any, Any], Any]) -> None:
    assert line_of(join) == "pairs (StreamStreamJoin): columns"


def test_plain_values_do_too() -> None:
    line = line_of(lambda one, other: one.join(other, left() + right(), **WITHIN, name="pairs"), int, int)
    assert line == "pairs (StreamStreamJoin): columns"


@pytest.mark.parametrize(
    ("join", "why"),
    [
        (
            lambda one, other: one.left_join(other, lambda a, b: a, **WITHIN, name="pairs"),
            "it is given a Python function",
        ),
        (lambda one, other: one.join(other, lambda a, b: a, **WITHIN, name="pairs"), "it is given a Python function"),
        (
            lambda one, other: one.join(other, BOTH, condition=lambda a, b: bool({a.n, b.n}), **WITHIN, name="pairs"),
            "it is given a Python function",
        ),
        (
            lambda one, other: one.join(other, BOTH, value=Checked, **WITHIN, name="pairs"),
            "Checked has a __post_init__",
        ),
        (
            lambda one, other: one.join(other, struct(of=struct(n=left("n"))), **WITHIN, name="pairs"),
            "a struct within its result",
        ),
        (
            lambda one, other: one.map_values(lambda item: item, value=Item).join(other, BOTH, **WITHIN, name="pairs"),
            "pairs.left (StreamStreamJoin): rows: values come as lists from left-map-values",
        ),
        (
            lambda one, other: one.select(n=col("n")).join(other, right("n"), **WITHIN, name="pairs"),
            "its left values have the serde",
        ),
    ],
)
def test_others_run_on_rows(join: Callable[[Any, Any], Any], why: str) -> None:
    assert why in line_of(join)


def test_fields_of_fields_are_read_by_row() -> None:
    line = line_of(lambda one, other: one.join(other, left("item")["n"], **WITHIN, name="pairs"), Nested)
    assert "rows: the type of item is struct" in line


def test_a_window_on_one_side_under_watermarks() -> None:
    """There records may be too old for their own buffer without being late."""
    late = ps.bounded_out_of_orderness("1s")
    line = line_of(
        lambda one, other: one.join(other, BOTH, before="-1s", after="2s", grace=0, name="pairs"), watermark=late
    )
    assert "its partners are all later, or all earlier" in line
