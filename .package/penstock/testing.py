"""For tests: the driver of topologies, and the contracts of ``penstock.ports`` as suites to subclass. Needs pytest."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("penstock.streams.testing.contracts")

from penstock.streams.testing.contracts.log import LogContract  # noqa: E402  # after the line that asserts need
from penstock.streams.testing.contracts.log_world import World as LogWorld  # noqa: E402
from penstock.streams.testing.contracts.sink import ExactlyOnceSinkContract, SinkContract  # noqa: E402
from penstock.streams.testing.contracts.snapshot_repository import (  # noqa: E402
    RepositoryWorld,
    SnapshotRepositoryContract,
)
from penstock.streams.testing.contracts.source import SourceContract  # noqa: E402
from penstock.streams.testing.contracts.state_backend import (  # noqa: E402
    DurableBackendContract,
    StateBackendContract,
)
from penstock.streams.testing.memory_sink import MemorySink  # noqa: E402
from penstock.streams.testing.test_driver import TopologyTestDriver  # noqa: E402

__all__ = [
    "DurableBackendContract",
    "ExactlyOnceSinkContract",
    "LogContract",
    "LogWorld",
    "MemorySink",
    "RepositoryWorld",
    "SinkContract",
    "SnapshotRepositoryContract",
    "SourceContract",
    "StateBackendContract",
    "TopologyTestDriver",
]
