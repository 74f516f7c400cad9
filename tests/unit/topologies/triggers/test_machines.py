"""Trigger machines, element by element: when they fire, when they are finished, their timers, and merged states."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from penstock.state.errors import TopologyError
from penstock.topologies import triggers as t
from penstock.topologies.triggers.base import Moment, Trigger, TriggerState, merged

END = 100


class Machine:
    """One window ``[0, 100)`` at work; its state goes through its encoding at every step."""

    def __init__(self, trigger: Trigger) -> None:
        self.trigger = trigger
        self.state: TriggerState = {}
        self.watermark = -1
        self.wall = 0
        self.finished = False

    @property
    def at(self) -> Moment:
        return Moment(0, END, self.watermark, self.wall, self.watermark)

    def _fires(self) -> bool:
        self.state = msgspec.msgpack.decode(msgspec.msgpack.encode(self.state), type=dict[str, int])
        if self.finished or not self.trigger.should_fire(self.state, self.at, ""):
            return False
        self.finished = self.trigger.on_fire(self.state, self.at, "")
        return True

    def element(self, ts: int = 1) -> bool:
        if not self.finished:
            self.trigger.on_element(self.state, self.at, "", ts)
        return self._fires()

    def elements(self, count: int) -> list[int]:
        """Which of the next elements fired, counted from 1."""
        return [i for i in range(1, count + 1) if self.element()]

    def event(self) -> int | None:
        return self.trigger.event_timer_ms(self.state, self.at, "")

    def clock(self) -> int | None:
        return self.trigger.wall_timer_ms(self.state, self.at, "")

    def reach(self, watermark: int) -> list[int]:
        """At which event times it fired on the way."""
        fired = []
        while (timer := self.event()) is not None and timer <= watermark and not self.finished:
            self.watermark = timer
            if self._fires():
                fired.append(timer)
        self.watermark = watermark
        return fired

    def wait(self, wall: int) -> list[int]:
        fired = []
        while (timer := self.clock()) is not None and timer <= wall and not self.finished:
            self.wall = timer
            if self._fires():
                fired.append(timer)
        self.wall = wall
        return fired


def test_the_default_fires_at_the_end_and_at_each_late_element() -> None:
    m = Machine(t.default_trigger())
    assert m.elements(3) == []
    assert (m.event(), m.clock()) == (99, None)
    assert m.reach(99) == [99]
    assert m.event() is None
    assert m.elements(2) == [1, 2]
    assert not m.finished


def test_a_count_is_finished_when_it_has_fired_and_flinks_is_not() -> None:
    m = Machine(t.after_count(3))
    assert m.elements(5) == [3]
    assert m.finished
    assert Machine(t.count(3)).elements(7) == [3, 6]
    assert Machine(t.repeatedly(t.after_count(3))).elements(7) == [3, 6]


def test_after_watermark_alone_fires_once() -> None:
    m = Machine(t.after_watermark())
    m.element()
    assert m.reach(500) == [99]
    assert m.finished


def test_a_window_that_begins_behind_the_watermark_fires_at_its_first_element() -> None:
    m = Machine(t.after_watermark())
    m.watermark = 200
    assert m.element() and m.finished


def test_early_and_late_firings_are_repeated() -> None:
    m = Machine(t.after_watermark(early=t.after_count(2), late=t.after_count(3)))
    assert m.elements(5) == [2, 4]
    assert m.reach(99) == [99]
    assert m.elements(6) == [3, 6]
    assert not m.finished


def test_early_counts_do_not_run_on_behind_the_end() -> None:
    m = Machine(t.after_watermark(early=t.after_count(2), late=t.after_count(2)))
    m.element()
    m.reach(99)
    assert m.elements(2) == [2]


def test_processing_time_counts_from_the_first_element_of_the_pane() -> None:
    m = Machine(t.repeatedly(t.after_processing_time(10)))
    m.wall = 5
    m.element()
    m.wall = 9
    m.element()
    assert m.clock() == 15
    assert m.wait(40) == [15]
    assert m.clock() is None
    m.element()
    assert m.wait(60) == [50]


def test_a_delay_of_nothing_fires_at_once() -> None:
    assert Machine(t.repeatedly(t.after_processing_time(0))).elements(2) == [1, 2]


def test_flinks_processing_time_fires_when_the_clock_passes_the_window() -> None:
    m = Machine(t.processing_time())
    m.element()
    assert m.clock() == 100
    assert m.wait(150) == [100]
    assert m.elements(2) == [1, 2]


def test_continuous_fires_at_the_multiples_behind_the_first_element_and_at_the_end() -> None:
    m = Machine(t.continuous_event_time(30))
    m.element(35)
    assert m.reach(59) == []
    assert m.reach(80) == [60]
    assert m.reach(500) == [90, 99]
    assert m.element()


def test_continuous_does_not_fire_for_ever_when_time_ends() -> None:
    trigger = t.continuous_event_time(1)
    state: TriggerState = {}
    end = (1 << 63) - 1
    trigger.on_element(state, Moment(0, end, -1, 0, -1), "", 0)
    fired, now = 0, -1
    while (timer := trigger.event_timer_ms(state, Moment(0, end, now, 0, end), "")) is not None:
        now = timer
        fired += trigger.should_fire(state, Moment(0, end, now, 0, end), "")
        trigger.on_fire(state, Moment(0, end, now, 0, end), "")
    assert fired == 2  # the first interval, and the end


def test_any_fires_with_the_first_and_is_finished_with_it() -> None:
    m = Machine(t.after_any(t.after_count(2), t.after_watermark()))
    assert m.elements(3) == [2]
    assert m.finished
    m = Machine(t.after_any(t.after_count(5), t.after_watermark()))
    m.elements(3)
    assert m.reach(99) == [99]
    assert m.finished


def test_all_waits_for_every_one() -> None:
    m = Machine(t.after_all(t.after_count(2), t.after_watermark()))
    assert m.elements(3) == []
    assert m.reach(99) == [99]
    assert m.finished
    m = Machine(t.after_all(t.after_count(5), t.after_watermark()))
    m.elements(3)
    assert m.reach(99) == []
    assert m.elements(3) == [2]


def test_each_shows_elements_to_one_after_the_other() -> None:
    m = Machine(t.after_each(t.after_count(2), t.after_count(3)))
    assert m.elements(9) == [2, 5]
    assert m.finished


def test_or_finally_repeats_until_the_second_fires() -> None:
    m = Machine(t.or_finally(t.repeatedly(t.after_count(2)), t.after_watermark()))
    assert m.elements(5) == [2, 4]
    assert m.reach(99) == [99]
    assert m.finished


def test_never_never_fires() -> None:
    m = Machine(t.never())
    assert m.elements(3) == []
    assert (m.event(), m.clock()) == (None, None)


def test_repeated_parts_start_anew_together() -> None:
    m = Machine(t.repeatedly(t.after_any(t.after_count(3), t.after_processing_time(10))))
    m.element()
    assert m.wait(10) == [10]
    assert m.elements(4) == [3]  # the one that was there is counted no more
    assert m.clock() == 20


def test_purging_is_its_trigger_and_says_so() -> None:
    assert t.purging(t.count(2)).purges and not t.count(2).purges
    assert Machine(t.purging(t.count(2))).elements(4) == [2, 4]
    m = Machine(t.purging(t.after_count(2)))
    assert m.elements(4) == [2]
    assert m.finished


def test_merged_windows_add_counts_take_the_first_delay_and_the_furthest_place() -> None:
    trigger = t.after_each(t.after_count(2), t.after_all(t.after_count(3), t.after_processing_time(10)))
    parts = [Machine(trigger) for _ in range(2)]
    for m, wall, count in zip(parts, (4, 7), (3, 4), strict=True):
        m.wall = wall
        m.elements(count)
    whole = Machine(trigger)
    whole.state = merged(m.state for m in parts)
    whole.wall = 7
    assert whole.clock() == 14
    assert whole.wait(14) == [14]  # 1 + 2 elements have been shown to the second
    assert whole.finished


def test_a_merged_window_is_late_when_a_part_is() -> None:
    trigger = t.after_watermark(early=t.after_count(1), late=t.after_count(2))
    late, fresh = Machine(trigger), Machine(trigger)
    late.element()
    late.reach(99)
    fresh.element()
    whole = Machine(trigger)
    whole.state, whole.watermark = merged([late.state, fresh.state]), 99
    assert whole.elements(2) == [2]


@pytest.mark.parametrize(
    "make",
    [
        lambda: t.after_count(0),
        lambda: t.after_count(True),
        lambda: t.count(1.5),  # type: ignore[arg-type]  # what a user may do
        lambda: t.after_any(),
        lambda: t.after_all(t.after_count(1), "x"),  # type: ignore[arg-type]  # what a user may do
        lambda: t.repeatedly(5),  # type: ignore[arg-type]  # what a user may do
        lambda: t.repeatedly(t.purging(t.count(2))),
        lambda: t.after_watermark(early=t.purging(t.count(2))),
        lambda: t.after_processing_time("soon"),
        lambda: t.continuous_event_time(0),
    ],
)
def test_what_is_no_trigger_is_refused(make: Any) -> None:
    with pytest.raises(TopologyError):
        make()
