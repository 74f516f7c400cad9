"""A worker that the group leaves without an assignment says since when, and why that may be."""

from __future__ import annotations

from penstock.state.errors import TaskMigratedError
from penstock.streams.events.facts import WaitEnded, Waiting
from penstock.streams.runtime.group_wait import REPORT_AGAIN_S, REPORT_S, GroupWait
from penstock.streams.runtime.rejoin_pacing import RejoinPacing
from tests.recorder import Recorder


def test_a_long_wait_is_told_once_then_once_a_minute_and_its_end() -> None:
    events = Recorder()
    wait = GroupWait(events, 45.0)
    wait.began(100.0)
    for now_s in range(100, 100 + int(REPORT_S + REPORT_AGAIN_S) + 5):
        wait.turn(float(now_s))
    assert [fact.waited_s for fact in events.of(Waiting)] == [REPORT_S, REPORT_S + REPORT_AGAIN_S]
    assert "45 s, session_timeout_ms" in str(events.of(Waiting)[0].cause)
    wait.ended(180.0)
    wait.ended(181.0)
    assert [fact.waited_s for fact in events.of(WaitEnded)] == [80.0]


def test_a_short_wait_is_not_told() -> None:
    events = Recorder()
    wait = GroupWait(events, 45.0)
    wait.began(100.0)
    wait.turn(100.0 + REPORT_S - 0.1)
    wait.ended(100.0 + REPORT_S)
    wait.turn(300.0)
    assert not events.of(Waiting)
    assert not events.of(WaitEnded)


def test_what_began_before_goes_on_and_the_next_wait_begins_anew() -> None:
    events = Recorder()
    wait = GroupWait(events, 6.0)
    wait.began(100.0)
    wait.began(105.0)
    wait.turn(100.0 + REPORT_S)
    assert len(events.of(Waiting)) == 1
    wait.ended(112.0)
    wait.began(200.0)
    wait.turn(205.0)
    assert len(events.of(Waiting)) == 1


def test_a_pause_before_the_next_join_is_not_the_groups() -> None:
    """A consumer that is closed for a later join gives its partitions back, too."""
    events = Recorder()
    pacing = RejoinPacing("app", events, 45.0)
    pacing.asked(0.0)
    pacing.settled(1.0)
    pacing.lost(TaskMigratedError("fenced"), 10.0)
    pacing.gave_back(10.0)
    pacing.turn(10.0 + 2 * REPORT_S)
    assert not events.of(Waiting)
    pacing.asked(31.0)
    pacing.turn(31.0 + REPORT_S)
    assert len(events.of(Waiting)) == 1
