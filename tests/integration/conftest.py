"""One real broker for the integration tests of a session. They run without xdist: with it each of its processes would
start a broker of its own, which is more JVMs than two cores and a few GB carry."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest

from penstock.streams.kafka.embedded import EmbeddedKafka

# The native part is optional, and cannot be compared where it was not built.
collect_ignore = [] if importlib.util.find_spec("penstock_native") else ["test_native_clients.py"]


@pytest.fixture(scope="session")
def kafka() -> Iterator[str]:
    """The bootstrap servers of a broker that allows short sessions. Tests share it: names of topics, groups and
    applications are each test's own."""
    with EmbeddedKafka() as cluster:
        yield cluster.bootstrap_servers
