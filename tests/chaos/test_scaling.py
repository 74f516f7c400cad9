"""Workers that come and go all the time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.cluster import ChaosCluster
from tests.chaos.scene import Scene

UNOWNED_S = 30.0
"""No partition may be without an owner for longer."""


@pytest.mark.parametrize("rounds", [1, pytest.param(15, marks=pytest.mark.long)])
def test_one_worker_becomes_four_and_one_again(healthy: ChaosCluster, tmp_path: Path, rounds: int) -> None:
    """P9: each is stopped in order; orders of every partition come out within the limit all the while."""
    with Scene(healthy, "scaling", tmp_path) as scene:
        scene.worker("w0")
        scene.await_both()
        others = [scene.worker(f"w{i}") for i in (1, 2, 3)]
        for _ in range(rounds):
            scene.await_tasks(others)
            progress(scene)
            for other in others:
                assert other.stop() == 0, other.said()
            progress(scene)
            for other in others:
                other.start()
        scene.await_tasks(others)  # a process that has only begun to start ends by the signal itself
        scene.converge()
        scene.assert_right()
        assert set(scene.stop().values()) == {0}


def progress(scene: Scene) -> None:
    """Orders of all partitions, written now, come out in time."""
    scene.writer.write(200)
    scene.converge(UNOWNED_S)
