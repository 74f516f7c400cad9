"""The suite as a whole."""

from __future__ import annotations

import inspect

import pytest

from penstock.streams.topology_loading import load_topology
from penstock.topologies.examples.nexmark.constants import BENCHMARKS, NEXMARK
from penstock.topologies.examples.nexmark.suite import QUERIES


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
