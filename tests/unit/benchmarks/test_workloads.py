"""Every workload's topology, in rows and in expressions, gives the oracle's answer; the oracle refuses another's."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks import data, oracle, workloads
from benchmarks.workloads import WORKLOADS, Orders, Variant
from penstock.state.log import Record
from penstock.streams.testing.test_driver import TopologyTestDriver

BASE_MS = 1_795_219_200_000
RECORDS = 3_000
USERS = 400


def rows(data_set: str, records: int, keys: int) -> list[Record]:
    """A data set as its topic holds it."""
    more = (keys,) if data_set in data.KEYED else ()
    return [
        Record(key, value, at_ms)
        for block in data.DATA_SETS[data_set](records, BASE_MS, *more)
        for key, value, at_ms in zip(block.keys or [None] * records, block.values, block.timestamps, strict=True)
    ]


def answer(name: str, functions: workloads.Functions) -> list[tuple[bytes | None, bytes | None]]:
    """What the topology writes; of ``keyed-count``, which writes nothing, what it stores."""
    workload, variant = WORKLOADS[name], Variant(keys=USERS)
    topology = workload.topology(Orders("in", "table", "out", "per_commit", variant.window_ms, functions))
    driver = TopologyTestDriver(topology)
    if workload.table is not None:
        driver.pipe_raw({"table": rows(workload.table, workload.table_rows(variant), USERS)})
    driver.pipe_raw({"in": rows(workload.data_set, RECORDS, USERS)})
    if name == "keyed-count":
        return [(str(key).encode(), str(count).encode()) for key, count in driver.store("counts").range()]
    return [(record.key, record.value) for record in driver.read_raw("out")]


def run(found: list[tuple[bytes | None, bytes | None]], records: int = RECORDS) -> workloads.Run:
    """What the check is asked about."""

    def remember(name: str, count: Callable[[], oracle.Tally]) -> oracle.Tally:
        return count()

    return workloads.Run(
        records, BASE_MS, Variant(keys=USERS), lambda: found, lambda: oracle.last_counts(found), remember
    )


@pytest.mark.parametrize("functions", ["rows", "expressions"])
@pytest.mark.parametrize("name", WORKLOADS)
def test_topology_answers_as_the_oracle(name: str, functions: workloads.Functions) -> None:
    found = answer(name, functions)
    verdict = WORKLOADS[name].check(run(found))
    assert verdict.right, verdict.reason
    assert not WORKLOADS[name].check(run(found, RECORDS - 10)).right
    assert not WORKLOADS[name].check(run(found[:-1])).right


def test_every_data_set_and_table_exists() -> None:
    for workload in WORKLOADS.values():
        assert workload.data_set in data.DATA_SETS
        assert workload.table is None or workload.table in data.DATA_SETS
        assert "penstock" in workload.records
