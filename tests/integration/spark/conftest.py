"""Applications that live in the test's process."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from penstock.streams.spark.connection import Connection
from tests.integration.spark.live import Live
from tests.integration.spark.standalone import Standalone


@pytest.fixture
def connection(kafka: str) -> Connection:
    return Connection(kafka)


@pytest.fixture
def live(kafka: str) -> Live:
    """An application under an id of its own, with no topics yet."""
    return Live(kafka, f"app-{uuid.uuid4().hex[:8]}")


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    """A Spark cluster of local processes, for all tests of the process that ask for one."""
    with Standalone(tmp_path_factory.mktemp("cluster")) as running:
        yield running
