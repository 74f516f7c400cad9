"""Triggered windows of every kind, what is late, what closing emits, panes that replace others, and bounded state."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.state.log import Record, TaskId
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies import triggers as t
from penstock.topologies.aggregators import agg, count, mean
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.expressions.functions import value
from penstock.topologies.operator_api.edge_kinds import is_retraction
from penstock.topologies.operator_api.pane_info import pane_of
from penstock.topologies.operator_api.watermark_strategies import bounded_out_of_orderness, punctuated
from penstock.topologies.windows import calendar, custom, global_window, hopping, merge_overlapping, session, tumbling

BATCHES = (1, 1_000)


class Run:
    """A topology of one triggered operator called ``panes``, and what comes of records."""

    def __init__(self, windows: Any, trigger: Any, fold: Any = None, *, batch: int = 1_000, **how: Any) -> None:
        builder = StreamsBuilder("t", key=str, value=int)
        # a negative value is a watermark
        source = builder.stream("in", watermark=punctuated(lambda r: r.timestamp_ms if r.value == -1 else None))
        grouped = source.filter(lambda k, v: v != -1).group_by_key().windowed_by(windows).triggered(trigger, **how)
        panes = (fold or (lambda g: g.to_list(name="panes")))(grouped)
        panes.to("out", retractions=True)
        panes.late.to("late")
        options = TaskOptions(batch_max_records=batch, wall_resolution_ms=1)
        self.driver = TopologyTestDriver(builder.build(), options=options)

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *error: Any) -> None:
        self.driver.release()

    def give(self, *rows: Any) -> list[tuple[Any, ...]]:
        """Rows are ``(key, value, ts)``, or a watermark; gives ``(window, value, ts)`` of each pane."""
        records = [Record("", -1, r) if isinstance(r, int) else Record(*r) for r in rows]
        self.driver.pipe_all("in", records)
        return self.panes()

    def panes(self) -> list[tuple[Any, ...]]:
        self.last = self.driver.read("out")
        return [((r.key.start_ms, r.key.end_ms), r.value, r.timestamp_ms) for r in self.last]

    @property
    def timings(self) -> list[str]:
        return [f"{p.timing} {p.index} {p.nonspeculative_index}" for r in self.last if (p := pane_of(r.headers))]

    @property
    def sizes(self) -> list[int]:
        return [len(list(s.range())) for s in self.driver.tasks[TaskId(0, 0)].stores.values()]


@pytest.mark.parametrize("batch", BATCHES)
def test_hopping_windows_fire_each_by_its_own_end(batch: int) -> None:
    with Run(hopping(10, 5, grace=0, before_epoch=True), t.default_trigger(), batch=batch) as run:
        assert run.give(("a", 1, 3), ("a", 2, 7), 4, 9, 100) == [
            ((-5, 5), [1], 4),
            ((0, 10), [1, 2], 9),
            ((5, 15), [2], 14),
        ]


def test_calendar_windows_follow_the_zone() -> None:
    hour = 3_600_000
    with Run(calendar("day", "Europe/Berlin", grace=0), t.default_trigger()) as run:
        # 31 March 2024 has 23 hours there
        day = 1_711_839_600_000
        assert run.give(("a", 1, day), ("a", 2, day + 23 * hour), day + 30 * 24 * hour) == [
            ((day, day + 23 * hour), [1], day + 23 * hour - 1),
            ((day + 23 * hour, day + 47 * hour), [2], day + 47 * hour - 1),
        ]


def test_the_global_window_counts_on_and_its_panes_have_the_latest_time() -> None:
    with Run(global_window(), t.count(2), lambda g: g.count(name="panes")) as run:
        assert run.give(("a", 1, 5), ("a", 1, 3), ("a", 1, 9), ("a", 1, 4)) == [
            ((0, (1 << 63) - 1), 2, 5),
            ((0, (1 << 63) - 1), 4, 9),
        ]


def test_custom_windows_may_merge() -> None:
    windows = custom(lambda k, v, ts: [(ts, ts + v)], max_size=100, grace=0, merge=merge_overlapping)
    with Run(windows, t.default_trigger()) as run:
        assert run.give(("a", 5, 0), ("a", 3, 20), ("a", 17, 4), 50) == [((0, 23), [5, 3, 17], 22)]
        assert run.sizes == [0, 0, 0]


def test_sessions_in_processing_time_close_by_the_clock() -> None:
    with Run(session(3_000, grace=0, time="processing"), t.event_time(), lambda g: g.reduce(lambda a, b: a + b)) as run:
        run.driver.advance_wall_time(3)
        run.give(("k", 1, 0))
        run.driver.advance_wall_time(997)
        assert run.give(("k", 2, 0)) == []
        run.driver.advance_wall_time(4_000)
        assert run.panes() == [((3, 4_000), 3, 3_999)]
        assert run.timings == ["ON_TIME 0 0"]
        run.give(("k", 5, 0), ("l", 7, 0))
        run.driver.advance_wall_time(5_000)
        assert run.panes() == [((5_000, 8_000), 5, 7_999), ((5_000, 8_000), 7, 7_999)]
        assert run.sizes == [0, 0, 0]


def test_flinks_processing_time_trigger_on_windows_in_event_time() -> None:
    with Run(tumbling(10, grace=0), t.processing_time()) as run:
        run.give(("a", 1, 3))
        run.driver.advance_wall_time(9)
        assert run.panes() == []
        run.driver.advance_wall_time(1)
        assert run.panes() == [((0, 10), [1], 9)]
        assert run.timings == ["EARLY 0 -1"]


# -- late records ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", BATCHES)
def test_a_record_is_late_when_all_its_windows_are_closed(batch: int) -> None:
    with Run(hopping(10, 5, grace=0), t.default_trigger(), batch=batch) as run:
        run.give(9, ("a", 1, 7), ("a", 2, 2), 14, ("a", 3, 6))
        assert [(r.key, r.value, r.timestamp_ms) for r in run.driver.read("late")] == [("a", 2, 2), ("a", 3, 6)]
        assert run.driver.dropped_records["panes.late"] == 2


def test_allowed_lateness_ends_with_its_last_millisecond() -> None:
    with Run(tumbling(10, grace=0), t.default_trigger(), allowed_lateness=5) as run:
        assert run.give(("a", 1, 1), 13, ("a", 2, 2)) == [((0, 10), [1], 9), ((0, 10), [1, 2], 9)]
        assert run.give(14, ("a", 3, 3)) == []
        assert run.driver.dropped_records["panes.late"] == 1


def test_the_windows_grace_is_the_lateness_that_is_not_named() -> None:
    with Run(tumbling(10, grace=5), t.default_trigger()) as run:
        assert len(run.give(("a", 1, 1), 13, ("a", 2, 2), 14, ("a", 3, 3))) == 2


def test_unlimited_lateness_keeps_windows_for_ever() -> None:
    with Run(tumbling(10, grace=0), t.default_trigger(), allowed_lateness="unlimited") as run:
        assert len(run.give(("a", 1, 1), 10**9, ("a", 2, 2))) == 2
        assert run.sizes == [1, 0, 0]


@pytest.mark.parametrize(("late_by", "taken"), [("merged", True), ("record", False)])
def test_a_late_record_may_still_be_part_of_a_session_that_is_open(late_by: str, taken: bool) -> None:
    with Run(session(10, grace=0, bounds="gap"), t.default_trigger(), late_by=late_by) as run:
        out = run.give(("a", 1, 20), 25, ("a", 2, 12), 100)
        assert out == ([((12, 30), [1, 2], 29)] if taken else [((20, 30), [1], 29)])
        assert run.driver.dropped_records["panes.late"] == (not taken)


def test_a_finished_window_takes_no_more_records_and_they_are_counted() -> None:
    with Run(tumbling(10, grace=0), t.after_count(2)) as run:
        assert run.give(("a", 1, 1), ("a", 2, 1), ("a", 3, 1), ("b", 4, 1)) == [((0, 10), [1, 2], 9)]
        assert run.driver.dropped_records["panes.finished"] == 1
        assert pane_of(run.last[0].headers).is_last  # type: ignore[union-attr]  # panes have the header
        assert run.give(9) == [((0, 10), [4], 9)]


# -- panes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("closing", "emitted"), [("fire_if_fresh", [[3]]), ("discard", []), ("fire_always", [[3], []])]
)
def test_what_closing_emits(closing: str, emitted: list[list[int]]) -> None:
    how: dict[str, Any] = {"accumulation": "discarding", "closing": closing, "allowed_lateness": 5}
    with Run(tumbling(10, grace=0), t.count(2), **how) as run:
        run.give(("a", 1, 1), ("a", 2, 1), ("a", 3, 1), ("b", 4, 1), ("b", 5, 1))
        closed = run.give(13, 14)
        assert [v for _, v, _ in closed] == [v for v in emitted if v]  # b has nothing to show
        assert all(p.startswith("ON_TIME") for p in run.timings)
        assert run.sizes == [0, 0, 0]


def test_discarding_panes_hold_what_is_new_and_the_one_on_time_may_be_empty() -> None:
    trigger = t.after_watermark(early=t.after_count(2))
    with Run(tumbling(10, grace=0), trigger, accumulation="discarding") as run:
        assert [v for _, v, _ in run.give(*[("a", i, i) for i in range(4)], 9)] == [[0, 1], [2, 3], []]
        assert run.timings == ["EARLY 0 -1", "EARLY 1 -1", "ON_TIME 2 0"]


def test_a_reduce_has_nothing_to_say_of_an_empty_pane() -> None:
    trigger = t.after_watermark(early=t.after_count(2))
    with Run(tumbling(10, grace=0), trigger, lambda g: g.reduce(max), accumulation="discarding") as run:
        assert [v for _, v, _ in run.give(*[("a", i, i) for i in range(4)], 9)] == [1, 3]


def test_merged_sessions_take_back_what_their_parts_emitted() -> None:
    how: dict[str, Any] = {"accumulation": "accumulating_and_retracting"}
    with Run(session(10, grace=0, bounds="gap"), t.count(1), **how) as run:
        run.give(("a", 1, 0), ("a", 2, 15), ("a", 3, 8))
        seen = [((r.key.start_ms, r.key.end_ms), r.value, is_retraction(r.headers)) for r in run.last]
        assert seen == [
            ((0, 10), [1], False),
            ((15, 25), [2], False),
            ((0, 10), [1], True),
            ((15, 25), [2], True),
            ((0, 25), [1, 2, 3], False),
        ]


@pytest.mark.parametrize("tombstones", [True, False])
def test_accumulating_panes_of_merged_sessions_delete_those_of_their_parts(tombstones: bool) -> None:
    with Run(session(10, grace=0, bounds="gap"), t.count(1), tombstones=tombstones) as run:
        given = run.give(("a", 1, 0), ("a", 2, 0), ("a", 3, 5))
        expected: list[Any] = [((0, 10), [1], 9), ((0, 10), [1, 2], 9), ((0, 10), None, 14), ((0, 15), [1, 2, 3], 14)]
        assert given == (expected if tombstones else [e for e in expected if e[1] is not None])


def test_ready_aggregates_show_results_and_keep_accumulators() -> None:
    with Run(
        session(10, grace=0, bounds="gap"),
        t.default_trigger(),
        lambda g: g.aggregate(agg(mean=mean(), n=count())),
    ) as run:
        assert run.give(("a", 1, 0), ("a", 6, 15), ("a", 2, 8), 99) == [((0, 25), {"mean": 3.0, "n": 3}, 24)]


def test_aggregates_may_be_expressions() -> None:
    for fold in (lambda g: g.aggregate(value().sum() * 2), lambda g: g.agg(double=value().sum() * 2)):
        with Run(tumbling(10, grace=0), t.default_trigger(), fold) as run:
            assert run.give(("a", 1, 1), ("a", 4, 2), 9)[0][1] in (10, {"double": 10})


@pytest.mark.parametrize(("combiner", "ts"), [("earliest", 3), ("latest", 8), ("end_of_window", 9)])
def test_the_timestamp_combiner_leaves_out_what_came_behind_the_watermark(combiner: str, ts: int) -> None:
    with Run(tumbling(10, grace=0), t.default_trigger(), timestamp_combiner=combiner) as run:
        assert run.give(2, ("a", 1, 1), ("a", 2, 3), ("a", 3, 8), 9) == [((0, 10), [1, 2, 3], ts)]


# -- faults and bounds -------------------------------------------------------------------------------------------


def test_a_record_whose_function_raises_changes_nothing() -> None:
    from penstock.streams.task.error_policies import Policies

    builder = StreamsBuilder("t", key=str, value=int)
    source = builder.stream("in", watermark=bounded_out_of_orderness(0))
    grouped = source.group_by_key().windowed_by(hopping(10, 5, grace=0)).triggered(t.count(2))
    grouped.reduce(lambda a, b: a // b, name="panes").to("out")
    with TopologyTestDriver(builder.build(), options=TaskOptions(policies=Policies(processing="skip"))) as driver:
        driver.pipe_all("in", [Record("a", 8, 6), Record("a", 0, 6), Record("a", 2, 6), Record(None, 1, 6)])
        driver.pipe("in", "a", None, 6)
        assert [r.value for r in driver.read("out")] == [4, 4]
        assert driver.dropped_records["panes.null_key"] == driver.dropped_records["panes.null_value"] == 1


@pytest.mark.parametrize("windows", [tumbling(100, grace=0), hopping(100, 30, grace=0), session(40, grace=0)])
def test_state_stays_flat_over_many_horizons(windows: Any) -> None:
    trigger = t.after_watermark(early=t.repeatedly(t.after_processing_time(50)), late=t.after_count(1))
    how: dict[str, Any] = {"accumulation": "accumulating_and_retracting", "allowed_lateness": 100}
    sizes = []
    with Run(windows, trigger, **how) as run:
        for i in range(40):
            now = i * 100
            run.driver.advance_wall_time(100)
            rows: list[Any] = [(f"k{j}", j, now + 7 * j) for j in range(12)]
            run.give(*rows, max(now - 20, 0), ("k1", 1, max(now - 90, 0)))
            sizes.append(run.sizes)
        for store in range(3):
            early, late = sizes[5:12], sizes[-7:]
            assert max(s[store] for s in late) <= max(s[store] for s in early)
        run.give(10**6)
        assert run.sizes == [0, 0, 0]


def test_a_window_in_processing_time_takes_records_of_its_last_millisecond() -> None:
    with Run(tumbling(10, time="processing"), t.default_trigger()) as run:
        run.driver.advance_wall_time(9)
        assert run.give(("a", 1, 0)) == run.give(("a", 2, 0)) == []
        run.driver.advance_wall_time(1)
        assert run.panes() == [((0, 10), [1, 2], 9)]
        assert run.driver.dropped_records.total() == 0
