"""Each contract test runs in the in-memory world and, marked ``integration``, on a real cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.streams.kafka.embedded import EmbeddedKafka
from tests.contract.worlds import POLL_INTERVAL_MAX_MS, KafkaWorld, MemoryWorld, World


@pytest.fixture(scope="session")
def bootstrap_servers() -> Iterator[str]:
    """One broker for the whole suite."""
    limits = {"group.min.session.timeout.ms": "1000", "group.initial.rebalance.delay.ms": "0"}
    assert int(limits["group.min.session.timeout.ms"]) <= POLL_INTERVAL_MAX_MS
    with EmbeddedKafka(configs=limits) as kafka:
        yield kafka.bootstrap_servers


@pytest.fixture(params=["memory", pytest.param("kafka", marks=pytest.mark.integration)])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """The world under test."""
    made: MemoryWorld | KafkaWorld
    made = MemoryWorld() if request.param == "memory" else KafkaWorld(request.getfixturevalue("bootstrap_servers"))
    yield made
    made.close()
