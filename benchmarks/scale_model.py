"""A model of many workers on many brokers, simulated event by event: ``python -m benchmarks.scale_model``.

What is measured on one machine goes in (``Costs``): what a record costs the worker and the broker, what a commit costs both,
how fast stores are restored. What comes out is what no single machine can show: throughput and commits of 10 brokers and
1,000 tasks, which broker is the first to be busy, how long a change of the group stops the tasks, and how long it takes
until the tasks of a lost worker run again. ``SCALE.md`` says what the model leaves out and how it was held against runs.

A broker is a queue with so many cores: each request waits for its turn and takes its CPU time. A worker is one process
with one core: it computes for an interval, then commits: it sends what changed and waits until the brokers have taken it,
then for the group's coordinator (positions), then for its transaction's coordinator, and goes on; markers are written to
every partition that the transaction touched, behind its back.
"""

from __future__ import annotations

import argparse
import dataclasses
import heapq
import json
import random
from collections.abc import Callable, Generator
from typing import NamedTuple

from benchmarks.report import markdown

SLICES = 4
"""In so many parts does a worker send what it makes between two commits."""

Life = Generator[float, float, None]
Note = Callable[[float, float, float, float, int], None]
"""Told of each commit: when the wait for it began and ended, its records, the time spent computing, and whose it was."""


@dataclasses.dataclass(frozen=True)
class Costs:
    """Seconds of one core, as measured on ``keyed-count`` (every record changes a key, so it is also written to the
    changelog). Per record: ``worker_s`` until it is computed, ``commit_record_s`` in the commit that contains it,
    ``read_s`` and ``write_s`` of the brokers. Per commit: ``commit_s`` of the worker. Of a broker: ``request_s`` each,
    ``partition_s`` per partition that a commit writes, ``marker_s`` per partition that a transaction ends in.
    ``round_trip_s``: the network's. ``restore_per_s``: records that a worker brings back. ``assign_s``: from an assignment
    to the first record of a task whose state is where it was."""

    worker_s: float = 1.6e-6
    commit_record_s: float = 1.25e-6
    read_s: float = 0.2e-6
    write_s: float = 0.35e-6
    commit_s: float = 0.5e-3
    request_s: float = 1.2e-3
    partition_s: float = 0.8e-3
    marker_s: float = 0.3e-3
    round_trip_s: float = 0.5e-3
    restore_per_s: float = 600_000.0
    assign_s: float = 0.3


@dataclasses.dataclass(frozen=True)
class Cluster:
    """What is run. ``rate_per_s``: records that come in, over all tasks; ``None``: a backlog without end.
    ``partitions_per_task``: those that a task writes in each commit."""

    brokers: int = 10
    broker_cores: int = 8
    workers: int = 100
    tasks: int = 1_000
    commit_interval_s: float = 0.1
    transactional: bool = True
    rate_per_s: float | None = None
    partitions_per_task: int = 1
    heartbeat_s: float = 3.0
    session_s: float = 45.0
    state_records_per_task: int = 5_000_000

    @property
    def tasks_per_worker(self) -> list[int]:
        """As evenly as it goes."""
        each, more = divmod(self.tasks, self.workers)
        return [each + (n < more) for n in range(self.workers)]


class Flow(NamedTuple):
    """The steady run. ``commits_per_s``: of all workers, which the broker that keeps the group's positions gets;
    ``broker_commits_per_s``: transactions of the broker that coordinates most. ``commit_s``: how long a commit kept its
    worker, in the middle and at worst of a hundred. ``busy``: share of its cores that each broker used, the busiest first;
    ``computing``: share of their time that workers did not wait."""

    records_per_s: float
    commits_per_s: float
    broker_commits_per_s: float
    commit_s: tuple[float, float]
    busy: list[float]
    computing: float


class Seen(NamedTuple):
    """A run of the real thing: one worker and one broker on one machine, a core each; ``keyed-count``, exactly once."""

    tasks: int
    commit_interval_s: float
    records_per_s: float
    commits_per_s: float


SEEN = (
    Seen(4, 0.1, 297_500, 4.8),
    Seen(16, 0.1, 271_300, 4.3),
    Seen(4, 1.0, 313_300, 0.6),
    Seen(16, 1.0, 264_300, 0.8),
)
"""The costs were taken from the first two; the others were foretold."""


def small(seen: Seen) -> Cluster:
    """The cluster of such a run."""
    return Cluster(brokers=1, broker_cores=1, workers=1, tasks=seen.tasks, commit_interval_s=seen.commit_interval_s)


class Broker:
    """A queue in front of so many cores."""

    def __init__(self, cores: int) -> None:
        self._free = [0.0] * cores
        self.busy_s = 0.0

    def serve(self, at_s: float, cpu_s: float) -> float:
        """When a request that comes then is done. Requests come in order of time."""
        start = max(at_s, heapq.heappop(self._free))
        heapq.heappush(self._free, start + cpu_s)
        self.busy_s += cpu_s
        return start + cpu_s


def flow(cluster: Cluster, costs: Costs, *, seconds: float = 5.0, seed: int = 1) -> Flow:
    """The steady part of a run of so long, after a warm-up of two intervals."""
    rng = random.Random(seed)
    brokers = [Broker(cluster.broker_cores) for _ in range(cluster.brokers)]
    warm_s = 2 * cluster.commit_interval_s
    end_s = warm_s + seconds
    done = commits = 0.0
    waits: list[float] = []
    computed_s = 0.0
    busy_before: list[float] | None = None
    coordinated = [0] * cluster.brokers
    queue: list[tuple[float, int, Life]] = []

    def note(began_s: float, ended_s: float, records: float, computing_s: float, number: int) -> None:
        nonlocal done, commits, computed_s
        if warm_s <= ended_s <= end_s:
            done += records
            commits += 1
            computed_s += computing_s
            coordinated[number % cluster.brokers] += 1
            waits.append(ended_s - began_s)

    for number, tasks in enumerate(cluster.tasks_per_worker):
        if not tasks:
            continue
        life = _worker(cluster, costs, number, tasks, brokers, rng.random() * cluster.commit_interval_s, note)
        heapq.heappush(queue, (next(life), number, life))
    while queue:
        at_s, number, life = heapq.heappop(queue)
        if busy_before is None and at_s >= warm_s:
            busy_before = [b.busy_s for b in brokers]
        if at_s >= end_s:
            break
        heapq.heappush(queue, (life.send(at_s), number, life))
    before = busy_before or [0.0] * cluster.brokers
    # what waits in a queue is counted when it comes, so that a broker that falls behind would seem to do more than it can
    busy = [min((b.busy_s - was) / seconds / cluster.broker_cores, 1.0) for b, was in zip(brokers, before, strict=True)]
    waits.sort()
    return Flow(
        done / seconds,
        commits / seconds,
        max(coordinated) / seconds if cluster.transactional else 0.0,
        (waits[len(waits) // 2], waits[len(waits) * 99 // 100]) if waits else (0.0, 0.0),
        sorted(busy, reverse=True),
        min(computed_s / seconds / cluster.workers, 1.0),
    )


def _worker(
    cluster: Cluster,
    costs: Costs,
    number: int,
    tasks: int,
    brokers: list[Broker],
    start_s: float,
    note: Note,
) -> Life:
    """One worker's life: yields when it acts next and is sent that time."""
    leaders = [brokers[(number + n) % len(brokers)] for n in range(min(tasks, len(brokers)))]
    group_coordinator, own_coordinator = brokers[0], brokers[number % len(brokers)]
    touched = tasks * cluster.partitions_per_task
    now_s = start_s
    came_s, backlog = start_s, 0.0
    while True:
        records = 0.0
        for _ in range(SLICES):
            now_s = yield now_s + cluster.commit_interval_s / SLICES
            # as much as the core can do, or what has come
            part = cluster.commit_interval_s / SLICES / costs.worker_s
            if cluster.rate_per_s is not None:
                backlog += cluster.rate_per_s * tasks / cluster.tasks * (now_s - came_s)
                part = min(part, backlog)
                backlog -= part
            came_s = now_s
            records += part
            for leader in leaders:
                leader.serve(now_s, costs.request_s / SLICES + part * costs.read_s / len(leaders))
        began_s = now_s
        own_s = costs.commit_s + records * costs.commit_record_s
        now_s = yield now_s + own_s
        written = costs.request_s + (records * costs.write_s + touched * costs.partition_s) / len(leaders)
        now_s = yield max(leader.serve(now_s, written) for leader in leaders) + costs.round_trip_s
        now_s = yield group_coordinator.serve(now_s, costs.request_s) + costs.round_trip_s
        if cluster.transactional:
            now_s = yield own_coordinator.serve(now_s, 2 * costs.request_s) + 2 * costs.round_trip_s
            for n in range(touched):
                leaders[n % len(leaders)].serve(now_s, costs.marker_s)
        note(began_s, now_s, records, records * costs.worker_s + own_s, number)


class Pause(NamedTuple):
    """A change of the group: how long the tasks of a member stood still, on average and at worst."""

    mean_s: float
    worst_s: float


def rebalance(cluster: Cluster, costs: Costs, commit_s: float, *, seed: int = 1) -> Pause:
    """A member joins, or leaves politely. Everyone hears of it with its next heartbeat, commits, gives up its tasks and
    joins again; when the last one has, all get their tasks, whose state is where it was."""
    rng = random.Random(seed)
    heard = [rng.random() * cluster.heartbeat_s for _ in range(cluster.workers)]
    joined = [at + commit_s * (0.5 + rng.random()) + costs.round_trip_s for at in heard]
    coordinator = Broker(1)
    served = [coordinator.serve(at, costs.request_s) for at in sorted(joined)]
    assigned_s = served[-1] + costs.round_trip_s
    given = [coordinator.serve(assigned_s, costs.request_s) + costs.round_trip_s for _ in heard]
    pauses = [end + costs.assign_s - at for at, end in zip(heard, given, strict=True)]
    return Pause(sum(pauses) / len(pauses), max(pauses))


class Loss(NamedTuple):
    """After a worker was killed, with its disk: until it is missed, until the group has changed, until its tasks run on
    others (``whole``: the stores from their changelogs; ``restart``: it comes back itself and finds its state)."""

    missed_s: float
    regrouped_s: float
    whole_s: float
    restart_s: float


def loss(cluster: Cluster, costs: Costs, commit_s: float, *, seed: int = 1) -> Loss:
    """See ``Loss``. The tasks spread over the others; each brings its new ones back one after the other."""
    pause = rebalance(cluster, costs, commit_s, seed=seed)
    tasks = max(cluster.tasks_per_worker)
    gained = -(-tasks // max(cluster.workers - 1, 1))
    # what the brokers can read out bounds what all who restore can take in
    readers = min(tasks, cluster.workers - 1) or 1
    served = cluster.brokers * cluster.broker_cores / costs.read_s / readers
    restored_s = gained * cluster.state_records_per_task / min(costs.restore_per_s, served)
    regrouped_s = cluster.session_s + cluster.heartbeat_s + pause.worst_s
    return Loss(
        cluster.session_s,
        regrouped_s,
        regrouped_s + restored_s,
        pause.worst_s + cluster.heartbeat_s + costs.assign_s,
    )


def table(clusters: list[Cluster], costs: Costs) -> str:
    """What the model says of each."""
    rows = []
    for c in clusters:
        f = flow(c, costs)
        pause, lost = rebalance(c, costs, f.commit_s[0]), loss(c, costs, f.commit_s[0])
        rows.append([
            f"{c.brokers} × {c.broker_cores}", f"{c.workers}", f"{c.tasks:,}", f"{c.commit_interval_s * 1000:.0f}",
            "exactly once" if c.transactional else "at least once", f"{f.records_per_s / 1e6:.1f}",
            f"{f.commits_per_s:,.0f}", f"{f.commit_s[0] * 1000:.0f} / {f.commit_s[1] * 1000:.0f}",
            f"{f.computing:.0%}", f"{f.busy[0]:.0%} / {f.busy[-1]:.0%}",
            f"{pause.mean_s:.1f} / {pause.worst_s:.1f}", f"{lost.restart_s:.0f} / {lost.whole_s:.0f}",
        ])  # fmt: skip
    head = [
        "brokers × cores", "workers", "tasks", "commit ms", "guarantee", "M records/s", "commits/s",
        "commit waits ms (p50 / p99)", "workers computing", "busiest / idlest broker", "rebalance pause s (mean / worst)",
        "lost worker: back itself / restored elsewhere s",
    ]  # fmt: skip
    return markdown(head, rows)


def main() -> None:
    """Print the table of ``SCALE.md``."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale_model", description=__doc__.split("\n")[0])
    parser.add_argument("--costs", default="{}", help="JSON with measured costs, by the fields' names of Costs")
    costs = Costs(**json.loads(parser.parse_args().costs))
    rows = []
    for seen in SEEN:
        found = flow(small(seen), costs, seconds=20 * seen.commit_interval_s)
        rows.append([
            f"{seen.tasks}", f"{seen.commit_interval_s * 1000:.0f}", f"{seen.records_per_s:,.0f}",
            f"{found.records_per_s:,.0f}", f"{seen.commits_per_s:.1f}", f"{found.commits_per_s:.1f}",
        ])  # fmt: skip
    print(markdown(["tasks", "commit ms", "seen records/s", "model", "seen commits/s", "model"], rows), end="\n\n")
    base = Cluster()
    change = dataclasses.replace
    clusters = [
        base,
        change(base, commit_interval_s=1.0),
        change(base, transactional=False, commit_interval_s=1.0),
        change(base, workers=200),
        change(base, workers=400, commit_interval_s=1.0),
        change(base, workers=1_000),
        change(base, workers=1_000, commit_interval_s=1.0),
    ]
    print(table(clusters, costs))


if __name__ == "__main__":
    main()
