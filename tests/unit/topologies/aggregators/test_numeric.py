"""Numbers: types, NaN, and the moving average worked by hand."""

from __future__ import annotations

import datetime
import itertools
import math
from decimal import Decimal
from typing import Any

import pytest

from penstock.state.errors import ProcessingError, SerdeError, TopologyError
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.aggregators import agg, count, ewma, max_, mean, min_, sum_, variance
from penstock.topologies.aggregators.encoding import FLAT, packed
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.expressions.functions import col


def test_a_column_is_a_field_of_dicts_and_objects_or_a_function() -> None:
    class Bid:
        price = 3

    total = sum_("price")
    assert total.result(total.fold([({"price": 4}, 0), (Bid(), 0), ({"price": None}, 0)])) == 7
    doubled = sum_(lambda v: v * 2)
    assert doubled.result(doubled.fold([(1, 0), (2, 0)])) == 6


def test_a_column_can_be_an_expression() -> None:
    total = sum_(col("price") * col("n"), number=int)
    assert total.result(total.fold([({"price": 4, "n": 2}, 0), ({"price": None, "n": 1}, 0)])) == 8


def test_a_missing_field_is_an_error_of_its_record() -> None:
    with pytest.raises(KeyError):
        sum_("price").add((0, 0), {"cost": 1}, 0)


def test_declared_numbers_refuse_others() -> None:
    for number, wrong in ((int, 1.5), (Decimal, 1.5), (float, "1"), (None, True)):
        a = sum_(number=number)
        with pytest.raises(TypeError, match="takes"):
            a.add(a.init(), wrong, 0)


def test_the_mean_of_decimals_is_a_decimal() -> None:
    a = mean(number=Decimal)
    assert a.result(a.fold([(Decimal("0.10"), 0), (Decimal("0.25"), 0)])) == Decimal("0.175")


def test_decimal_sums_do_not_round() -> None:
    a = sum_(number=Decimal)
    assert a.result(a.fold([(Decimal("1e40"), 0), (Decimal("1e-40"), 0), (Decimal("-1e40"), 0)])) == Decimal("1e-40")


def test_variance_of_ints_far_from_zero_does_not_cancel() -> None:
    a = variance()
    assert a.result(a.fold([(10**15 + x, 0) for x in (4, 7, 13, 16)])) == 30.0


def test_variance_goes_on_in_floats_after_the_first_float() -> None:
    a = variance()
    assert a.result(a.fold([(4, 0), (7.0, 0), (13, 0), (16, 0)])) == pytest.approx(30.0)


def test_nan_is_above_all_numbers() -> None:
    for order in ([1.0, math.nan, 2.0], [math.nan, 2.0, 1.0], [2.0, 1.0, math.nan]):
        low, high = min_(), max_()
        assert low.result(low.fold([(x, 0) for x in order])) == 1.0
        assert math.isnan(high.result(high.fold([(x, 0) for x in order])))


def test_the_first_value_is_the_first_average() -> None:
    a = ewma(0.5)
    seen, acc = [], a.init()
    for x in (10, 20, None, 40.0):
        acc = a.add(acc, x, 0)
        seen.append(a.result(acc))
    assert seen == [10.0, 15.0, 15.0, 27.5]


def test_what_cannot_be_is_refused_at_once() -> None:
    with pytest.raises(TopologyError, match="alpha"):
        ewma(0)
    with pytest.raises(TopologyError, match="number"):
        sum_(number=str)  # type: ignore[arg-type]  # the refusal is what is tested
    with pytest.raises(TopologyError, match="field's name"):
        sum_(3)  # type: ignore[arg-type]  # the refusal is what is tested
    with pytest.raises(TopologyError, match="by name"):
        agg()
    with pytest.raises(TopologyError, match="by name"):
        agg(n=len)  # type: ignore[arg-type]  # the refusal is what is tested


def test_several_lose_what_one_cannot() -> None:
    both = agg(n=count(), avg=ewma(0.5))
    assert (both.merge, both.inverse, both.exact_merge, both.ordered) == (None, None, False, True)
    exact = agg(n=count(), total=sum_(number=int))
    assert exact.exact_merge and exact.merge and exact.inverse and exact.subtract and not exact.ordered
    assert not agg(n=count(), total=sum_()).exact_merge


def told(x: Any) -> str:
    """A result as text: NaN equals itself."""
    return str(x)


@pytest.mark.parametrize("number", [float, None])
@pytest.mark.parametrize(
    ("specials", "whole"),
    [
        ([math.inf], "inf"),
        ([-math.inf], "-inf"),
        ([math.nan], "nan"),
        ([math.inf, -math.inf], "nan"),
        ([math.inf, math.nan, math.inf], "nan"),
    ],
)
def test_what_is_not_finite_goes_when_it_is_taken_out(specials: list[float], whole: str, number: Any) -> None:
    """And spoils sum, mean and variance only as long as it is there, whatever the order and the way."""
    finite = [1.0, 4.0]
    for made, spoilt in ((sum_(number=number), whole), (mean(number=number), whole), (variance(number=number), "nan")):
        clean = made.fold([(x, 0) for x in finite])
        for order in itertools.permutations([*finite, *specials]):
            acc = made.fold([(x, 0) for x in order])
            assert told(made.result(acc)) == spoilt
            assert made.serde.deserialize(made.serde.serialize(acc)) == acc
            assert made.merge is not None
            assert made.inverse is not None
            assert made.subtract is not None
            assert made.merge(made.fold([(x, 0) for x in order[:2]]), made.fold([(x, 0) for x in order[2:]])) == acc
            back = made.subtract(acc, made.fold([(x, 0) for x in specials]))
            assert made.result(back) == made.result(clean)
            for x in specials:
                acc = made.inverse(acc, x, 0)
            assert len(acc) == len(clean)
            assert made.result(acc) == made.result(clean)


def test_a_sum_of_what_is_not_finite_alone() -> None:
    """It is no sum of nothing."""
    for made in (sum_(number=float), mean(number=float)):
        assert told(made.result(made.fold([(math.inf, 0)]))) == "inf"
    spread = variance(number=float)
    assert spread.result(spread.fold([(math.inf, 0)])) is None
    exact = sum_(number=Decimal)
    assert told(exact.result(exact.fold([(Decimal("-Infinity"), 0), (Decimal(2), 0)]))) == "-Infinity"


@pytest.mark.parametrize("x", [[1, 2], (1, 2), {"a": 1}, {1}, datetime.date(2020, 1, 1), (1, [2])], ids=str)
@pytest.mark.parametrize("aggregator", [max_, min_])
def test_what_would_come_back_as_something_else_is_refused_as_it_comes(aggregator: Any, x: Any) -> None:
    made = aggregator("x")
    with pytest.raises(
        SerdeError, match=rf"is a {type(x).__name__}, which is not a plain scalar.*name the serde: value=…"
    ):
        made.add(made.init(), {"x": x}, 0)
    with pytest.raises(SerdeError, match="not a plain scalar"):
        FLAT.serialize((1, x))


@pytest.mark.parametrize("restart", [False, True])
def test_pairs_have_a_greatest_one_by_a_serde_that_keeps_them(restart: bool) -> None:
    pairs = packed("pair", tuple[int, int])

    def greatest(**how: Any) -> list[Any]:
        builder = StreamsBuilder(key=str, value=dict)
        largest = max_(lambda v: (v["a"], v["b"]), **how)
        builder.stream("in").group_by_key().aggregate(largest).to_stream().to("out")
        with TopologyTestDriver(builder.build()) as driver:
            driver.pipe("in", "k", {"a": 1, "b": 2}, 0)
            if restart:
                driver.restart()
            driver.pipe("in", "k", {"a": 1, "b": 3}, 1)
            return [r.value for r in driver.read("out")]

    assert greatest(value=pairs) == [(1, 2), (1, 3)]
    with pytest.raises(ProcessingError, match="not a plain scalar"):
        greatest()
