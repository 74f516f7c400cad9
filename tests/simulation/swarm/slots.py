"""The workers of a run, as the swarm sees them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from penstock.state.log import TaskId
from penstock.streams.events.facts import Fact, TasksRevoked
from penstock.streams.events.measurements import Measurement
from tests.simulation.swarm.disks import SwarmDisk
from tests.simulation.world import Node


class Slot:
    """A worker process and its host. ``fixed``: its partitions; ``busy``: it is inside a turn, or held up in one;
    ``instance``: the id of its static membership."""

    def __init__(self, index: int, fixed: tuple[int, ...] | None, disk: SwarmDisk, instance: str = "") -> None:
        self.index = index
        self.name = f"w{index}"
        self.fixed = fixed
        self.disk = disk
        self.instance = instance
        self.node: Node | None = None
        self.down_until_ms = 0
        self.retired = False
        self.busy = False
        self.cut = False
        self.down_ms = 0
        self.revoking = False
        """The group takes tasks from it in this turn."""
        self.folded: dict[tuple[TaskId, str], bytes | None] = {}
        """The positions of the stores on its disk when they were last looked at."""
        self.opened: dict[str, int] = {}
        """The epochs that it has of its fixed partitions."""
        self.looked: dict[str, int] | None = None
        """Whose commits of fixed partitions it could see when it last asked in this turn."""


class RevocationsSeen:
    """An event sink that calls when a worker is about to give up tasks, and counts what it is told by its kind."""

    def __init__(self, seen: Callable[[], None]) -> None:
        self._seen = seen
        self.kinds: Counter[str] = Counter()

    def emit(self, fact: Fact) -> None:
        self.kinds[type(fact).__name__] += 1
        if isinstance(fact, TasksRevoked):
            self._seen()

    def measure(self, measurement: Measurement) -> None:
        pass
