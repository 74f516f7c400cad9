"""Each contract test runs in the in-memory world and, marked ``integration``, on a real cluster, plainly and natively."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.streams.kafka.embedded import EmbeddedKafka
from tests.contract.worlds import NATIVE_MODES, POLL_INTERVAL_MAX_MS, KafkaWorld, MemoryWorld, World


@pytest.fixture(scope="session")
def bootstrap_servers() -> Iterator[str]:
    """One broker for the whole suite."""
    limits = {"group.min.session.timeout.ms": "1000", "group.initial.rebalance.delay.ms": "0"}
    assert int(limits["group.min.session.timeout.ms"]) <= POLL_INTERVAL_MAX_MS
    with EmbeddedKafka(configs=limits) as kafka:
        yield kafka.bootstrap_servers


_ON_KAFKA = [pytest.param(mode, marks=pytest.mark.integration, id=f"kafka-native-{mode}") for mode in NATIVE_MODES]


@pytest.fixture(params=["memory", *_ON_KAFKA])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """The world under test."""
    made: MemoryWorld | KafkaWorld
    if request.param == "memory":
        made = MemoryWorld()
    else:
        made = KafkaWorld(request.getfixturevalue("bootstrap_servers"), native=request.param)
    yield made
    made.close()
