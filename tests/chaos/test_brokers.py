"""Faults of brokers under running workers: killed, frozen, restarted one by one, all away at once. Each case ends with the
oracle's judgement of all that was ever written."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from tests.chaos.cluster import BROKERS, ChaosCluster
from tests.chaos.quorum import leader_of_quorum
from tests.chaos.scene import Scene
from tests.chaos.workers import until

PROGRESS_S = 180.0
ROLES = ("orders", "per-user-changelog", "counts", "__consumer_offsets", "__transaction_state")
"""Whose leaders are killed: an input, a changelog, an output, the positions, the transactions."""


def finish(scene: Scene) -> None:
    """All brokers run, more is written, and all is right; no worker has ended meanwhile."""
    scene.cluster.heal()
    scene.writer.write(50)
    scene.converge()
    assert all(w.alive and w.lives == 1 for w in scene.workers), scene.report(scene.verdict())
    scene.assert_right()


def leaders(scene: Scene, role: str) -> set[int]:
    """The brokers that lead a partition of the topic."""
    topic = role if role.startswith("__") else scene.topic(role)
    found = scene.reader.admin.list_topics(topic, timeout=20).topics[topic]
    return {p.leader for p in found.partitions.values() if p.leader >= 0}


def least_that_lead_all(scene: Scene) -> list[int]:
    """Few brokers that lead a partition of every role among them."""
    left, out = {role: leaders(scene, role) for role in ROLES}, []
    assert all(left.values()), left
    while left:
        best = max(range(BROKERS), key=lambda b: sum(b in of for of in left.values()))
        out.append(best)
        left = {role: of for role, of in left.items() if best not in of}
    return out


def test_leaders_of_every_kind_of_topic_are_killed(scene: Scene) -> None:
    """B1: those of input, changelog, output, positions and transactions; workers go on while each is away."""
    for broker in least_that_lead_all(scene):
        scene.cluster.kill_broker(broker)
        scene.await_progress(PROGRESS_S)
        scene.cluster.start_broker(broker)
    finish(scene)


@pytest.mark.long
@pytest.mark.parametrize("role", ROLES)
def test_leader_is_killed_again_and_again(scene: Scene, role: str) -> None:
    """B1: the leader of one topic, five times."""
    for _ in range(5):
        broker = min(leaders(scene, role))
        scene.cluster.kill_broker(broker)
        scene.feed_for(8.0)
        scene.await_progress(PROGRESS_S)
        scene.cluster.start_broker(broker)
    finish(scene)


def test_leader_is_killed_while_stores_are_restored(healthy: ChaosCluster, tmp_path: Path) -> None:
    """B1 in the state R: that of a changelog, between the restores of two tasks."""
    with Scene(healthy, "restoring", tmp_path) as scene:
        first = scene.worker("a")
        scene.writer.write(3_000)
        scene.converge()
        assert first.stop() == 0
        second = scene.worker("b")
        until("a store is being restored", lambda: second.facts("RestoreFinished"), every_s=0.02)
        broker = min(leaders(scene, "per-user-changelog"))
        healthy.kill_broker(broker)
        scene.await_progress(PROGRESS_S)
        scene.workers.remove(first)
        finish(scene)


@pytest.mark.parametrize("seconds", [9.0, pytest.param(30.0, marks=pytest.mark.long)])
def test_frozen_leader_holds_nobody_up_for_good(scene: Scene, seconds: float) -> None:
    """B2: beyond the brokers' own sessions, so that others are elected; it then wakes up and still believes to lead."""
    broker = min(leaders(scene, "orders"))
    with scene.cluster.frozen(broker):
        scene.feed_for(seconds)
        scene.await_progress(PROGRESS_S)
    scene.feed_for(2.0)
    finish(scene)


@pytest.mark.parametrize("rounds", [1, pytest.param(5, marks=pytest.mark.long)])
def test_brokers_are_restarted_one_by_one(scene: Scene, rounds: int) -> None:
    """B3: in order and by SIGKILL in turn; orders are written all the while."""
    hard = False
    for _ in range(rounds):
        for broker in range(BROKERS):
            (scene.cluster.kill_broker if hard else scene.cluster.stop_broker)(broker)
            hard = not hard
            scene.writer.write(50)
            scene.cluster.start_broker(broker)
            scene.await_progress(PROGRESS_S)
    finish(scene)


@pytest.mark.parametrize("seconds", [12.0, pytest.param(70.0, marks=pytest.mark.long)])
def test_workers_outlive_the_absence_of_all_brokers(scene: Scene, seconds: float) -> None:
    """B4: beyond the session; nobody starts the workers again."""
    for broker in range(BROKERS):
        scene.cluster.kill_broker(broker)
    time.sleep(seconds)
    starts = [threading.Thread(target=scene.cluster.start_broker, args=(broker,)) for broker in range(BROKERS)]
    for start in starts:
        start.start()
    for start in starts:
        start.join()
    scene.await_progress(2 * PROGRESS_S)
    finish(scene)
    assert all(w.facts("WaitingForBrokers") for w in scene.workers)


def test_controller_is_killed_while_a_worker_makes_its_topics(healthy: ChaosCluster, tmp_path: Path) -> None:
    """B5: at the first start, when repartition topic and changelogs are asked for."""
    with Scene(healthy, "controller", tmp_path) as scene:
        controller = leader_of_quorum(healthy.bootstrap_servers.split(",")[0])
        scene.worker("a")
        scene.worker("b")
        until("a worker has begun", lambda: any(w.facts("WorkerStarted") for w in scene.workers), every_s=0.02)
        healthy.kill_broker(controller)
        scene.await_both()
        healthy.start_broker(controller)
        finish(scene)
