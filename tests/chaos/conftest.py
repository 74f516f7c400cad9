"""What the cases share: one cluster of three brokers, healed after each case, and the mark of the long forms."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.cluster import ChaosCluster
from tests.chaos.scene import Scene

MakeScene = Callable[..., Scene]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the long forms, unless ``-m long`` asks for them, and mark what starts brokers."""
    wanted = "long" in str(config.option.markexpr)
    kept = [item for item in items if wanted or not item.get_closest_marker("long")]
    if len(kept) < len(items):
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept
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


@pytest.fixture
def scene(healthy: ChaosCluster, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Scene]:
    """An application under exactly-once with two workers, ``a`` and ``b``, both at work."""
    name = "".join(c for c in str(request.node.originalname) if c.isalpha())[-24:]
    with Scene(healthy, name, tmp_path) as made:
        made.worker("a")
        made.worker("b")
        made.await_both()
        yield made


def pytest_configure(config: Any) -> None:
    """The marks of this folder."""
    config.addinivalue_line("markers", "long: the long form of a case; ``make chaos`` runs it, the suite does not")
