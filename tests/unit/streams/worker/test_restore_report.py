"""What is told of a restore while it runs."""

from __future__ import annotations

from penstock.state.log import TaskId
from penstock.state.recovery.restore_decision import RestoreProgress
from penstock.streams.events.facts import RestoreProgressed
from penstock.streams.worker.restore_report import RestoreReport
from tests.recorder import Recorder

TASK = TaskId(0, 1)


def test_a_long_restore_tells_every_ten_seconds_how_long_it_will_take() -> None:
    events, now_s = Recorder(), 100.0
    report = RestoreReport(events, TASK, "s", lambda: now_s)
    progress = RestoreProgress.begin(1_000, 5_000)
    now_s = 115.0
    report.progressed(progress)
    assert events.facts == [], "nothing was read yet, so nothing can be estimated"
    report.progressed(progress := progress.advanced(2_000, records=600))
    assert events.facts == [RestoreProgressed(TASK, "s", 2_000, 5_000, records_per_s=40.0, remaining_s=45.0)]
    now_s = 124.0
    report.progressed(progress := progress.advanced(2_500, records=300))
    now_s = 125.0
    report.progressed(progress.advanced(5_000, records=900))
    assert len(events.facts) == 1, "not sooner than after ten seconds, and not when it is done"
