"""The ceiling of a workload, from ceilings at two sizes."""

from __future__ import annotations

import pytest

from benchmarks.ceiling import Ceilings, ceiling, mean_bytes, rate_at
from benchmarks.machine import kind
from benchmarks.workloads import WORKLOADS

# 1 µs per record and 10 ns per byte; 2 µs and 10 ns.
FETCH = ((100.0, 500_000.0), (300.0, 250_000.0))
PRODUCE = ((100.0, 1e6 / 3), (300.0, 200_000.0))


@pytest.mark.parametrize(("size", "expected"), [(100, 500_000), (200, 1e6 / 3), (300, 250_000), (500, 1e6 / 6)])
def test_rate_follows_a_cost_per_record_and_one_per_byte(size: float, expected: float) -> None:
    assert rate_at(FETCH, size) == pytest.approx(expected)


def test_rate_is_never_above_what_was_measured() -> None:
    assert rate_at(FETCH, 1) == 500_000
    assert rate_at(((100.0, 300.0),), 400) == 300


@pytest.mark.parametrize(("size", "expected"), [(50, 300), (100, 300), (200, 400), (400, 400)])
def test_where_larger_records_were_faster_each_size_has_its_own_rate(size: float, expected: float) -> None:
    assert rate_at(((100.0, 300.0), (200.0, 400.0)), size) == pytest.approx(expected)


def test_the_slower_of_fetch_and_produce_is_the_ceiling() -> None:
    assert ceiling(FETCH, PRODUCE, 100, 100, writes=1) == pytest.approx(1e6 / 3)
    assert ceiling(FETCH, PRODUCE, 100, 100, writes=0.1) == 500_000
    assert ceiling(FETCH, PRODUCE, 100, 100, writes=8) == pytest.approx(1e6 / 24)
    assert ceiling(FETCH, PRODUCE, 100, 100, writes=0) == 500_000


def test_the_fastest_client_at_each_size_counts() -> None:
    rows = [
        {"group": group, "bytes": size, "per_s": rate}
        for group, size, rate in [
            ("fetch", 72.0, 5.0), ("fetch", 72.0, 9.0), ("fetch", 240.0, 4.0), ("produce", 72.0, 3.0), ("disk", 0.0, 9.0)
        ]
    ]  # fmt: skip
    found = Ceilings.of_rows(rows)
    assert found is not None
    assert dict(found.fetch) == {72.0: 9.0, 240.0: 4.0}
    assert Ceilings.of_rows(rows[:3]) is None
    result = {"void": "", "writes_per_input": 1.0}
    assert found.of(WORKLOADS["pass-through"], result) == 3.0
    assert found.of(WORKLOADS["pass-through"], {"void": "wrong"}) is None


def test_bytes_of_a_data_set_are_those_of_its_records() -> None:
    assert 270 < mean_bytes("events") < 280
    assert 50 < mean_bytes("clicks") < 80


def test_the_kind_of_a_machine_is_a_name_for_a_file() -> None:
    assert kind("AMD EPYC 7B13 (64C)", 2) == "amd-epyc-7b13-64c-2-cores"
    assert "/" not in kind()
