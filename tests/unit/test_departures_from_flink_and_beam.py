"""The entries of the page of departures that are about Flink and Beam, as in ``test_departures``."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec
import pytest

import penstock as ps
from penstock.state.errors import ProcessingError, TopologyError
from tests.differential import beam_side, play_patterns
from tests.differential.inputs import Run
from tests.differential.kinds import patterns, triggered
from tests.unit.departure_answers import answers, by_window, pair

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


def test_numbers_too_large_for_their_decimal_are_not_lost() -> None:
    with pytest.raises(ProcessingError, match=r"12345.* has more than 2 digits before its point"):
        answers_of_sql("SELECT CAST(n AS DECIMAL(4, 2)) AS x FROM rows", ("k", Row(n=12345), 0))
    assert answers_of_sql("SELECT TRY_CAST(n AS DECIMAL(4, 2)) AS x FROM rows", ("k", Row(n=12345), 0)) == [{"x": None}]


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


def test_bounds_between_which_nothing_lies_are_refused() -> None:
    b = ps.StreamsBuilder("bounds", value=str)
    with pytest.raises(TopologyError, match="window from -4 to -5 ms is empty"):
        watermarked(b, "l").outer_join(watermarked(b, "r"), pair, before=4, after=-5, grace=0)


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
