"""Every ready-made topology runs record by record and in large batches; the expected output is the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.graph.topology import Topology

Drive = Callable[[Topology], TopologyTestDriver]


@pytest.fixture(params=[1, 1000], ids=["batches of 1", "batches of 1000"])
def drive(request: pytest.FixtureRequest) -> Iterator[Drive]:
    """Makes a driver of a topology; closed when the test ends."""
    with ExitStack() as stack:
        yield lambda topology: stack.enter_context(
            TopologyTestDriver(topology, options=TaskOptions(batch_max_records=request.param))
        )
