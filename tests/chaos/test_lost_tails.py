"""Logs that lose what was acknowledged, and disks of brokers that are full."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.chaos.cluster import ChaosCluster
from tests.chaos.scene import Scene
from tests.chaos.workers import until
from tests.chaos.writer import OrderWriter

DISK_BYTES = 192 << 20


def configure(scene: Scene, topic: str, **settings: str) -> None:
    """Change settings of a topic; dots are written as underscores."""
    entries = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for name, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    for done in scene.reader.admin.incremental_alter_configs([resource]).values():
        done.result()


def test_truncated_changelog_ends_the_workers_before_they_count_on(healthy: ChaosCluster, tmp_path: Path) -> None:
    """B6: a replica that lacks the tail of a changelog becomes its leader. What was committed is gone from the changelog, so
    a store that is restored from it would count from an older number."""
    with Scene(healthy, "unclean", tmp_path, replicas=2, min_insync_replicas="1") as scene:
        scene.worker("a")
        scene.worker("b")
        scene.await_both()
        changelogs = [t for t in scene.owned() if t.endswith("-changelog")]
        for topic in (t for t in scene.owned() if t not in changelogs):
            configure(scene, topic, min_insync_replicas="1")
        for topic in changelogs:
            configure(scene, topic, min_insync_replicas="1", unclean_leader_election_enable="true")
        listed = scene.reader.admin.list_topics(f"{scene.name}-per-user-changelog", timeout=20)
        partition = listed.topics[f"{scene.name}-per-user-changelog"].partitions[0]
        leader = partition.leader
        (follower,) = (r for r in partition.replicas if r != leader)
        healthy.kill_broker(follower)
        scene.writer.write(400)
        scene.converge()
        healthy.kill_broker(leader)
        healthy.start_broker(follower)
        healthy.start_broker(leader)
        scene.writer.write(50)
        until("the workers end", lambda: not any(w.alive for w in scene.workers), 300)
        said = "".join(w.said() for w in scene.workers)
        assert all(w.status not in (0, None) for w in scene.workers)
        # A worker that restores, or looks at what others have written, meets the missing end before it can compare epochs.
        lost = (
            "no longer holds what the last commit wrote",
            "but the last commit of group",
            "but the last commit wrote it up to",
        )
        assert any(text in said for text in lost), scene.report(scene.verdict())
        verdict = scene.verdict()
        assert (verdict.doubled, verdict.torn) == (0, 0), verdict
        assert not [text for text in verdict.examples if text.startswith(("counts", "cities"))], verdict


@pytest.mark.long
def test_truncated_input_ends_the_worker_that_would_pass_others_over(healthy: ChaosCluster, tmp_path: Path) -> None:
    """B6 of an input: its last records were processed and are lost while nothing runs, and others take their offsets. The
    committed positions are behind these, so a worker that went on from there would never read them."""
    with Scene(healthy, "passed", tmp_path, replicas=2, min_insync_replicas="1") as scene:
        worker = scene.worker("a")
        scene.await_both()
        orders = scene.topic("orders")
        for topic in scene.owned():
            configure(scene, topic, min_insync_replicas="1")
        configure(scene, orders, unclean_leader_election_enable="true")
        partition = scene.reader.admin.list_topics(orders, timeout=20).topics[orders].partitions[0]
        leader = partition.leader
        (follower,) = (r for r in partition.replicas if r != leader)
        healthy.kill_broker(follower)
        scene.writer.write(400)
        scene.converge()
        scene.stop()
        healthy.kill_broker(leader)
        healthy.start_broker(follower)
        healthy.start_broker(leader)
        OrderWriter(healthy.bootstrap_servers, scene.name, 2).write(3_000)  # the broker has forgotten the first one
        worker.start()
        until("the worker ends", lambda: not worker.alive, 300)
        assert f"{orders} [" in worker.said()
        assert "no longer holds the records before offset" in worker.said(), scene.report(scene.verdict())


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """The data folder of a cluster whose third broker has a small disk."""
    if os.geteuid():
        pytest.skip("mounting a disk needs root")
    disk = tmp_path / "cluster" / "broker-2" / "data"
    disk.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(disk)], check=True)
    yield tmp_path / "cluster"
    subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.mark.long
def test_full_disk_of_a_broker_loses_nothing(small_disk: Path, tmp_path: Path) -> None:
    """B7: the broker gives up, the others go on; when there is space again it comes back."""
    with ChaosCluster(data_dir=small_disk) as cluster, Scene(cluster, "full", tmp_path) as scene:
        scene.worker("a")
        scene.worker("b")
        scene.await_both()
        filler = small_disk / "broker-2" / "data" / "filler"
        with filler.open("wb") as file, pytest.raises(OSError, match="No space left"):
            while True:
                file.write(b"\x00" * (1 << 20))
                file.flush()
        scene.feed("the broker gives up", lambda: not cluster.is_running(2), 120)
        scene.await_progress()
        filler.unlink()
        cluster.heal()
        scene.writer.write(50)
        scene.converge()
        assert all(w.alive and w.lives == 1 for w in scene.workers), scene.report(scene.verdict())
        scene.assert_right()
