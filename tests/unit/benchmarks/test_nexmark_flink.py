"""Outputs of Flink and of Penstock are read into equal columns, and a difference is reported."""

from __future__ import annotations

import pytest

from benchmarks import flink_sql
from benchmarks.flink_sql import SEPARATOR, Pair, of_flinks, of_ours, settings
from benchmarks.nexmark import SYSTEMS, TAKEN, Standard, answers, topology
from benchmarks.nexmark_flink import FLINK_QUERIES, script
from penstock.state.serdes.serde import INT
from penstock.topologies.examples.nexmark.suite import QUERIES, UPDATED


def ours(query: str) -> list[Pair]:
    """A record of ours."""
    if query == "q4":
        return [(INT.serialize(10), INT.serialize(7))]
    if query == "q8":
        return [(b"", b'{"id":1036,"name":"D","starttime":1436918410000}')]
    return [(b"", b'{"auction":1,"bidder":2,"price":"0.500","dateTime":3,"extra":"e"}')]


THEIRS: dict[str, list[Pair]] = {
    "q1": [(None, b'{"auction":1,"bidder":2,"price":0.5,"dateTime":3,"extra":"e"}')],
    "q4": [(None, b'{"id":10,"final":6}'), (None, b'{"id":10,"final":7}')],
    "q8": [(None, b'{"id":1036,"name":"D","starttime":"2015-07-15 00:00:10"}')],
}


def verdict(query: str, our: list[Pair], their: list[Pair]) -> str:
    of = FLINK_QUERIES[query]
    return flink_sql.verdict(of, of_ours(of, our), of_flinks(of, their))


@pytest.mark.parametrize("query", THEIRS)
def test_equal_answers_are_equal(query: str) -> None:
    assert verdict(query, ours(query), THEIRS[query]).startswith("equal")


@pytest.mark.parametrize("query", THEIRS)
def test_an_answer_without_its_last_row_differs(query: str) -> None:
    assert verdict(query, ours(query), THEIRS[query][:-1]).startswith("differs: 1 ")


def test_a_row_too_many_differs() -> None:
    assert verdict("q1", ours("q1"), THEIRS["q1"] * 2) == "differs: 0 of 1 rows are missing, 1 are not ours"


@pytest.mark.parametrize("query", THEIRS)
def test_the_first_answer_of_flinks_is_what_the_others_are_held_against(query: str) -> None:
    flink, penstock = SYSTEMS["flink"], SYSTEMS["penstock"]
    standard = Standard(query, [], 0, by_flink=True)
    assert not answers(standard.verdict(penstock, ours(query)))
    assert standard.verdict(flink, THEIRS[query]) == TAKEN
    assert standard.verdict(penstock, ours(query)).startswith("equal")
    assert standard.verdict(SYSTEMS["flink-rocksdb"], THEIRS[query][:-1]).startswith("differs: 1 ")
    assert not answers(standard.verdict(penstock, []))


def test_updated_results_have_a_key_and_no_others() -> None:
    assert {query for query, of in FLINK_QUERIES.items() if of.key} == UPDATED - {"q6"}
    assert QUERIES.keys() - FLINK_QUERIES.keys() == {"q6", "q13"}


@pytest.mark.parametrize("query", FLINK_QUERIES)
def test_the_last_statement_writes_the_columns_into_the_topic(query: str) -> None:
    *_, table, insert = script(query, "host:1", "app").split(SEPARATOR)
    assert f"'topic' = '{query}'" in table and all(f"`{name}`" in table for name in FLINK_QUERIES[query].columns)
    assert insert.startswith("INSERT INTO answer SELECT ")
    assert "state.backend.type: rocksdb\n" in settings("/tmp/x", "rocksdb", 1000)


def test_the_emission_reaches_the_queries_that_update_results(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "per_commit" not in topology("q17").describe()
    for name, value in SYSTEMS["penstock-per-commit"].environment.items():
        monkeypatch.setenv(name, value)
    for query in UPDATED:
        assert "per_commit" in topology(query).describe()
    assert topology("q7").describe() == QUERIES["q7"]().describe()
