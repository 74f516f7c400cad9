"""The broker's group protocol on a broker before KIP-1251: nobody joins again because others come and go."""

from __future__ import annotations

import pytest

from penstock.streams.kafka.embedded import launch
from tests.integration.faults.older_broker import VERSION, WORKERS, rejoined

pytestmark = pytest.mark.long


def test_nobody_joins_again_on_an_older_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "kafka_jars", launch.kafka_jars)  # which the run replaces
    assert rejoined(VERSION) == [0] * WORKERS
