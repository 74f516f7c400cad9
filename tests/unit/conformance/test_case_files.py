"""Files of cases, their functions, and cases from the file to the verdict."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conformance.case_format import Case, CaseError, read_cases
from tests.conformance.drive import DriverPlayer
from tests.conformance.functions import distinct_count, expression, function, optional
from tests.conformance.suite import Report, judge, run

PLAYERS = {"one": DriverPlayer(1), "many": DriverPlayer(1000)}


def case(nodes: list[dict[str, Any]], entries: list[Any], expected: list[Any], **more: Any) -> Case:
    data = {
        "id": "mine",
        "group": "stateless",
        "kind": "dataflow",
        "portability": "portable",
        "topology": {"nodes": nodes},
        "input": entries,
        "expected": expected,
        **more,
    }
    (made,) = read_cases([json.dumps(data)], "mine.jsonl")
    return made


def put(key: Any, value: Any, ts: int = 0, topic: str = "in") -> dict[str, Any]:
    return {"topic": topic, "k": key, "v": value, "ts": ts}


STREAM = {"id": "s", "op": "stream", "topic": "in"}
OUT = {"op": "sink", "in": "x", "name": "out"}


def doubled(expected: int) -> Case:
    nodes = [STREAM, {"id": "x", "op": "map_values", "in": "s", "fn": "lambda v: v * 2"}, OUT]
    check = {"after": 1, "sink": "out", "match": "sequence", "records": [{"k": "a", "v": expected, "ts": 3}]}
    return case(nodes, [put("a", 1 << 60, 3)], [check])


def test_lines_that_are_no_cases_are_refused_by_number() -> None:
    with pytest.raises(CaseError, match="line 2: no JSON"):
        list(read_cases(["", "{"], "f.jsonl"))
    with pytest.raises(CaseError, match="no group, kind, portability, input"):
        list(read_cases(['{"id": "x"}'], "f.jsonl"))


def test_expectations_of_single_elements_win_where_bundles_matter() -> None:
    data = {"expected": 1, "expected_per_element": 2, "input": []}
    assert Case("i", "g", "trigger", "bundle_dependent", data).expectations() == 2
    assert Case("i", "g", "trigger", "portable", data).expectations() == 1
    assert Case("i", "g", "trigger", "portable", data).judged
    assert not Case("i", "g", "trigger", "kafka_specific", data).judged


def test_functions_of_cases() -> None:
    assert function("lambda a, b: S(a) + '-' + S(b)")(None, 1) == "null-1"
    assert optional(None) is None
    assert expression("e['x'] > 1", "e")({"x": 2})
    assert distinct_count([1, 1, None, "1"]) == 2
    with pytest.raises(CaseError, match="no Python"):
        function("lambda:")
    with pytest.raises(CaseError, match="no function"):
        function("1 + 1")


def test_integers_of_any_size_pass_through() -> None:
    assert judge(doubled(1 << 61), DriverPlayer(1)) == []


def test_a_failing_case_shows_expected_and_actual_and_the_sum_comes_last() -> None:
    report = Report(verbose=True)
    lines = [line for o in run([doubled(1 << 61), doubled(7)], PLAYERS) for line in report.add(o)] + list(report.end())
    assert not report.passed
    assert lines[0] == "passed mine"
    assert lines[1] == "FAILED mine [stateless]"
    assert '        expected "a" 7 ts=3' in lines
    assert f'        actual   "a" {1 << 61} ts=3' in lines
    assert lines[-1] == "1 passed, 1 failed"


def test_cases_that_need_not_pass_are_reported_apart() -> None:
    kafka = Case("k", "g", "dataflow", "kafka_specific", doubled(7).data)
    report = Report(verbose=False)
    assert [line for o in run([kafka], PLAYERS) for line in report.add(o)] == []
    lines = list(report.end())
    assert report.passed
    assert "FAILED k (kafka_specific) [g]" in lines
    assert lines[-2:] == ["not portable: 0 passed, 1 failed", "0 passed, 0 failed"]


def test_what_the_format_does_not_have_is_the_reason() -> None:
    nodes = [STREAM, {"id": "x", "op": "teleport", "in": "s"}]
    assert "teleport" in judge(case(nodes, [], []), DriverPlayer(1))[0]
    unknown = Case("i", "g", "poem", "portable", {"input": []})
    assert "poem" in judge(unknown, DriverPlayer(1))[0]


def test_a_function_that_raises_fails_the_case_with_its_message() -> None:
    nodes = [STREAM, {"id": "x", "op": "map_values", "in": "s", "fn": "lambda v: 1 // v"}, OUT]
    made = case(nodes, [put("a", 1), put("a", 0)], [{"after": 2, "sink": "out", "match": "bag", "records": []}])
    for play in PLAYERS.values():
        assert "ZeroDivisionError" in judge(made, play)[0]


def test_an_expected_error_is_met_by_a_refusal_at_build_time_too() -> None:
    window = {"type": "tumbling", "size_ms": 0}
    group = {"id": "g", "op": "group_by_key", "in": "s"}
    nodes = [STREAM, group, {"id": "x", "op": "aggregate", "in": "g", "fn": "count", "window": window}, OUT]
    assert judge(case(nodes, [put("a", 1)], [{"after": 1, "error": "no time"}]), DriverPlayer(1)) == []
    assert "cannot be built" in judge(case(nodes, [put("a", 1)], []), DriverPlayer(1))[0]


@pytest.mark.parametrize("play", PLAYERS.values(), ids=PLAYERS)
def test_restarts_stores_and_the_ideal_expectation(play: DriverPlayer) -> None:
    nodes = [
        STREAM,
        {"id": "g", "op": "group_by_key", "in": "s"},
        {"id": "x", "op": "aggregate", "in": "g", "fn": "count", "store": "counts"},
        OUT,
    ]
    entries = [put("a", 1), put("a", 2), {"event": "restart"}, put("a", 3)]
    wrong = [{"after": 4, "sink": "out", "match": "sequence", "records": []}]
    ideal = [
        {"after": 1, "sink": "table:counts", "match": "table", "records": [{"k": "a", "v": 1}]},
        {"after": 4, "sink": "out", "match": "sequence", "records": [{"k": "a", "v": v} for v in (1, 2, 3)]},
    ]
    assert judge(case(nodes, entries, wrong, expected_ideal=ideal), play) == []
    assert judge(case(nodes, entries, wrong), play)
    assert judge(case(nodes, entries, wrong, expected_final=[{"k": "a", "v": 3}]), play) == []


def test_a_query_without_topology_and_an_event_without_kind_are_refused() -> None:
    def query(name: Any, entries: list[Any]) -> str:
        data = {"query": name, "input": entries, "expected": []}
        return judge(Case("n", "g", "nexmark", "portable", data), DriverPlayer(1))[0]

    assert "q99" in query("q99", [])
    assert "no person, auction or bid" in query("q1", [{"event_type": 9}])
    assert "names no query" in judge(Case("n", "g", "nexmark", "portable", {"input": []}), DriverPlayer(1))[0]
