"""What the cases share: one cluster of three brokers, healed after each case, and the mark of the long forms."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.chaos.cluster import ChaosCluster
from tests.chaos.scene import Scene

MakeScene = Callable[..., Scene]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what starts brokers."""
    for item in items:
        if "chaos" in getattr(item, "fixturenames", ()):
            item.add_marker("integration")


@pytest.fixture(scope="session")
def chaos() -> Iterator[ChaosCluster]:
    """The cluster of all cases; topics are each case's own."""
    with ChaosCluster() as cluster:
        yield cluster


@pytest.fixture
def healthy(chaos: ChaosCluster) -> Iterator[ChaosCluster]:
    """The cluster, which is healed behind the case."""
    yield chaos
    chaos.heal()


class Shared:
    """The application that cases of a module strike one after the other, since starting one takes longer than most of them.
    What comes out must be right behind each case, so the case that breaks it fails, and the next one gets another."""

    def __init__(self, cluster: ChaosCluster, folder: Path) -> None:
        self._cluster = cluster
        self._folder = folder
        self._count = 0
        self._scene: Scene | None = None

    def scene(self) -> Scene:
        """The application, both of its workers at work and no rebalance under way, whatever the case before left."""
        if self._scene is None:
            self._count += 1
            self._scene = Scene(self._cluster, f"shared{self._count}", self._folder / str(self._count))
            self._scene.worker("a")
            self._scene.worker("b")
            self._scene.await_both()
        self._scene.await_settled()
        return self._scene

    def is_sound(self) -> bool:
        """Whether its workers have lived through all cases so far."""
        return self._scene is not None and all(w.alive and w.lives == 1 for w in self._scene.workers)

    def drop(self) -> None:
        """Nothing more is done with it."""
        if self._scene is not None:
            self._scene.__exit__()
        self._scene = None


@pytest.fixture(scope="module")
def shared(chaos: ChaosCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    """See the class."""
    made = Shared(chaos, tmp_path_factory.mktemp("shared"))
    yield made
    made.drop()


@pytest.fixture
def scene(shared: Shared, healthy: ChaosCluster, request: pytest.FixtureRequest) -> Iterator[Scene]:
    """An application under exactly-once with two workers, ``a`` and ``b``, both at work."""
    failed, ready = request.session.testsfailed, False
    try:
        made = shared.scene()
        ready = True
        yield made
    finally:
        healthy.heal()
        if not ready or request.session.testsfailed > failed or not shared.is_sound():
            shared.drop()
