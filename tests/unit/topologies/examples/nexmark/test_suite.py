"""The suite as a whole."""

from __future__ import annotations

import gc
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from types import FunctionType

import pytest

from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.streams.topology_loading import load_topology
from penstock.topologies.examples.nexmark.constants import BENCHMARKS, NEXMARK
from penstock.topologies.examples.nexmark.suite import QUERIES
from tests.unit.topologies.examples.nexmark.running import RECORDS


def test_there_are_the_queries_0_to_22() -> None:
    assert list(QUERIES) == [f"q{i}" for i in range(23)]


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_is_named_as_its_topic_and_found_by_its_name(name: str) -> None:
    """It reads the topic of events, and needs no other but query 13's."""
    topology = load_topology(f"{QUERIES[name].__module__}:{name}")
    assert topology.name == name
    read = {topology.source(n).topic for sub in topology.subtopologies for n in sub.sources}
    outer = {t for t in read if not t.endswith("-repartition") and "-topic" not in t}
    assert outer == ({"nexmark", "nexmark-side-input"} if name == "q13" else {"nexmark"})
    written = {topology.sink(n).topic for sub in topology.subtopologies for n in sub.sinks}
    assert name in written


@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_the_constants_of_a_benchmark_make_its_queries(benchmark: str) -> None:
    for name, arguments in BENCHMARKS[benchmark].items():
        assert QUERIES[name](**arguments).name == name


def test_queries_have_the_constants_of_nexmark() -> None:
    for name, arguments in NEXMARK.items():
        known = inspect.signature(QUERIES[name]).parameters
        assert {n: known[n].default for n in arguments} == dict(arguments)


@contextmanager
def without_collector() -> Iterator[set[str]]:
    """The names of our classes and functions in what was made meanwhile and only the collector could free, known at the
    end."""
    found: set[str] = set()
    gc.collect()
    gc.disable()
    before = gc.get_objects()  # kept alive: a thread of another test may end meanwhile
    yield found
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    gc.set_debug(0)
    found |= {type(o).__qualname__ for o in gc.garbage if type(o).__module__.startswith("penstock")}
    functions = [o for o in gc.garbage if isinstance(o, FunctionType)]
    del before
    found |= {o.__qualname__ for o in functions if str(o.__module__).startswith("penstock")}
    gc.garbage.clear()
    gc.enable()


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("name", QUERIES)
def test_batches_are_freed_without_the_collector(name: str, columns: bool) -> None:
    """It runs rarely while a worker does, and a batch that waits for it keeps all bytes that were read with it."""
    with TopologyTestDriver(QUERIES[name](), auto_commit=False, columns=columns) as driver:
        driver.pipe_raw({"nexmark": RECORDS[:800]})
        driver.commit()
        with without_collector() as garbage:
            for start in range(800, len(RECORDS), 800):
                driver.pipe_raw({"nexmark": RECORDS[start : start + 800]})
                driver.commit()
        assert not garbage
