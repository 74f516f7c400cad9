"""Applications that live in the test's process."""

from __future__ import annotations

import uuid

import pytest

from penstock.streams.spark.connection import Connection
from tests.integration.spark.live import Live


@pytest.fixture
def connection(kafka: str) -> Connection:
    return Connection(kafka)


@pytest.fixture
def live(kafka: str) -> Live:
    """An application under an id of its own, with no topics yet."""
    return Live(kafka, f"app-{uuid.uuid4().hex[:8]}")
