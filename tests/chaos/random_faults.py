"""Draws faults and lets them happen: workers are killed and frozen, brokers are killed, and requests of the commit path are
dropped, held up and cut off."""

from __future__ import annotations

import heapq
import itertools
import math
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping

from penstock.state.errors import EnvironmentFault
from tests.chaos.cluster import BROKERS
from tests.chaos.frames import Api
from tests.chaos.rules import Action, Fault, Side
from tests.chaos.scene import Scene
from tests.chaos.workers import USER_ERROR, WorkerProcess

WEIGHTS = {"kill": 34, "freeze": 24, "proxy": 26, "broker": 16}
EVERY_S = 1.8
FROZEN_S = (1.0, 22.0)
"""From less than a heartbeat to beyond session, transaction and request time-outs."""
BROKER_PAUSE_S = 1.0
COMMIT_PATH = {
    "exactly_once": {
        Api.END_TXN: 4,
        Api.TXN_OFFSET_COMMIT: 3,
        Api.ADD_OFFSETS_TO_TXN: 2,
        Api.ADD_PARTITIONS_TO_TXN: 2,
        Api.PRODUCE: 2,
        Api.INIT_PRODUCER_ID: 1,
        Api.OFFSET_FETCH: 1,
    },
    "at_least_once": {Api.OFFSET_COMMIT: 3, Api.PRODUCE: 2, Api.OFFSET_FETCH: 1},
}
"""The requests of a commit, and how often each is struck."""


class RandomFaults:
    """Lets faults happen to a scene until ``run`` returns; ``happened`` counts those that did, by kind. All draws come from
    the seed; when they strike depends on the machine."""

    def __init__(
        self,
        scene: Scene,
        seed: int,
        say: Callable[[str], None],
        weights: Mapping[str, int] | None = None,
        spared: Collection[str] = (),
    ) -> None:
        self.happened: Counter[str] = Counter()
        self.ended: list[str] = []
        """Workers that ended by themselves with an error, in words."""
        self._scene = scene
        self._rng = random.Random(seed)
        self._weights = {**WEIGHTS, **(weights or {})}
        self._say = say
        self._spared = spared
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._faults: list[Fault] = []
        self._broker_busy = threading.Event()
        self._broker_due = 0.0
        self._waiting: set[str] = set()

    def run(self, seconds: float) -> None:
        """Faults at random times for so long; then everything heals: workers run, brokers run, the network is clear."""
        end = time.monotonic() + seconds
        self._later(self._pause(), self._strike)
        while time.monotonic() < end:
            self._look()
            while self._due and self._due[0][0] <= time.monotonic():
                heapq.heappop(self._due)[2]()
            time.sleep(0.05)
        self._heal()

    def _pause(self) -> float:
        return self._rng.expovariate(1 / EVERY_S)

    def _later(self, seconds: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._due, (time.monotonic() + seconds, next(self._order), do))

    def _strike(self) -> None:
        self._later(self._pause(), self._strike)
        kind = self._rng.choices(list(self._weights), list(self._weights.values()))[0]
        {"kill": self._kill, "freeze": self._freeze, "proxy": self._disturb, "broker": self._kill_broker}[kind]()

    def _look(self) -> None:
        """Start again what ended by itself, as a supervisor would."""
        for worker in self._scene.workers:
            if not worker.alive and worker.name not in self._waiting:
                self.happened["ended"] += 1
                self.ended.append(f"{worker.name} ended with {worker.status}: {worker.said(600)}")
                self._say(self.ended[-1])
                if worker.status == USER_ERROR:
                    self.happened["refused"] += 1
                self._restart(worker, 1.0)

    def _restart(self, worker: WorkerProcess, seconds: float) -> None:
        self._waiting.add(worker.name)

        def start() -> None:
            self._waiting.discard(worker.name)
            worker.start()

        self._later(seconds, start)

    def _kill(self) -> None:
        alive = [w for w in self._scene.workers if w.alive and w.name not in self._spared]
        if not alive:
            return
        worker = self._rng.choice(alive)
        pause = 0.0 if self._rng.random() < 0.5 else self._rng.uniform(0, 9)
        worker.kill()
        self.happened["kill"] += 1
        self._restart(worker, pause)

    def _freeze(self) -> None:
        awake = [w for w in self._scene.workers if w.alive and not w.frozen]
        if len(awake) < 2:
            return
        worker = self._rng.choice(awake)
        low, high = FROZEN_S
        seconds = math.exp(self._rng.uniform(math.log(low), math.log(high)))
        worker.freeze()
        self.happened["freeze"] += 1
        life = worker.lives

        def thaw() -> None:
            if worker.alive and worker.frozen and worker.lives == life:
                worker.thaw()

        self._later(seconds, thaw)

    def _disturb(self) -> None:
        action, side = self._rng.choice(DISTURBANCES)
        apis = COMMIT_PATH[self._scene.guarantee]
        awake = [w for w in self._scene.workers if w.alive and not w.frozen] or self._scene.workers
        fault = Fault(
            action,
            tuple(self._rng.choices(list(apis), list(apis.values()))),
            side,
            client=self._rng.choice((self._rng.choice(awake).name, "w")),
            nth=self._rng.randint(1, 3),
            delay_s=self._rng.choice((0.5, 3.0, 8.0, 20.0)),
            overtaken=self._rng.random() < 0.3,
        )
        self._faults.append(self._scene.cluster.network.sky.fault(fault))

    def _kill_broker(self) -> None:
        if self._broker_busy.is_set() or time.monotonic() < self._broker_due:
            return
        self._broker_busy.set()
        broker, pause = self._rng.randrange(BROKERS), self._rng.uniform(1, 7)
        cluster = self._scene.cluster

        def away() -> None:
            try:
                cluster.kill_broker(broker)
                self.happened["broker"] += 1
                time.sleep(pause)
                cluster.start_broker(broker)
            except EnvironmentFault as exc:  # a busy machine: it goes on starting, and is healed at the end
                self._say(f"broker {broker}: {exc}")
            finally:
                self._broker_due = time.monotonic() + BROKER_PAUSE_S
                self._broker_busy.clear()

        threading.Thread(target=away, name="broker", daemon=True).start()

    def _heal(self) -> None:
        while self._broker_busy.is_set():
            time.sleep(0.1)
        self._scene.cluster.heal()
        for worker in self._scene.workers:
            if worker.alive and worker.frozen:
                worker.thaw()
            elif not worker.alive:
                self._waiting.discard(worker.name)
                worker.start()
        self.happened["proxy"] += sum(fault.hits for fault in self._faults)


DISTURBANCES: tuple[tuple[Action, Side], ...] = (
    ("drop", "request"),
    ("drop", "response"),
    ("delay", "request"),
    ("delay", "response"),
    ("reset", "request"),
    ("reset", "response"),
)
