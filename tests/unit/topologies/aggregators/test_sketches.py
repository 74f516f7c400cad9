"""Sketches on many values: their promised errors, deterministic bytes, and the refusal without the library."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest

from penstock.state.errors import TopologyError
from penstock.topologies.aggregators import (
    Aggregator,
    approx_distinct,
    bloom,
    count_min,
    frequency,
    heavy_hitters,
    might_hold,
    quantiles,
)

RNG = random.Random(7)
NUMBERS = [RNG.gauss(0, 1) for _ in range(6_000)]
WORDS = [f"w{int(RNG.paretovariate(0.7)) % 2_000}" for _ in range(6_000)]


def halves(a: Aggregator, values: list[Any]) -> Any:
    assert a.merge is not None
    cut = len(values) // 3
    return a.merge(a.fold((v, 0) for v in values[:cut]), a.fold((v, 0) for v in values[cut:]))


def test_distinct_counts_are_close_and_independent_of_order_and_splits() -> None:
    a = approx_distinct()
    values = [f"u{i % 4_000}" for i in range(6_000)]
    result = a.result(a.fold((v, 0) for v in values))
    assert abs(result - 4_000) < 4_000 * 0.05
    assert a.result(a.fold((v, 0) for v in reversed(values))) == result
    assert a.result(halves(a, values)) == result


def test_quantiles_are_close_whole_and_merged() -> None:
    ranks = (0.01, 0.25, 0.5, 0.75, 0.99)
    a = quantiles(ranks)
    ordered = sorted(NUMBERS)
    for acc in (a.fold((v, 0) for v in NUMBERS), halves(a, NUMBERS)):
        for rank, found in zip(ranks, a.result(acc), strict=True):
            assert abs(sum(x <= found for x in ordered) / len(ordered) - rank) < 0.01
    assert len(a.fold((v, 0) for v in NUMBERS)) < 8 * len(NUMBERS) / 4


def test_no_heavy_hitter_is_missed() -> None:
    a = heavy_hitters(0.05)
    counts = Counter(WORDS)
    heavy = {w for w, n in counts.items() if n > 0.05 * len(WORDS)}
    assert len(heavy) >= 2
    for acc in (a.fold((v, 0) for v in WORDS), halves(a, WORDS)):
        found = {row["value"]: row for row in a.result(acc)}
        assert heavy <= set(found)
        for word, row in found.items():
            assert counts[word] >= 0.025 * len(WORDS)
            assert row["at_least"] <= counts[word] <= row["count"] <= counts[word] + 0.025 * len(WORDS)


def test_frequencies_are_never_too_low() -> None:
    a = count_min(error=0.01)
    counts = Counter(WORDS)
    for acc in (a.fold((v, 0) for v in WORDS), halves(a, WORDS)):
        sketch = a.result(acc)
        over = [frequency(sketch, w) - n for w, n in counts.items()]
        assert min(over) >= 0
        assert sum(o > 0.01 * len(WORDS) for o in over) <= 0.01 * len(over)
    assert frequency(a.init(), "w1") == 0


def test_a_filter_holds_all_it_was_given() -> None:
    a = bloom(items=1_000, false_positives=0.01, value=str)
    given = [f"in{i}" for i in range(1_000)]
    for acc in (a.fold((v, 0) for v in given), halves(a, given)):
        assert all(might_hold(acc, v, value=str) for v in given)
        assert sum(might_hold(acc, f"out{i}", value=str) for i in range(1_000)) < 30


BYTES_OF_ALL = """
from hashlib import blake2b
from penstock.topologies.aggregators import *
values = [f"v{i * i % 977}" for i in range(2000)]
made = [a.fold((v, 0) for v in values) for a in (approx_distinct(), heavy_hitters(0.05), count_min(), bloom())]
made.append(quantiles().fold((i * i % 977, 0) for i in range(2000)))
print([blake2b(m).hexdigest() for m in made])
"""


def test_bytes_do_not_depend_on_the_process() -> None:
    runs = {
        subprocess.run(
            [sys.executable, "-c", BYTES_OF_ALL],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ".package"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(runs) == 1


@pytest.mark.parametrize("make", [approx_distinct, quantiles, heavy_hitters, count_min, bloom])
def test_without_the_library_the_refusal_says_what_to_install(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("datasketches", "rbloom"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(TopologyError, match=r"pip install 'penstock\[sketches\]'"):
        make()


def test_bounds_are_checked() -> None:
    for call in (
        lambda: approx_distinct(lg_k=3),
        lambda: quantiles((1.5,)),
        lambda: quantiles(()),
        lambda: quantiles(compression=1),
        lambda: heavy_hitters(0),
        lambda: count_min(error=0),
        lambda: bloom(items=0),
    ):
        with pytest.raises(TopologyError):
            call()


def test_nan_is_no_value_of_a_quantile() -> None:
    a = quantiles((0.5,))
    assert a.result(a.fold([(float("nan"), 0)])) is None
    assert a.result(a.fold([(float("nan"), 0), (3, 0)])) == [3.0]
