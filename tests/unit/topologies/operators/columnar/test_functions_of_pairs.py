"""Plain functions as joiners and conditions: which of them run over columns of pairs, and until when."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.operators.columnar.pairs import still_means
from penstock.topologies.operators.joins.stream_stream_join import StreamStreamJoinSpec

LIMIT = 5


class Item(msgspec.Struct, frozen=True):
    """A value of either side."""

    n: int
    name: str | None = None


def joined(
    joiner: Any, condition: Any = None, *, kind: str = "join", types: tuple[Any, Any] = (Item, Item)
) -> StreamStreamJoinSpec:
    """A join of two streams by this joiner."""
    builder = StreamsBuilder("joins", key=str)
    one, other = (builder.stream(topic, value=tp) for topic, tp in zip(("left", "right"), types, strict=True))
    pairs = getattr(one, kind)(other, joiner, within=5, grace=0, condition=condition, value=dict, name="pairs")
    pairs.to("out")
    spec = builder.build().operators["pairs"]
    assert isinstance(spec, StreamStreamJoinSpec)
    return spec


@pytest.mark.parametrize(
    ("joiner", "condition", "kind"),
    [
        (lambda one, other: {"n": one.n + other.n, "name": other.name}, None, "join"),
        (lambda one, other: {"n": one.n}, lambda one, other: one.n < other.n, "join"),
        (lambda one, other: {"n": None if one is None else one.n, "alone": other is None}, None, "outer_join"),
    ],
)
def test_it_runs_over_columns(joiner: Any, condition: Any, kind: str) -> None:
    assert joined(joiner, condition, kind=kind).why_rows is None


@pytest.mark.parametrize(
    ("joiner", "types", "why"),
    [
        (lambda one, other: {"n": one.n} | {"m": other.n}, (Item, Item), "it is given a Python function"),
        (lambda one, other: {"n": one.n, "m": other["n"]}, (Item, dict), "no declared type"),
    ],
)
def test_it_says_why_not(joiner: Any, types: tuple[Any, Any], why: str) -> None:
    assert why in str(joined(joiner, types=types).why_rows)


def test_a_name_that_means_something_else_ends_the_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = joined(lambda one, other: {"much": one.n > LIMIT})
    assert spec.why_rows is None
    assert still_means(spec.condition, spec.joiner)
    monkeypatch.setattr(f"{__name__}.LIMIT", 6)
    assert not still_means(spec.condition, spec.joiner)
