"""What integration tests share."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from penstock.streams.spark.lake.catalog import with_iceberg
from penstock.streams.spark.session import SparkSettings, open_session

# The native part is optional, and cannot be compared where it was not built.
_NATIVE = ["test_clients_in_threads.py", "test_native_clients.py"]
collect_ignore = [] if importlib.util.find_spec("penstock_native") else _NATIVE


@pytest.fixture(scope="session")
def kafka(bootstrap_servers: str) -> str:
    """The bootstrap servers of a broker that allows short sessions."""
    return bootstrap_servers


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One Spark session for all tests of the process."""
    conf = {"spark.sql.shuffle.partitions": "2", "spark.sql.adaptive.enabled": "false"}
    settings = with_iceberg(SparkSettings(master="local[2]", conf=conf))
    session = open_session(settings)
    yield session
    session.stop()
