"""A worker's status, for ``/metrics``, ``/health``, ``/ready`` and the status line of a terminal."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Literal, TypeVar, assert_never

from penstock.streams.events.facts import Committed, Fact, Rejoining, TasksAssigned, TasksLost, WorkerStopped
from penstock.streams.events.measurements import Measurement
from penstock.streams.events.metrics_adapter import Collects, exposition
from penstock.streams.runtime.lag import lag_of
from penstock.streams.runtime.runtime import Runtime
from penstock.streams.worker.metrics_endpoint import Report

T = TypeVar("T")
WorkerState = Literal["starting", "joining", "restoring", "running", "stopped"]
ALIVE_S = 300.0
"""A loop that has not turned for this long counts as dead: by then the group has excluded the worker."""
_TRIES = 5


@dataclasses.dataclass(frozen=True)
class WorkerStatus:
    """``records``: processed since the start. ``lag``: up to the known ends of the inputs. ``commit_age_s``: since
    the last commit; ``None`` before the first. ``turn_age_s``: since the loop's last turn."""

    state: WorkerState
    tasks: int
    restoring: int
    records: int
    lag: int
    commit_age_s: float | None
    turn_age_s: float | None


class WorkerPages:
    """See the module. Receives facts like the other sinks. ``runtime`` returns the run loop, ``None`` before it
    exists."""

    def __init__(
        self, runtime: Callable[[], Runtime | None], registry: Collects, monotonic_s: Callable[[], float]
    ) -> None:
        self._runtime = runtime
        self._registry = registry
        self._monotonic_s = monotonic_s
        self._joined = False
        self._stopped = False
        self._committed_s: float | None = None
        self._turned_s: float | None = None

    def emit(self, fact: Fact) -> None:
        """Note the facts that the pages show."""
        match fact:
            case TasksAssigned():
                self._joined = True
            case Rejoining() | TasksLost():
                self._joined = False
            case Committed():
                self._committed_s = self._monotonic_s()
            case WorkerStopped():
                self._stopped = True
            case _:
                pass

    def measure(self, measurement: Measurement) -> None:
        """Measurements are not shown."""

    def turned(self) -> None:
        """The loop has turned."""
        self._turned_s = self._monotonic_s()

    def status(self) -> WorkerStatus:
        """The current status; from any thread."""
        runtime, now_s = self._runtime(), self._monotonic_s()
        tasks = [] if runtime is None else list(runtime.tasks.values())
        ends = {} if runtime is None else runtime.consumer.known_ends()
        restoring = 0 if runtime is None else len(runtime.restoring)
        return WorkerStatus(
            self._state(runtime is not None, restoring),
            len(tasks),
            restoring,
            0 if runtime is None else runtime.records,
            sum(sum(lag_of(task, ends).values()) for task in tasks),
            None if self._committed_s is None else now_s - self._committed_s,
            None if self._turned_s is None else now_s - self._turned_s,
        )

    def _state(self, opened: bool, restoring: int) -> WorkerState:
        if self._stopped:
            return "stopped"
        if not opened:
            return "starting"
        if not self._joined:
            return "joining"
        return "restoring" if restoring else "running"

    def metrics(self) -> bytes:
        """See ``Pages``."""
        return _tried(lambda: exposition(self._registry))

    def health(self) -> Report:
        """Alive, unless the loop has stopped turning."""
        status = _tried(self.status)
        return Report(status.turn_age_s is None or status.turn_age_s < ALIVE_S, dataclasses.asdict(status))

    def ready(self) -> Report:
        """Whether the worker has its tasks and none of them is being restored."""
        status = _tried(self.status)
        match status.state:
            case "running":
                ready = True
            case "starting" | "joining" | "restoring" | "stopped":
                ready = False
            case _:
                assert_never(status.state)
        return Report(ready, dataclasses.asdict(status))


def _tried(look: Callable[[], T]) -> T:
    """Read again if the loop's thread changed the value meanwhile."""
    for _ in range(_TRIES):
        try:
            return look()
        except RuntimeError:
            continue
    return look()
