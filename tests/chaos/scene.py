"""One application on the cluster: its topics, its input, its workers, and the verdict on what came out."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

from tests.chaos.application import INPUTS, OUTPUTS
from tests.chaos.cluster import ChaosCluster
from tests.chaos.log_reading import LogReader
from tests.chaos.oracle import Verdict, Wanted, judge
from tests.chaos.workers import Setup, WorkerProcess, until
from tests.chaos.writer import OrderWriter

PARTITIONS = 4
TASKS_PER_PARTITION = 2  # one on each side of the repartition topic
Mark = dict[str, int]
STORES = ("per-user", "per-commit", "per-city")


class Scene:
    """See the module. Use it in a ``with`` block: workers that still run are killed at its end."""

    def __init__(
        self,
        cluster: ChaosCluster,
        name: str,
        folder: Path,
        guarantee: str = "exactly_once",
        *,
        seed: int = 1,
        partitions: int = PARTITIONS,
        replicas: int = 3,
        min_insync_replicas: str = "2",
        **settings: Any,
    ) -> None:
        self.cluster = cluster
        self.name = f"{name}-{time.time_ns() // 1_000_000:x}"
        self.guarantee = guarantee
        self.partitions = partitions
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.reader = LogReader(cluster.bootstrap_servers)
        self.reader.create(
            [self.topic(t) for t in (*INPUTS, *OUTPUTS)], partitions, replicas, min_insync_replicas=min_insync_replicas
        )
        self.writer = OrderWriter(cluster.bootstrap_servers, self.name, seed)
        self.writer.write_users()
        module = folder / "chaos_topology.py"
        module.write_text(f"from tests.chaos.application import build\n\ntopology = build({self.name!r})\n")
        given = {"replication_factor": replicas, **settings}
        self.setup = Setup(self.name, cluster.clients, guarantee, folder, f"{module}:topology", given)
        self.workers: list[WorkerProcess] = []

    def topic(self, name: str) -> str:
        """The topic's whole name."""
        return f"{self.name}-{name}"

    def worker(self, name: str, state: str | None = None, **settings: Any) -> WorkerProcess:
        """A worker, started. ``settings`` are its own."""
        made = WorkerProcess(self.setup, name, state, **settings)
        self.workers.append(made)
        return made.start()

    def verdict(self) -> Verdict:
        """The judgement of all that is committed now."""
        inputs = [self.topic(t) for t in INPUTS]
        outputs = [self.topic(t) for t in OUTPUTS]
        changelogs = {store: f"{self.name}-{store}-changelog" for store in STORES}
        found = self.reader.read([*inputs, *outputs, *changelogs.values()])
        wanted = Wanted.of(*(found[t] for t in inputs))
        of_stores = {store: found[topic] for store, topic in changelogs.items() if found[topic]}
        return judge(wanted, {name: found[self.topic(name)] for name in OUTPUTS}, of_stores)

    def converge(self, limit_s: float = 240.0) -> None:
        """Wait until every result is there. Fails with what is missing and what the workers said last."""
        self.writer.flush()
        deadline = time.monotonic() + limit_s
        while not (verdict := self.verdict()).nothing_lost():
            assert time.monotonic() < deadline, self.report(verdict)
            time.sleep(0.5)

    def holds(self, verdict: Verdict) -> bool:
        """Whether it is what the guarantee promises."""
        return verdict.exact() if self.guarantee == "exactly_once" else verdict.nothing_lost()

    def assert_right(self) -> Verdict:
        """What came out is what was promised."""
        verdict = self.verdict()
        assert self.holds(verdict), self.report(verdict)
        return verdict

    def stop(self) -> dict[str, int]:
        """Stop the workers that live; their exit statuses."""
        return {w.name: w.stop() for w in self.workers if w.alive}

    def await_progress(self, limit_s: float = 180.0) -> None:
        """Wait until some order that is written from now on has come out."""
        self.writer.write(1)
        written = self.writer.written
        until("orders come out", lambda: self.came_out() >= written, limit_s)

    def came_out(self, output: str = "behind") -> int:
        """How many records of an output there are. Behind the repartition there is one for each order."""
        topic = self.topic(output)
        return sum(len(records) for records in self.reader.read([topic])[topic].values())

    def await_both(self, limit_s: float = 240.0) -> None:
        """Wait until every worker has tasks that run, and all that was written has come out."""
        self.await_tasks(self.workers, limit_s)
        self.writer.write(100)
        self.converge(limit_s)

    def await_tasks(self, workers: Sequence[WorkerProcess], limit_s: float = 240.0) -> None:
        """Wait until each of these workers has tasks that run in its present life."""

        def has_tasks(worker: WorkerProcess) -> bool:
            names = [f["fact"] for f in worker.facts("WorkerStarted", "TaskRunning")]
            return names.count("WorkerStarted") == worker.lives and names[-1:] == ["TaskRunning"]

        until("each worker has tasks", lambda: all(has_tasks(w) for w in workers), limit_s)

    def running(self, worker: WorkerProcess) -> set[str]:
        """The tasks that run in a worker, by its facts: begun, and neither revoked, lost nor left since."""
        out: set[str] = set()
        for fact in worker.facts():
            if fact["fact"] == "TaskRunning":
                out.add(fact["task"])
            elif fact["fact"] in ("TasksRevoked", "TasksLost"):
                out -= set(fact["tasks"])
            elif fact["fact"] in ("WorkerStarted", "Rejoining"):
                out.clear()
        return out

    def await_settled(self) -> None:
        """Write orders until each task runs in exactly one worker and each worker has some: no rebalance is under way, as
        an overloaded machine begins by itself."""

        def settled() -> bool:
            shares = [len(self.running(w)) for w in self.workers]
            return all(shares) and sum(shares) == TASKS_PER_PARTITION * self.partitions

        self.feed("each task runs in one worker, and each worker has tasks", settled)

    def feed(self, what: str, condition: Callable[[], object], limit_s: float = 180.0) -> None:
        """Write orders, a few at a time, until the condition holds: work for as many commits as that takes."""
        deadline = time.monotonic() + limit_s
        while not condition():
            assert time.monotonic() < deadline, self.report_of(what, limit_s)
            self.writer.write(10)
            time.sleep(0.2)

    def feed_for(self, seconds: float) -> None:
        """Write orders for so long."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.writer.write(10)
            time.sleep(0.2)

    def since(self) -> Mark:
        """A mark behind the facts that there are now."""
        return {w.name: len(w.facts()) for w in self.workers}

    def facts(self, mark: Mark, *names: str, of: str | None = None) -> list[dict[str, Any]]:
        """The facts behind a mark: those with these names, of all workers or of one."""
        found = [f for w in self.workers if of in (None, w.name) for f in w.facts()[mark.get(w.name, 0) :]]
        return [f for f in found if not names or f["fact"] in names]

    def report_of(self, what: str, limit_s: float) -> str:
        """That something did not happen, and the ends of the workers' logs."""
        said = "\n".join(f"--- {w.name}, {w.status}\n{w.said(3_000)}" for w in self.workers)
        return f"not in {limit_s:g} s: {what}\n{said}"

    def report(self, verdict: Verdict) -> str:
        """The verdict, and the ends of the workers' logs."""
        said = "\n".join(f"--- {w.name}, {w.status}\n{w.said(3_000)}" for w in self.workers)
        return f"{self.name}: {verdict}\n{said}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers:
            if worker.alive:
                worker.kill()
        self.reader.admin.delete_topics(self.owned())

    def owned(self) -> Sequence[str]:
        """All topics of the application."""
        return [topic for topic in self.reader.listed() if topic.startswith(f"{self.name}-")]
