"""Every entry of the page of departures, run: its input on our side, and the answer that the page says is ours.

An entry names its test in its last line. What Kafka Streams answers is run in ``tests.integration.test_departures``; what
Flink and Beam answer is stated on the page.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from tests.differential import known, known_patterns, known_queries, known_triggers
from tests.differential.departures import Departure
from tests.unit import test_departures_from_flink_and_beam as flink_and_beam
from tests.unit.departure_answers import answers, by_window, pair

PAGE = (Path(__file__).parents[2] / "DEPARTURES.md").read_text()


def test_the_page_and_these_tests_name_each_other() -> None:
    named = re.findall(r"^Test: `(test_\w+)`\.$", PAGE, re.MULTILINE)
    modules = (sys.modules[__name__], flink_and_beam)
    here = [name for module in modules for name in vars(module) if name.startswith("test_")]
    for about_the_page in (
        "test_the_page_and_these_tests_name_each_other",
        "test_what_the_comparisons_excuse_is_on_the_page",
    ):
        here.remove(about_the_page)
    assert named == here
    assert PAGE.count("\n### ") == len(named)


@pytest.mark.parametrize(
    ("section", "departures"),
    [
        ("Kafka Streams", known.DEPARTURES),
        ("Flink", known_patterns.DEPARTURES + known_queries.DEPARTURES),
        ("Beam", known_triggers.RUNNER_DEPARTURES),
    ],
)
def test_what_the_comparisons_excuse_is_on_the_page(section: str, departures: tuple[Departure, ...]) -> None:
    entries = re.findall(r"^### (.*)$", PAGE.split(f"\n## {section}\n")[1].split("\n## ")[0], re.MULTILINE)
    assert {departure.entry for departure in departures} <= set(entries)


# -- Kafka Streams ---------------------------------------------------------------------------------------------------


def test_null_values_are_not_counted_in_windows() -> None:
    b = ps.StreamsBuilder("nulls", value=str)
    by_window(b.stream("in").group_by_key().windowed_by(ps.tumbling(10, grace=0)).count()).to("out")
    assert answers(b, ("in", "k", None, 1), ("in", "k", "v", 2)) == [("k@0-10", 1, 2)]


def test_foreign_key_results_have_the_later_timestamp() -> None:
    b = ps.StreamsBuilder("foreign", value=str)
    b.table("l").join_foreign(b.table("r"), lambda k, v: "x", pair).to("out")
    assert answers(b, ("l", "a", "A", 5), ("r", "x", "B", 3)) == [("a", "A|B", 5)]


def test_negative_bounds_do_not_reach_over_the_epoch() -> None:
    b = ps.StreamsBuilder("bounds", value=str)
    b.stream("l").join(b.stream("r"), pair, before=4, after=-1, grace=0).to("out")
    assert answers(b, ("r", "k", "R", 0), ("l", "k", "L", 0)) == []
    assert answers(b, ("l", "k", "L", 0), ("r", "k", "R", 0)) == []


def test_sliding_windows_come_by_their_start() -> None:
    b = ps.StreamsBuilder("sliding", value=str)
    by_window(b.stream("in").group_by_key().windowed_by(ps.sliding(5, grace=10)).count()).to("out")
    found = answers(b, ("in", "k", "v", 10), ("in", "k", "v", 12), ("in", "k", "v", 11))
    assert [key for key, _, _ in found[-4:]] == ["k@6-11", "k@7-12", "k@11-16", "k@12-17"]


def test_a_null_key_in_a_left_join_with_grace_meets_nothing() -> None:
    b = ps.StreamsBuilder("grace", value=str)
    b.stream("in").left_join(b.table("rows", history=100), pair, grace=10).to("out")
    assert answers(b, ("in", None, "v", 5)) == [(None, "v|None", 5)]


def test_records_of_one_time_leave_a_grace_buffer_as_they_came() -> None:
    b = ps.StreamsBuilder("ties", value=str)
    b.stream("in").left_join(b.table("rows", history=100), pair, grace=10).to("out")
    found = answers(b, ("in", "b", "first", 5), ("in", "a", "second", 5), ("in", "c", "later", 20))
    assert [key for key, _, _ in found] == ["b", "a"]


def test_records_that_meet_nobody_are_emitted_when_due() -> None:
    b = ps.StreamsBuilder("due", value=str)
    b.stream("l").left_join(b.stream("r"), pair, within=5, grace=0).to("out")
    found = answers(b, ("l", "k", "x", 0), ("r", "q", "y", 6), ("l", "m", "z", 7), ("r", "q", "y", 13))
    assert found == [("k", "x|None", 0), ("m", "z|None", 7)]


def test_windows_are_emitted_on_close_however_far_time_jumps() -> None:
    b = ps.StreamsBuilder("jump", value=str)
    windows = b.stream("in").group_by_key().windowed_by(ps.tumbling("10s", grace=0))
    by_window(windows.count(emission="on_close")).to("out")
    assert answers(b, ("in", "k", "v", 1_000), ("in", "k", "v", 30_000)) == [("k@0-10000", 1, 1_000)]


def test_sliding_windows_are_kept_while_records_in_time_need_them() -> None:
    b = ps.StreamsBuilder("kept", value=str)
    by_window(b.stream("in").group_by_key().windowed_by(ps.sliding(3, grace=0)).count()).to("out")
    found = answers(b, ("in", "k", "v", 4), ("in", "q", "v", 6), ("in", "q", "v", 7), ("in", "k", "v", 7))
    assert found[-2:] == [("k@4-7", 2, 7), ("k@5-8", 1, 7)]


def test_a_sliding_window_begins_behind_every_record_that_counts() -> None:
    b = ps.StreamsBuilder("late", value=str)
    by_window(b.stream("in").group_by_key().windowed_by(ps.sliding(10, grace=0)).count()).to("out")
    found = answers(b, ("in", "k", "v", 2), ("in", "q", "v", 11), ("in", "k", "v", 9), ("in", "k", "v", 13))
    assert found[-2:] == [("k@3-13", 2, 13), ("k@10-20", 1, 13)]


def test_sessions_are_kept_while_records_in_time_reach_them() -> None:
    b = ps.StreamsBuilder("kept", value=str)
    by_window(b.stream("in").group_by_key().windowed_by(ps.session(3, grace=0)).count()).to("out")
    found = answers(b, ("in", "k", "v", 5), ("in", "q", "v", 8), ("in", "k", "v", 8))
    assert found[-2:] == [("k@5-5", None, 5), ("k@5-8", 2, 8)]


def test_joined_windows_are_kept_for_a_day_after_they_closed() -> None:
    b = ps.StreamsBuilder("kept", value=str)
    left, right = (
        b.stream(topic).group_by_key().windowed_by(ps.tumbling("10s", grace=0)).count(emission="on_close")
        for topic in ("l", "r")
    )
    by_window(left.join(right, pair, value=str)).to("out")
    found = answers(
        b, ("l", "k", "v", 1_000), ("l", "k", "v", 40_000_000), ("r", "k", "v", 1_500), ("r", "k", "v", 40_000_000)
    )
    assert found == [("k@0-10000", "1|1", 1_500)]


def test_sliding_windows_may_be_one_instant_long() -> None:
    b = ps.StreamsBuilder("instant", value=str)
    by_window(b.stream("in").group_by_key().windowed_by(ps.sliding(0, grace=0)).count()).to("out")
    assert answers(b, ("in", "k", "v", 5), ("in", "k", "v", 5)) == [("k@5-5", 1, 5), ("k@5-5", 2, 5)]


def test_a_tombstone_deletes_a_version_of_its_own_time() -> None:
    b = ps.StreamsBuilder("versions", value=str)
    b.stream("in").left_join(b.table("rows", history=100), pair).to("out")
    rows = [("rows", "k", "row", 5), ("rows", "k", None, 5), ("rows", "k", "old", 3)]
    assert answers(b, *rows, ("in", "k", "v", 6)) == [("k", "v|None", 6)]


def test_sliding_windows_leave_suppress_in_the_order_of_their_updates() -> None:
    b = ps.StreamsBuilder("sliding-suppress", value=str)
    windows = b.stream("in").group_by_key().windowed_by(ps.sliding(10, grace=0))
    by_window(windows.reduce(lambda a, v: f"{a},{v}").suppress(ps.until_time_limit(5))).to("out")
    found = answers(b, ("in", "k", "a", 61), ("in", "k", "b", 63), ("in", "k", "c", 69))
    assert found == [("k@51-61", "a", 61), ("k@53-63", "a,b", 63), ("k@62-72", "b", 63)]


def test_suppressed_rows_keep_their_timestamps() -> None:
    b = ps.StreamsBuilder("suppressed-times", value=str)
    b.table("l").suppress(ps.until_time_limit(5)).left_join(b.table("r"), pair, value=str).to("out")
    found = answers(b, ("l", "k", None, 17), ("l", "k", "a", 265), ("l", "k", "b", 270), ("r", "k", "x", 254))
    assert found == [("k", "a|None", 265), ("k", "a|x", 265)]


def test_an_initial_aggregate_is_no_row() -> None:
    b = ps.StreamsBuilder("initial", value=str)
    counts = b.stream("in").group_by_key().count()
    counts.group_by(lambda k, v: (str(v), k), key=str, value=str).count().to("out")
    assert answers(b, ("in", "k", "v", 1)) == [("1", 1, 1)]


def test_a_table_joined_with_itself_tells_deletions() -> None:
    b = ps.StreamsBuilder("itself", value=int)
    rows = b.table("in")
    rows.join(rows.map_values(lambda v: -v), pair, value=str).to("out")
    assert answers(b, ("in", "k", 1, 1), ("in", "k", None, 2))[-1] == ("k", None, 2)


def test_cogroups_on_close_share_one_time() -> None:
    b = ps.StreamsBuilder("closing", value=str)
    first, second = (b.stream(topic).group_by_key() for topic in ("a", "b"))
    both = first.cogroup(lambda k, v, t: t + v).cogroup(second, lambda k, v, t: t + v)
    by_window(both.windowed_by(ps.tumbling(10, grace=0)).aggregate(str, value=str, emission="on_close")).to("out")
    found = answers(b, ("b", "k", "y", 8), ("a", "k", "x", 10), ("b", "k", "z", 9))
    assert found == [("k@0-10", "y", 8)]


def test_no_stream_of_a_cogroup_lies_more_than_a_day_behind() -> None:
    day_ms = 86_400_000
    b = ps.StreamsBuilder("lag", value=str)
    first, second = (b.stream(topic).group_by_key() for topic in ("a", "b"))
    both = first.cogroup(lambda k, v, t: t + v).cogroup(second, lambda k, v, t: t + v)
    by_window(both.windowed_by(ps.tumbling(10, grace=0)).aggregate(str, value=str)).to("out")
    found = answers(
        b, ("a", "k", "x", day_ms + 9), ("b", "k", "y", 9), ("a", "k", "x", day_ms + 10), ("b", "k", "z", 9)
    )
    assert [value for key, value, _ in found if key == "k@0-10"] == ["y"]


def test_records_without_a_value_do_not_move_the_time_of_a_join() -> None:
    b = ps.StreamsBuilder("ahead", value=str)
    b.stream("l").left_join(b.stream("r"), pair, within=5, grace=5).to("out")
    assert answers(b, ("r", "q", None, 100), ("l", "k", "x", 10), ("r", "k", "y", 12)) == [("k", "x|y", 12)]


def test_records_meet_until_window_and_grace_are_over() -> None:
    b = ps.StreamsBuilder("late", value=str)
    b.stream("l").join(b.stream("r"), pair, within=8, grace=2).to("out")
    assert answers(b, ("l", "k", "a", 10), ("l", "q", "z", 28), ("r", "k", "b", 10)) == [("k", "a|b", 10)]
    b = ps.StreamsBuilder("later", value=str)
    b.stream("l").join(b.stream("r"), pair, within=8, grace=2).to("out")
    assert answers(b, ("l", "k", "a", 10), ("l", "q", "z", 29), ("r", "k", "b", 10)) == []


def test_late_records_do_not_meet_the_rows_of_a_side_that_stands_still() -> None:
    b = ps.StreamsBuilder("late", value=str)
    b.stream("l").left_join(b.stream("r"), pair, within=100, grace=0).to("out")
    found = answers(b, ("r", "k", "b", 1000), ("l", "k", "x", 1405), ("l", "k", "c", 900))
    assert found == [("k", "c|None", 900)]


def test_unmatched_records_wait_for_the_bound_of_their_side() -> None:
    b = ps.StreamsBuilder("bound", value=str)
    b.stream("l").left_join(b.stream("r"), pair, before=8, after=2, grace=0).to("out")
    assert answers(b, ("l", "k", "x", 10), ("r", "q", "y", 12)) == []
    assert answers(b, ("l", "k", "x", 10), ("r", "q", "y", 14)) == [("k", "x|None", 10)]


def test_outdated_versions_are_no_change_of_the_table() -> None:
    b = ps.StreamsBuilder("outdated", value=str)
    b.table("rows", history=100).to_stream().to("out")
    assert answers(b, ("rows", "k", "new", 10), ("rows", "k", "old", 5)) == [("k", "new", 10)]


def test_results_that_were_never_emitted_are_not_deleted() -> None:
    b = ps.StreamsBuilder("never", value=str)
    b.table("l").join_foreign(b.table("r"), lambda k, v: "x", pair).to("out")
    assert answers(b, ("l", "a", "A", 1), ("l", "a", None, 2)) == []


def test_suppress_names_what_it_emitted_last_as_the_old_value() -> None:
    b = ps.StreamsBuilder("replaced", value=str)
    held = b.table("rows").suppress(ps.until_time_limit(5))
    groups = held.group_by(lambda k, v: ("all", v))
    groups.aggregate(str, lambda k, v, t: f"{t}+{v}", lambda k, v, t: f"{t}-{v}", value=str).to("out")
    rows = [("k", "a", 0), ("k", "b", 10), ("q", "c", 20), ("k", "d", 30), ("k", "e", 31), ("q", "f", 50)]
    assert answers(b, *(("rows", *row) for row in rows))[-1] == ("all", "+b+c-b+e", 31)


def test_suppress_does_not_lose_deletions() -> None:
    b = ps.StreamsBuilder("deleted", value=str)
    b.table("l").suppress(ps.until_time_limit(5)).left_join(b.table("r"), pair, value=str).to("out")
    rows = [("k", "a", 0), ("q", "z", 10), ("k", None, 20), ("k", None, 21), ("q", "y", 40)]
    assert answers(b, *(("l", *row) for row in rows))[-1] == ("k", None, 21)


def test_null_aggregates_have_the_latest_time() -> None:
    for emission in ("every_update", "per_commit"):
        b = ps.StreamsBuilder("nulls-again", value=str)
        grouped: Any = b.stream("in").group_by_key()
        grouped.reduce(lambda old, new: None, emission=emission).to("out")
        assert answers(b, ("in", "k", "a", 5), ("in", "k", "b", 1))[-1] == ("k", None, 5)


def test_a_sliding_window_is_emitted_once_for_a_record() -> None:
    b = ps.StreamsBuilder("twice", value=str)
    by_window(b.stream("in").group_by_key().windowed_by(ps.sliding(10, grace=0)).count()).to("out")
    found = answers(b, ("in", "k", "v", 6), ("in", "k", "v", 10), ("in", "k", "v", 21))
    assert [key for key, _, _ in found].count("k@11-21") == 1


def test_a_session_that_keeps_its_bounds_replaces_itself() -> None:
    b = ps.StreamsBuilder("bounds-kept", value=str)
    sessions: Any = b.stream("in").group_by_key().windowed_by(ps.session(5, grace=0)).reduce(lambda a, v: a + v)
    groups = sessions.group_by(lambda w, v: (w.key, v), key=str)
    groups.aggregate(str, lambda k, v, t: f"{t}+{v}", lambda k, v, t: f"{t}-{v}", value=str).to("out")
    assert answers(b, ("in", "k", "b", 5), ("in", "k", "e", 5))[-1] == ("k", "+b-b+be", 5)


class _Numbering(ps.Processor[Any, Any, Any, Any]):
    def init(self, ctx: Any) -> None:
        self.number = 0

    def process(self, record: Any, ctx: Any) -> None:
        self.number += 1
        ctx.forward(record.key, f"{record.value}#{self.number}")


def test_processors_of_changes_are_not_asked_for_old_values() -> None:
    b = ps.StreamsBuilder("numbered", value=str)
    rows = b.table("rows").transform_values(_Numbering)
    by_letter = rows.group_by(lambda k, v: (v[0], v), key=str)
    by_letter.aggregate(str, lambda k, v, a: f"{a}+{v}", lambda k, v, a: f"{a}-{v}", value=str).to("out")
    assert answers(b, ("rows", "k", "a", 0), ("rows", "k", "b", 1)) == [
        ("a", "+a#1", 0),
        ("a", "+a#1-a#1", 1),
        ("b", "+b#2", 1),
    ]


def test_a_closed_session_is_final() -> None:
    b = ps.StreamsBuilder("closed", value=str)
    windows: Any = b.stream("in").group_by_key().windowed_by(ps.session(3, grace=3))
    by_window(windows.reduce(lambda a, v: a + v, emission="on_close")).to("out")
    rows = [("k", "a", 26), ("k", "b", 32), ("k", "c", 38), ("k", "d", 29), ("q", "e", 42)]
    assert answers(b, *(("in", *row) for row in rows)) == [("k@26-26", "a", 26), ("k@29-32", "bd", 32)]


def test_a_join_does_not_repeat_rows_that_did_not_change() -> None:
    b = ps.StreamsBuilder("repeats", value=str)
    b.table("l").outer_join(b.table("r").map_values(str.upper), pair, value=str).to("out")
    assert answers(b, ("l", "k", "a", 6), ("r", "k", None, 14)) == [("k", "a|None", 6)]


def test_a_null_aggregate_may_be_deleted_again() -> None:
    b = ps.StreamsBuilder("again", value=str)
    grouped: Any = b.stream("in").flat_map_values(lambda v: v.split(",")).group_by_key()
    grouped.reduce(lambda old, new: None, emission="per_commit").to("out")
    assert answers(b, ("in", "k", "a,b", 5)) == [("k", None, 5)]


class Ticking(ps.Processor[str, str, str, str]):
    """Tells when its timers fire."""

    timers = ("stream_time", "wall_time")

    def init(self, ctx: ps.ProcessorContext[str, str]) -> None:
        ctx.schedule(10, lambda now: ctx.forward("stream", "", timestamp_ms=now), "stream_time")
        ctx.schedule(10, lambda now: ctx.forward("clock", "", timestamp_ms=now), "wall_time")

    def process(self, record: ps.Record[str, str], ctx: ps.ProcessorContext[str, str]) -> None:
        pass


def test_repartition_keeps_records_without_a_key() -> None:
    b = ps.StreamsBuilder("sent", value=str)
    b.stream("in").repartition().to("out")
    assert answers(b, ("in", None, "v", 5)) == [(None, "v", 5)]


def test_timers_fire_when_stream_time_passes_a_multiple() -> None:
    b = ps.StreamsBuilder("timer", value=str)
    b.stream("in").process(Ticking).to("out")
    found = answers(b, ("in", "k", "a", 12), ("in", "k", "b", 25))
    assert [(key, ts) for key, _, ts in found if key == "stream"] == [("stream", 25)]


def test_timers_by_the_clock_begin_with_its_first_reading() -> None:
    b = ps.StreamsBuilder("clock", value=str)
    b.stream("in").process(Ticking).to("out")
    with ps.TopologyTestDriver(b.build(), arrival_order=True) as driver:
        driver.pipe("in", "k", "a", 1)
        driver.advance_wall_time(15)
        assert driver.read("out") == []
        driver.advance_wall_time(5)
        assert [(r.key, r.timestamp_ms) for r in driver.read("out")] == [("clock", 20)]
