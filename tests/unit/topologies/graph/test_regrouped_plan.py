"""What runs in columns of a table that is regrouped and aggregated again, and why the rest does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from penstock.topologies.aggregators import count as ready_count
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.expressions.functions import col, count, struct, value
from penstock.topologies.graph.lockstep_plan import plan_of
from penstock.topologies.operator_api.operator import Emission

EMISSIONS: tuple[Emission, ...] = ("every_update", "per_commit")


class Bid(msgspec.Struct, frozen=True):
    auction: int
    price: int
    share: float
    text: str


def reasons(make: Callable[[Any], Any], emission: Emission = "every_update") -> dict[str, str | None]:
    """Why operators take rows; those in columns have none."""
    builder = StreamsBuilder(key=str, value=Bid, emission=emission)
    make(builder).to("out")
    topology = builder.build()
    plans = [plan_of(topology, sub) for sub in topology.subtopologies]
    return {n: way.rows for p in plans for n, (way, *_) in zip(p.names, p.input_modes, strict=True)}


def highest(builder: Any) -> Any:
    parts = {"price": col("price").max(), "auction": col("auction").max(), "text": col("text").max()}
    return builder.stream("in").group_by_key().agg(name="highest", **parts)


def grouped(builder: Any) -> Any:
    return highest(builder).group_by(col("auction"), name="by")


@pytest.mark.parametrize("emission", EMISSIONS)
def test_all_of_it_runs_in_columns(emission: Emission) -> None:
    def make(builder: Any) -> Any:
        parts = {"n": count(), "total": col("price").sum(), "mean": col("price").mean(), "texts": col("text").count()}
        table = highest(builder).filter(col("price") > 3).group_by(col("auction")).agg(**parts)
        again = table.group_by(struct(n=col("n"))).agg(total=col("total").sum())
        return again.filter(col("total") > 0).map_values(col("total") + 1)

    rows = {name: why for name, why in reasons(make, emission).items() if why is not None}
    if emission == "every_update":
        assert not rows
    else:  # of keys that are objects, results held for a commit are lists
        assert set(rows) == {"in-filter-2", "in-map-values", "in-to"}


@pytest.mark.parametrize("emission", EMISSIONS)
def test_a_count_of_rows_runs_in_columns(emission: Emission) -> None:
    assert set(reasons(lambda b: grouped(b).count().filter(value() > 1), emission).values()) == {None}


@pytest.mark.parametrize(
    ("make", "operator", "reason"),
    [
        (lambda b: highest(b).group_by(lambda k, v: (k, v), name="by").count(), "by", "it is given a Python function"),
        (lambda b: grouped(b).aggregate(ready_count(), name="a"), "a", "its ready aggregates read values one by one; "),
        (lambda b: grouped(b).reduce(lambda a, v: v, lambda a, v: a, name="a"), "a", "it is given a Python function"),
        (lambda b: grouped(b).agg(name="a", x=col("price").variance()), "a", "variance() takes back its values one by"),
        (lambda b: grouped(b).agg(name="a", x=(col("price") * 0.5).sum()), "a", "sum() of float64 takes back its val"),
        (lambda b: grouped(b).agg(name="a", x=col("text").count_distinct()), "a", "it looks up the members of its dis"),
        (lambda b: grouped(b).with_ttl("1h").count(name="a"), "a", "its groups expire"),
        (
            lambda b: b.table("in", value=dict).group_by(col("auction"), name="by").count(),
            "by",
            "values come as lists from in",
        ),
        (
            lambda b: highest(b).filter(lambda k, v: [v]).group_by(col("auction"), name="by").count(),
            "by",
            "values come as lists from in-filter",
        ),
        (
            lambda b: highest(b).filter(lambda k, v: [v], name="f"),
            "f-filter",
            "it is given a Python function; it has a",
        ),
        (lambda b: highest(b).map_values(lambda v: v, name="f"), "f-map-values", "it is given a Python function"),
    ],
)
def test_reasons_for_rows(make: Callable[[Any], Any], operator: str, reason: str) -> None:
    assert (reasons(make)[operator] or "columns").startswith(reason)


def test_fields_of_untyped_rows_that_cannot_be_read_apart() -> None:
    def make(builder: Any) -> Any:
        share = builder.stream("in").group_by_key().agg(share=col("share").max(), auction=col("auction").max())
        return share.group_by(col("auction"), name="by").agg(n=col("share").count())

    found = reasons(make)
    assert found["by-repartition"] == "of untyped JSON, share cannot be read apart"
