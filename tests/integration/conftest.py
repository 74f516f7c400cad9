"""One real broker for every integration test of a session. These run without xdist: one JVM is enough for two cores."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.streams.kafka.embedded import EmbeddedKafka


@pytest.fixture(scope="session")
def kafka() -> Iterator[str]:
    """The bootstrap servers of a broker that allows short sessions."""
    configs = {"group.min.session.timeout.ms": "1000", "group.initial.rebalance.delay.ms": "0"}
    with EmbeddedKafka(configs=configs) as cluster:
        yield cluster.bootstrap_servers
