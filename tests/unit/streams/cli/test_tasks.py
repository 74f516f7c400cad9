"""What ``penstock tasks`` makes of a group's positions."""

from __future__ import annotations

import pytest

import penstock as ps
from penstock.streams.cli.tasks import shown, task_lines, with_rates
from penstock.streams.kafka.groups import PartitionLag
from penstock.topologies.graph.topology import Topology


@pytest.fixture(scope="module")
def topology() -> Topology:
    """Two sub-topologies: a join, and a count behind a repartition topic."""
    builder = ps.StreamsBuilder(key=str, value=str)
    joined = builder.stream("orders").join(builder.table("users"), lambda order, user: user)
    joined.group_by(lambda key, city: city).count(name="n").to_stream().to("totals", value=int)
    return builder.build()


def parts(topology: Topology, position: int | None = 4) -> list[PartitionLag]:
    """Positions in two partitions of every input; the worker ``a`` has the first, nobody the second."""
    names = {topology.source(n).topic_name("shop") for sub in topology.subtopologies for n in sub.sources}
    return [PartitionLag(t, p, position, 10, "a" if p == 0 else None) for t in sorted(names) for p in (0, 1)]


def test_tasks_sum_up_their_inputs(topology: Topology) -> None:
    lines = task_lines(topology, "shop", parts(topology))
    assert [(line.task, line.owner, line.lag) for line in lines] == [
        ("0_0", "a", 12),
        ("0_1", None, 12),
        ("1_0", "a", 6),
        ("1_1", None, 6),
    ]
    assert lines[0].inputs == ("orders", "users")
    assert shown(lines).splitlines()[-1] == "4 tasks, 2 with a worker, lag 36"


def test_rates_are_of_what_was_committed_since(topology: Topology) -> None:
    before = task_lines(topology, "shop", parts(topology))
    now = with_rates(before, task_lines(topology, "shop", parts(topology, 9)), 5.0)
    assert [line.rate for line in now] == [2.0, 2.0, 1.0, 1.0]
    assert with_rates([], now, 5.0)[0].rate == 0.0, "a task that was not there has no rate yet"


def test_inputs_without_positions_have_no_lag(topology: Topology) -> None:
    lines = task_lines(topology, "shop", parts(topology, None))
    assert {line.lag for line in lines} == {None}
    assert (
        shown(lines).splitlines()[-1]
        == "4 tasks, 2 with a worker, lag 0, and up to 60 in partitions without a position"
    )
    assert "no worker of this application has committed yet" in shown(task_lines(topology, "shop", []))
