"""Queries of Nexmark that keep a result per key up to date."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.topologies.examples.nexmark import aggregates
from penstock.topologies.examples.nexmark.model import NexmarkEvent
from penstock.topologies.graph.topology import Topology
from tests.unit.topologies.examples.nexmark import oracle
from tests.unit.topologies.examples.nexmark.running import Way, check_table, in_every_way

QUERIES = [
    (aggregates.q4, oracle.table_q4),
    (aggregates.q6, oracle.table_q6),
    (aggregates.q15, oracle.table_q15),
    (aggregates.q16, oracle.table_q16),
    (aggregates.q17, oracle.table_q17),
    (aggregates.q18, oracle.table_q18),
    (aggregates.q19, oracle.table_q19),
]


@in_every_way
@pytest.mark.parametrize(("query", "meaning"), QUERIES, ids=[q.__name__ for q, _ in QUERIES])
def test_last_results_are_those_of_the_oracle(
    query: Callable[[], Topology], meaning: Callable[[list[NexmarkEvent]], dict[Any, Any]], way: Way
) -> None:
    check_table(query, meaning, way)
