"""A real Spark session for the whole run, and applications that live in the test's process."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from penstock.streams.spark.cluster import Connection
from penstock.streams.spark.session import SparkSettings, open_session
from tests.integration.spark.live import Live


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    settings = SparkSettings(
        master="local[2]", conf={"spark.sql.shuffle.partitions": "2", "spark.sql.adaptive.enabled": "false"}
    )
    session = open_session(settings)
    yield session
    session.stop()


@pytest.fixture
def connection(kafka: str) -> Connection:
    return Connection(kafka)


@pytest.fixture
def live(kafka: str) -> Live:
    """An application under an id of its own, with no topics yet."""
    return Live(kafka, f"app-{uuid.uuid4().hex[:8]}")
