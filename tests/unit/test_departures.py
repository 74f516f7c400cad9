"""Every entry of the page of departures, run: its input on our side, and the answer that the page says is ours.

An entry names its test in its last line. What the other system answers is stated there, not run here.
"""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

import penstock as ps
from penstock.state.errors import TopologyError
from tests.differential import beam_side, play_patterns
from tests.differential.inputs import Run
from tests.differential.kinds import patterns, triggered

PAGE = (Path(__file__).parents[2] / "DEPARTURES.md").read_text()


def answers(builder: ps.StreamsBuilder, *records: tuple[str, str | None, Any, int]) -> list[tuple[Any, Any, int]]:
    """What comes out for records ``(topic, key, value, timestamp)``, one at a time."""
    with ps.TopologyTestDriver(builder.build(), arrival_order=True) as driver:
        for topic, key, value, ts in records:
            driver.pipe(topic, key, value, ts)
        return [(r.key, r.value, r.timestamp_ms) for r in driver.read("out")]


def by_window(table: Any) -> Any:
    """A windowed table's changes under ``key@start-end``."""
    return table.to_stream(lambda w, v: f"{w.key}@{w.start_ms}-{w.end_ms}", key=str)


def pair(left: Any, right: Any) -> str:
    return f"{left}|{right}"


def test_the_page_and_these_tests_name_each_other() -> None:
    named = re.findall(r"^Test: `(test_\w+)`\.$", PAGE, re.MULTILINE)
    here = [n for n in globals() if n.startswith("test_") and n != "test_the_page_and_these_tests_name_each_other"]
    assert named == here
    assert PAGE.count("\n### ") == len(named)


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
    assert answers(b, ("rows", "k", "row", 5), ("rows", "k", None, 5), ("in", "k", "v", 6)) == [("k", "v|None", 6)]


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
    b = ps.StreamsBuilder("initial", value=int)
    total = b.table("in").group_by(lambda k, v: ("all", v))
    totals = total.aggregate(int, lambda k, v, t: t + v, lambda k, v, t: t - v, value=int)
    totals.group_by(lambda k, v: (str(v), v), key=str).count().to("out")
    assert answers(b, ("in", "k", 1, 1)) == [("1", 1, 1)]


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


# -- Flink -----------------------------------------------------------------------------------------------------------


def test_sessions_end_with_their_last_record() -> None:
    for bounds, expected in (("records", "k@0-5"), ("gap", "k@0-15")):
        b = ps.StreamsBuilder("sessions", value=str)
        sessions: Any = ps.session(10, grace=0, bounds=bounds)  # type: ignore[arg-type]  # one of the two
        by_window(b.stream("in").group_by_key().windowed_by(sessions).count()).to("out")
        assert answers(b, ("in", "k", "v", 0), ("in", "k", "v", 5))[-1][:2] == (expected, 2)


def test_hopping_windows_begin_at_the_epoch() -> None:
    for before_epoch, expected in ((False, ["k@0-10"]), (True, ["k@-5-5", "k@0-10"])):
        b = ps.StreamsBuilder("hopping", value=str)
        windows = ps.hopping(10, 5, grace=0, before_epoch=before_epoch)
        by_window(b.stream("in").group_by_key().windowed_by(windows).count()).to("out")
        assert [key for key, _, _ in answers(b, ("in", "k", "v", 2))] == expected


def test_patterns_that_may_wait_for_ever_are_refused() -> None:
    stream = ps.StreamsBuilder("patterns", value=str).stream("in")
    endless = ps.pattern("a").where(lambda e: e == "a").followed_by("b").where(lambda e: e == "b")
    with pytest.raises(TopologyError, match="may wait forever"):
        stream.match(endless)
    stream.match(endless, unbounded=True)


def answers_of_sql(text: str, *records: tuple[str, Any, int]) -> list[Any]:
    """What a query gives of ``rows``, for records ``(key, value, timestamp)``."""
    b = ps.StreamsBuilder("sql")
    rows = b.sql(text, rows=b.stream("in", value=Row))
    (rows.to_stream() if isinstance(rows, ps.KTable) else rows).to("out")
    return [value for _, value, _ in answers(b, *(("in", key, value, ts) for key, value, ts in records))]


class Row(msgspec.Struct, frozen=True):
    """A row of a query's input."""

    n: int = 0
    s: str = ""
    b: bool = False
    x: float = 0.0


def test_numbers_with_a_point_are_floats() -> None:
    [row] = answers_of_sql("SELECT n + 1.5 AS x, CAST('1.5' AS DECIMAL(2, 1)) AS d FROM rows", ("k", Row(1), 0))
    assert row == {"x": 2.5, "d": Decimal("1.5")}
    assert type(row["x"]) is float


def test_only_the_empty_text_is_like_an_empty_pattern() -> None:
    found = answers_of_sql("SELECT s LIKE '' AS x FROM rows", ("k", Row(s="a"), 0), ("k", Row(s=""), 0))
    assert found == [{"x": False}, {"x": True}]


def test_texts_that_are_no_numbers_are_no_decimals() -> None:
    found = answers_of_sql(
        "SELECT TRY_CAST(s AS DECIMAL(10, 2)) AS x FROM rows", ("k", Row(s="1x"), 0), ("k", Row(s="1"), 0)
    )
    assert found == [{"x": None}, {"x": Decimal(1)}]


def test_texts_of_fractions_are_no_integers() -> None:
    found = answers_of_sql("SELECT TRY_CAST(s AS BIGINT) AS x FROM rows", ("k", Row(s="1.5"), 0), ("k", Row(s="1"), 0))
    assert found == [{"x": None}, {"x": 1}]


def test_truth_values_are_written_small() -> None:
    assert answers_of_sql("SELECT CAST(b AS VARCHAR) AS x FROM rows", ("k", Row(b=True), 0)) == [{"x": "true"}]


def test_means_of_integers_are_floats() -> None:
    assert answers_of_sql("SELECT AVG(n) AS x FROM rows", ("k", Row(1), 0), ("k", Row(2), 1))[-1] == {"x": 1.5}


def test_last_values_go_by_event_time() -> None:
    assert answers_of_sql("SELECT LAST_VALUE(n) AS x FROM rows", ("k", Row(1), 5), ("k", Row(2), 3))[-1] == {"x": 1}


def test_variances_keep_their_digits() -> None:
    values = [("k", Row(x=1e9 + more), 0) for more in (4, 7, 13, 16)]
    assert answers_of_sql("SELECT VAR_POP(x) AS v FROM rows", *values)[-1] == {"v": 22.5}


def watermarked(b: ps.StreamsBuilder, topic: str) -> ps.KStream[Any, Any]:
    """A stream whose records are a watermark where they are a number."""
    stream = b.stream(topic, value=str, watermark=ps.punctuated(lambda r: int(r.value) if r.value.isdigit() else None))
    return stream.filter(lambda k, v: not v.isdigit())


def test_null_keys_do_not_wait_for_the_watermark() -> None:
    b = ps.StreamsBuilder("null-keys", value=str)
    watermarked(b, "l").left_join(watermarked(b, "r"), pair, within=10, grace=0).to("out")
    assert answers(b, ("l", None, "x", 5)) == [(None, "x|None", 5)]


def test_records_below_the_watermark_are_not_joined() -> None:
    b = ps.StreamsBuilder("late", value=str)
    watermarked(b, "l").join(watermarked(b, "r"), pair, within=10, grace=0).to("out")
    marks = [("l", "m", "8", 0), ("r", "m", "8", 0)]
    assert answers(b, ("l", "k", "x", 5), *marks, ("r", "k", "y", 7)) == []
    assert answers(b, ("l", "k", "x", 5), *marks, ("r", "k", "y", 8)) == [("k", "x|y", 8)]


def test_sql_joins_the_version_that_is_known() -> None:
    b = ps.StreamsBuilder("versions")
    inputs = {"l": b.stream("l", value=Row), "users": b.table("users", value=Row, history="1h")}
    b.sql("SELECT l.n AS n, u.s AS s FROM l JOIN users u ON l.key = u.key", **inputs).to("out")
    found = answers(b, ("users", "k", Row(s="ann"), 0), ("l", "k", Row(1), 5), ("users", "k", Row(s="bob"), 3))
    assert [value for _, value, _ in found] == [{"n": 1, "s": "ann"}]


def matched(*stages: dict[str, Any], events: str, **fields: Any) -> dict[str, list[tuple[str, int]]]:
    """What a pattern of the conformance format gives: ``events`` as ``name@timestamp``, each row as its events and time."""
    input_ = [
        {"event": {"id": index, "key": "k", "name": name, "n": 0}, "ts": int(ts), "key": "k"}
        for index, (name, ts) in enumerate(event.split("@") for event in events.split())
    ]
    run = Run("x", 0, [{"pattern": {"stages": list(stages), **fields}}], [*input_, {"event": "watermark", "ts": "max"}])
    found: dict[str, list[tuple[str, int]]] = {}
    for sink, row in play_patterns.play(run).flat():
        taken = [event for stage in row["v"].values() for event in stage]
        found.setdefault(sink, []).append((" ".join(f"{e['name']}{e['id']}" for e in taken), row["ts"]))
    return found


A = patterns.stage("begin", "a")


def test_matches_of_one_event_come_in_a_fixed_order() -> None:
    several = patterns.stage("followed_by_any", "b", times=[1, None], inner="combinations")
    found = matched(A, several, patterns.stage("followed_by", "c"), events="a@4 b@5 b@10 c@13", within_ms=25)
    assert [taken for taken, _ in found["matches"]] == ["a0 b1 b2 c3", "a0 b1 c3", "a0 b2 c3"]


def test_matches_that_no_event_completes_have_the_time_at_which_they_are_certain() -> None:
    assert matched(A, patterns.stage("not_followed_by", "b"), events="a@5", within_ms=12)["matches"] == [("a0", 17)]


def test_the_first_of_several_matches_is_kept() -> None:
    stages = (A, patterns.stage("followed_by_any", "b", "not_c"), patterns.stage("followed_by", "c"))
    found = matched(*stages, events="a@13 a@20 d@21 a@22 c@22", within_ms=25, skip={"strategy": "skip_to_next"})
    assert found["matches"] == [("a0 a1 c4", 22), ("a1 d2 c4", 22)]


def test_repeated_groups_repeat_no_match() -> None:
    group = patterns.group("begin", A, patterns.stage("followed_by", "b", times=[1, 2]), times=[1, 2])
    found = matched(group, patterns.stage("followed_by", "c"), events="a@9 b@9 b@10 b@10", within_ms=25)
    assert sorted(taken for taken, _ in found["timeouts"]) == ["a0 b1", "a0 b1", "a0 b1 b2", "a0 b1 b2"]


# -- Beam ------------------------------------------------------------------------------------------------------------


def test_count_triggers_fire_at_each_record() -> None:
    b = ps.StreamsBuilder("counts", value=str)
    windows = b.stream("in").group_by_key().windowed_by(ps.global_window())
    trigger = ps.triggers.repeatedly(ps.triggers.after_count(2))
    panes = windows.triggered(trigger, accumulation="discarding").to_list(value=list)
    panes.select_key(lambda w, v: w.key, key=str).to("out")
    with ps.TopologyTestDriver(b.build()) as driver:
        driver.pipe_all("in", [ps.Record("k", value, 1) for value in "xyz"])
        assert [r.value for r in driver.read("out")] == [["x", "y"]]


def panes(window: dict[str, Any], trigger: dict[str, Any], *entries: tuple[str, int], **fields: Any) -> list[Any]:
    """The panes of elements ``(value, timestamp)`` and ``("watermark", time)``, then the end of time: window, values, timing
    and timestamp."""
    node = {
        "window": window,
        "trigger": trigger,
        "accumulation": "discarding",
        "timestamp_combiner": "latest",
        "allowed_lateness": 3,
        **fields,
    }
    given = [{"watermark": ts} if value == "watermark" else {"elements": [[ts, value]]} for value, ts in entries]
    outcome = beam_side.play(Run("x", 0, [node], [*given, {"watermark": "max"}]))
    return [(row["w"], "".join(row["v"]["values"]), row["v"]["timing"], row["ts"]) for _, row in outcome.flat()]


SLIDING = {"type": "sliding", "size": 12, "period": 4}


def test_windows_that_fire_together_come_by_their_start() -> None:
    found = panes(SLIDING, triggered.TRIGGERS["watermark"], ("x", 10))
    assert [window for window, _, _, _ in found] == [[0, 12], [4, 16], [8, 20]]


def test_expired_sessions_take_no_elements() -> None:
    entries = ("x", 0), ("watermark", 7), ("y", 3)
    fields = {"accumulation": "accumulating", "allowed_lateness": 0}
    found = panes({"type": "session", "gap": 5}, triggered.TRIGGERS["watermark_late"], *entries, **fields)
    assert [(window, values) for window, values, _, _ in found] == [([0, 5], "x"), ([3, 8], "y")]


def test_panes_are_late_when_the_watermark_has_passed_their_window() -> None:
    found = panes(SLIDING, triggered.TRIGGERS["repeated_watermark"], ("x", 4), ("watermark", 5), ("y", 3))
    assert [(values, timing) for window, values, timing, _ in found if window == [-8, 4]] == [("y", "LATE")]


def test_elements_behind_the_watermark_do_not_move_a_panes_timestamp() -> None:
    entries = ("x", 0), ("watermark", 4), ("y", 1)
    found = panes({"type": "fixed", "size": 10}, triggered.TRIGGERS["watermark_early"], *entries)
    assert found[0] == ([0, 10], "xy", "EARLY", 0)
