"""Penstock's side: a described topology on the test driver, one record at a time."""

from __future__ import annotations

import functools
import json
import logging
from typing import Any

from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.graph.topology import Topology
from tests.conformance.compare import Row, plain
from tests.conformance.dataflow import Dataflow
from tests.conformance.functions import function
from tests.conformance.scenario import KEY, VALUE, Scenario
from tests.differential.functions import in_words
from tests.differential.inputs import WALL, Entry
from tests.differential.kinds.kind import Node
from tests.differential.outcomes import Outcome, Step
from tests.differential.processors import PROCESSORS, Numbering, store_of

# Random programs drop records by the thousand, and the driver warns of each operator that does.
logging.getLogger("penstock.record").addHandler(logging.NullHandler())

TOPOLOGIES_KEPT = 64
"""Most seeds of a kind have the same topology: to build it takes longer than to play a run."""


class Described(Dataflow):
    """A description as a topology: the conformance format's nodes, and ``process``, ``transform_values``, branches with ids,
    and aggregations that emit ``per_commit``."""

    def _process(self, node: Node) -> Any:
        kind = node["processor"]
        if "reads" in node:
            stores = (self._handles[node["table"]].store,)
        else:
            stores = (store_of(kind, f"store-{node['id']}"),)
        name = stores[0].name
        return self._in(node).process(lambda: PROCESSORS[kind](name), stores=stores, key=KEY, value=VALUE)

    def _transform_values(self, node: Node) -> Any:
        store = store_of("numbering", f"store-{node['id']}")
        return self._in(node).transform_values(
            lambda: Numbering(store.name), stores=(store,), value=VALUE, name=node.get("store")
        )

    def _split(self, node: Node) -> Any:
        branches = node["branches"]
        if "id" not in branches[0]:
            return super()._split(node)
        streams = self._in(node).branch(*(function(b["when"]) for b in branches))
        self._handles.update({branch["id"]: stream for branch, stream in zip(branches, streams, strict=True)})
        return self._in(node)

    def _windowed(self, node: Node, grouped: Any) -> Any:
        made = super()._windowed(node, grouped)
        return _PerCommit(made) if node.get("emit") == "per_commit" else made


class _PerCommit:
    """A grouped stream whose aggregations emit once per commit."""

    def __init__(self, grouped: Any) -> None:
        self._grouped = grouped

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._grouped, name)
        return lambda *args, **options: method(*args, emission="per_commit", **options)


@functools.lru_cache(TOPOLOGIES_KEPT)
def _built(nodes: str) -> tuple[Described, Topology]:
    flow = Described(in_words(json.loads(nodes)))
    return flow, flow.build()


def play(nodes: list[Node], entries: list[Entry]) -> Outcome:
    """What each entry put out, and the error that ended the run."""
    steps: list[Step] = []
    try:
        flow, topology = _built(json.dumps(nodes))
        options = TaskOptions(batch_max_records=1, wall_resolution_ms=1)
        driver = TopologyTestDriver(topology, options=options, arrival_order=True)
    except Exception as exc:  # a topology that cannot be built is an answer, too
        return Outcome(steps, f"{type(exc).__name__}: {exc}")
    scenario = Scenario(driver.topology, (), (), flow.sinks, window_end=flow.window_end)
    try:
        for entry in entries:
            _take(driver, flow, entry)
            steps.append(_read(driver, scenario))
    except Exception as exc:  # whatever processing raises is this side's answer
        return Outcome(steps, f"{type(exc).__name__}: {exc}")
    finally:
        driver.release()
    return Outcome(steps, None)


def _take(driver: TopologyTestDriver, flow: Described, entry: Entry) -> None:
    if entry.get("event") == WALL:
        driver.advance_wall_time(entry["ts"] - driver.wall_ms)
    else:
        driver.pipe(flow.inputs[entry["topic"]], entry["k"], entry["v"], entry["ts"])


def _read(driver: TopologyTestDriver, scenario: Scenario) -> Step:
    step: Step = {}
    for sink, topic in scenario.sinks.items():
        rows = [_plain(scenario.row(sink, record)) for record in driver.read(topic)]
        if rows:
            step[sink] = rows
    return step


def _plain(row: Row) -> Row:
    return {name: plain(value) for name, value in row.items()}
