"""How a worker says that it is alive and ready, and the status line of a terminal."""

from __future__ import annotations

from penstock.streams.cli.status_line import changed, shown
from penstock.streams.events.facts import Rejoining, TasksAssigned, TasksLost, WorkerStopped
from penstock.streams.events.metrics_adapter import MetricsEvents
from penstock.streams.events.port import Fanout
from penstock.streams.ports.log import AbortableError
from penstock.streams.runtime.runtime import Runtime
from penstock.streams.worker.worker_pages import ALIVE_S, WorkerPages, WorkerStatus
from tests.recorder import Recorder
from tests.simulation.programs import clicks_world


def test_a_worker_is_ready_once_its_tasks_run() -> None:
    now_s = 100.0
    found: list[Runtime] = []
    registry = MetricsEvents(list).registry
    pages = WorkerPages(lambda: found[0] if found else None, registry, lambda: now_s)
    assert pages.status() == WorkerStatus("starting", 0, 0, 0, 0, None, None)
    assert (pages.health().well, pages.ready().well) == (True, False)
    world = clicks_world("exactly_once")
    world.events = Fanout(pages, recorder := Recorder())
    node = world.node("a")
    found.append(node.runtime)
    assert pages.status().state == "joining"
    states = set()
    while not pages.ready().well:
        states.add(pages.status().state)
        node.turn()
        pages.turned()
    assert states == {"joining", "restoring"}
    world.settle(node)
    now_s += 2
    status = pages.status()
    assert (status.state, status.tasks, status.lag, status.turn_age_s) == ("running", 4, 0, 2.0)
    assert status.records == node.runtime.records > 0
    assert status.commit_age_s is not None
    now_s += ALIVE_S
    assert (pages.health().well, pages.ready().well) == (False, True), "the loop stands still"
    for fact in (Rejoining(AbortableError("x"), 0.0, 1, 0.1), TasksLost(tuple(node.runtime.tasks))):
        world.events.emit(fact)
        assert not pages.ready().well
        world.events.emit(TasksAssigned(tuple(node.runtime.tasks)))
        assert pages.ready().well
    world.events.emit(WorkerStopped("requested", None))
    assert pages.ready().said["state"] == "stopped"
    assert recorder.counts()["TasksAssigned"] == 3


def test_the_status_line() -> None:
    before = WorkerStatus("restoring", 3, 1, 1_000, 70, None, 0.1)
    now = WorkerStatus("running", 4, 0, 11_000, 12_345, 0.31, 0.1)
    assert shown(before, now, 5.0) == "running: 4 tasks, 2,000 records/s, lag 12,345, last commit 0.3 s ago"
    assert shown(before, before, 5.0) == "restoring: 3 tasks, 1 restoring, 0 records/s, lag 70, last commit never"
    assert changed(before, now)
    assert not changed(now, WorkerStatus("running", 4, 0, 11_000, 12_345, 9.0, 0.2))
