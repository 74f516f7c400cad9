"""Each contract test runs in the in-memory world and, marked ``integration``, on a real cluster, plainly and natively."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.testing import LogWorld
from tests.contract.worlds import NATIVE_MODES, KafkaWorld, MemoryWorld, TracedWorld

_ON_KAFKA = [pytest.param(mode, marks=pytest.mark.integration, id=f"kafka-native-{mode}") for mode in NATIVE_MODES]


@pytest.fixture(params=["memory", "traced", *_ON_KAFKA])
def world(request: pytest.FixtureRequest) -> Iterator[LogWorld]:
    """The world under test."""
    made: MemoryWorld | KafkaWorld
    if request.param == "memory":
        made = MemoryWorld()
    elif request.param == "traced":
        made = TracedWorld()
    else:
        made = KafkaWorld(request.getfixturevalue("bootstrap_servers"), native=request.param)
    yield made
    made.close()
