"""Timestamps at the door: what is refused, against what it is measured, and what becomes of it."""

from __future__ import annotations

import pytest

from penstock.streams.ports.chunk import Chunk
from penstock.streams.task.error_policies import Policies, TimestampErrorPolicy
from penstock.streams.task.timestamp_checks import check_timestamps

HOUR = 3_600_000
NOW = 1_700_000_000_000


def chunk(*times: int) -> Chunk:
    return Chunk("t", 0, list(range(len(times))), [None] * len(times), [None] * len(times), list(times))


def policies(timestamp: TimestampErrorPolicy) -> Policies:
    return Policies(timestamp=timestamp, dead_letter_topic="letters")


def test_good_chunks_come_back_as_they_are() -> None:
    given = chunk(NOW, NOW - 5, NOW + HOUR)
    for policy in ("fail", "skip", "clamp", "dead_letter"):
        checked, time, wrong = check_timestamps(given, NOW, policies(policy), NOW)
        assert checked is given
        assert (time, wrong) == (NOW + HOUR, {})


def test_an_empty_chunk_changes_nothing() -> None:
    assert check_timestamps(chunk(), 7, Policies(), NOW) == (chunk(), 7, {})


def test_fail_measures_by_the_clock_and_not_by_stream_time() -> None:
    checked, time, wrong = check_timestamps(chunk(NOW + HOUR, NOW + HOUR + 1), 5, Policies(), NOW)
    assert list(wrong) == [1]
    assert "the clock" in wrong[1]
    assert checked.timestamps == [NOW + HOUR, NOW + HOUR]
    assert time == NOW + HOUR


def test_without_a_clock_fail_takes_any_future() -> None:
    assert check_timestamps(chunk(0, NOW, 10 * NOW), -1, Policies(), None)[1:] == (10 * NOW, {})


@pytest.mark.parametrize("policy", ["skip", "dead_letter", "clamp"])
def test_what_comes_before_any_stream_time_is_measured_by_the_clock_of_then(policy: TimestampErrorPolicy) -> None:
    """Whatever the clock says now: it is committed, so that restarts and replays decide alike."""
    given = chunk(2**62, NOW + HOUR + 1, NOW + HOUR, NOW + 2 * HOUR, 2**62)
    for clock in (None, 0, 10 * NOW):
        checked, time, wrong = check_timestamps(given, -1, policies(policy), clock, NOW)
        assert checked.timestamps == [0, 0, NOW + HOUR, NOW + 2 * HOUR, NOW + 2 * HOUR]
        assert time == NOW + 2 * HOUR
        assert list(wrong) == ([] if policy == "clamp" else [0, 1, 4])
        assert policy == "clamp" or "the clock of that time" in wrong[0]
    assert check_timestamps(chunk(2**62), -1, policies(policy), NOW)[1:] == (2**62, {}), "without it, nothing tells"


@pytest.mark.parametrize("policy", ["skip", "dead_letter"])
def test_skip_and_dead_letter_measure_by_stream_time_and_not_by_the_clock(policy: TimestampErrorPolicy) -> None:
    given = chunk(1_000, 1_000 + HOUR, 1_000 + 2 * HOUR + 1, 1_000 + 2 * HOUR)
    for clock in (None, 0, 10 * NOW):
        checked, time, wrong = check_timestamps(given, -1, policies(policy), clock)
        assert list(wrong) == [2]
        assert "the partition's stream time" in wrong[2]
        assert checked.timestamps == [1_000, 1_000 + HOUR, 1_000 + HOUR, 1_000 + 2 * HOUR]
        assert time == 1_000 + 2 * HOUR


def test_clamp_gives_the_partitions_stream_time_and_marks_nothing() -> None:
    checked, time, wrong = check_timestamps(chunk(-1, 50, -7, 50 + HOUR + 1), -1, policies("clamp"), None)
    assert checked.timestamps == [0, 50, 50, 50]
    assert (time, wrong) == (50, {})


@pytest.mark.parametrize("policy", ["fail", "skip", "dead_letter"])
def test_negative_times_are_wrong_under_every_policy(policy: TimestampErrorPolicy) -> None:
    checked, time, wrong = check_timestamps(chunk(-1, NOW), -1, policies(policy), None)
    assert wrong == {0: "timestamp -1 ms is negative"}
    assert checked.timestamps == [0, NOW]
    assert time == NOW


def test_the_first_record_is_measured_against_nothing_and_a_stream_time_of_0_tells_nothing() -> None:
    for before in (-1, 0):
        assert check_timestamps(chunk(NOW), before, policies("skip"), None)[2] == {}
    assert check_timestamps(chunk(NOW), 1, policies("skip"), None)[2] != {}


def test_chunks_may_be_cut_anywhere() -> None:
    times = [5, HOUR + 6, -2, HOUR + 5, 3 * HOUR, 2 * HOUR, 0]
    whole, whole_time, whole_wrong = check_timestamps(chunk(*times), -1, policies("skip"), None)
    time, usable = -1, []
    wrong: dict[int, str] = {}
    for i, ts in enumerate(times):
        checked, time, problem = check_timestamps(chunk(ts), time, policies("skip"), None)
        usable += checked.timestamps
        if problem:
            wrong[i] = problem[0]
    assert (usable, time, wrong) == (whole.timestamps, whole_time, whole_wrong)
