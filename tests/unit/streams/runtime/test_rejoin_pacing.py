"""A worker that loses its place says whether it had stood still."""

from __future__ import annotations

import pytest

from penstock.state.errors import RetriableError, TaskMigratedError
from penstock.streams.events.facts import Rejoining
from penstock.streams.runtime.rejoin_pacing import RejoinPacing
from tests.recorder import Recorder

FENCED = TaskMigratedError("fenced")


@pytest.mark.parametrize("cause", [FENCED, RetriableError("no answer")])
def test_a_long_turn_is_told(cause: TaskMigratedError | RetriableError) -> None:
    events = Recorder()
    pacing = RejoinPacing("app", events)
    for now_s in (100.0, 100.25, 138.5):
        pacing.turn(now_s)
    pacing.lost(cause, 139.0)
    assert [fact.turn_s for fact in events.of(Rejoining)] == [38.25], "the turn before may have been the long one"
    pacing.asked(139.5)
    for now_s in (140.0, 140.5, 141.0):
        pacing.turn(now_s)
    pacing.lost(FENCED, 141.25)
    assert [fact.turn_s for fact in events.of(Rejoining)] == [38.25, 0.5]


def test_before_the_first_turn_there_is_none() -> None:
    events = Recorder()
    RejoinPacing("app", events).lost(FENCED, 5.0)
    assert [fact.turn_s for fact in events.of(Rejoining)] == [0.0]
