"""Senders keep to their schedule, and what came is held against what was sent."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
import pytest
from confluent_kafka import Message

from benchmarks.big_table import name_of, pool, profiles, rate
from benchmarks.burst import figures, phases
from benchmarks.clicks import Clicks, Enriched, lost
from benchmarks.live import CHUNK, due_places, quantiles


class Answer:
    """As much of a message as is read."""

    def __init__(self, key: bytes, value: bytes) -> None:
        self._key, self._value = key, value

    def key(self) -> bytes:
        return self._key

    def value(self) -> bytes:
        return self._value


def enriched_click(user: int, number: int, due_us: int, name: str) -> Message:
    value = b'{"user":"u%07d","url":"/page/%d","ts":%d,"profile":{"name":"%b"}}' % (user, number, due_us, name.encode())
    return cast(Message, Answer(b"u%07d" % user, value))


class Sent:
    """As much of a sender as is read."""

    def __init__(self, sent: int) -> None:
        self.sent = sent


def test_the_schedule_follows_the_clock_and_catches_up_in_chunks() -> None:
    assert due_places(0.5, 100, 20, 1_000) == range(20, 50)
    assert not due_places(0.1, 100, 20, 1_000)
    assert due_places(99.0, 100, 20, 50) == range(20, 50)
    assert len(due_places(99.0, 100_000, 0, 10**6)) == CHUNK


def test_each_click_counts_once_by_its_first_arrival() -> None:
    enriched = Enriched(lambda user: f"name {user}")
    enriched.take([enriched_click(1, 0, 10, "name 1"), enriched_click(2, 2, 30, "name 2")], 100)
    enriched.take([enriched_click(3, 1, 20, "name 3"), enriched_click(2, 2, 30, "name 2")], 200)
    numbers, due, came = enriched.arrays(1)
    assert (numbers.tolist(), due.tolist(), came.tolist()) == ([1, 2], [20, 30], [200, 100])
    assert len(enriched) == 4
    assert lost(cast(Clicks, Sent(3)), 1, numbers, enriched) == ""
    assert lost(cast(Clicks, Sent(4)), 1, numbers, enriched).startswith("2 of 3")


def test_a_stranger_s_profile_is_told() -> None:
    enriched = Enriched(lambda user: f"name {user}")
    enriched.take([enriched_click(1, 0, 10, "name 2")], 100)
    assert "without their user's profile" in lost(cast(Clicks, Sent(1)), 0, enriched.arrays()[0], enriched)


def test_a_burst_is_short_and_23_5_times_the_rate() -> None:
    before, during, after = phases(1_000, 0.5)
    assert (before.seconds, during.seconds, after.seconds) == (60, 30, 60)
    assert (before.rate_per_s, during.rate_per_s) == (1_000, 23_500)


def test_a_burst_s_backlog_is_told_by_its_drain_and_by_the_first_calm_second() -> None:
    """One click a second: 10 ms before; those of the burst come at 25 s, and those due until then after them."""
    due = np.arange(0, 30_000_000, 1_000_000)
    came = np.where((due >= 10_000_000) & (due < 25_000_000), 25_000_000, due + 10_000)
    found = figures([0, 10_000_000, 20_000_000, 30_000_000], due, came)
    assert found["before"]["max_ms"] == 10
    assert found["during"]["max_ms"] == 15_000
    assert found["drained_s"] == 5.0
    assert found["calm_s"] == 5
    assert found["p99_ms_by_second"][24:26] == [1_000.0, 10.0]


def test_a_burst_that_never_ends_is_never_calm() -> None:
    due = np.arange(0, 30_000_000, 1_000_000)
    came = np.where(due >= 10_000_000, 60_000_000, due + 10_000)
    assert figures([0, 10_000_000, 20_000_000, 30_000_000], due, came)["calm_s"] is None


def test_quantiles_of_nothing_are_no_numbers() -> None:
    assert math.isnan(quantiles(np.array([]))["p99_ms"])
    assert quantiles(np.array([1.0, 3.0]))["p50_ms"] == 2.0


def test_every_row_of_the_large_table_has_its_own_kilobyte() -> None:
    text, rows = pool(), list(profiles(3, 7_200_000))
    assert [key for key, _, _ in rows] == [b"u0000000", b"u0000001", b"u0000002"]
    assert all(950 < len(value) < 1_050 and time == 3_600_000 for _, value, time in rows)
    assert len({value[40:] for _, value, _ in rows}) == 3
    assert name_of(2, text).encode() in rows[2][1]


def test_the_rate_of_a_backlog_leaves_its_beginning_out() -> None:
    slow_then_fast: list[Any] = [*range(0, 40_000_000, 1_000_000), *range(40_000_000, 46_000_000, 100_000)]
    assert rate(slow_then_fast) == pytest.approx(10.0)
    assert math.isnan(rate([])) and math.isnan(rate([5, 5]))
