"""Checks read each sink from where its last check stopped, and see no output of later input."""

from __future__ import annotations

from typing import Any

from tests.conformance.checks import counts_of, judge, judge_final, splits_of, stores_of
from tests.conformance.scenario import Played


def row(value: Any, key: Any = "k", ts: int = 0) -> dict[str, Any]:
    return {"k": key, "v": value, "ts": ts}


def played() -> Played:
    return Played(outputs={"out": [(0, row("a")), (0, row("b")), (2, row("c"))]})


def check(after: int, *values: str, match: str = "sequence", **more: Any) -> dict[str, Any]:
    return {"after": after, "sink": "out", "match": match, "records": [{"v": v} for v in values], **more}


def test_checks_compare_what_came_since_the_one_before() -> None:
    assert judge([check(1, "a", "b"), check(2), check(3, "c")], played()) == []
    assert judge([check(3, "a", "b", "c")], played()) == []
    assert judge([check(1, "a", "b"), check(3, "a", "b", "c", since="start")], played()) == []


def test_outputs_of_later_input_are_not_seen() -> None:
    wrong = judge([check(2, "a", "b", "c")], played())
    assert "3 records expected, 2 found" in wrong[0]
    assert [line.split()[0] for line in wrong[1:]] == ["expected"] * 3 + ["actual"] * 2


def test_a_prefix_leaves_the_rest_to_the_next_check() -> None:
    assert judge([check(1, "a", match="queue_prefix"), check(3, "b", "c")], played()) == []


def test_stores_and_counts_are_read_when_checks_ask() -> None:
    checks: list[dict[str, Any]] = [
        {"after": 2, "sink": "table:t", "match": "table", "records": [{"k": "k", "v": 1}, {"k": "x", "v": None}]},
        {"after": 3, "metric": "dropped_records", "value": 4},
    ]
    assert stores_of(checks) == {(2, "t")}
    assert counts_of(checks) == {3}
    assert splits_of(checks) == frozenset()
    good = Played(stores={(2, "t"): [row(1)]}, dropped={3: 4})
    assert judge(checks, good) == []
    bad = Played(stores={(2, "t"): [row(2)]}, dropped={3: 5})
    assert [line.split(":")[0] for line in judge(checks, bad) if line.startswith("after")] == [
        "after 2, table",
        "after 3",
    ]


def test_an_error_must_come_in_time_and_only_where_expected() -> None:
    checks = [check(1, "a", "b"), {"after": 2, "error": "full"}]
    assert splits_of(checks) == {1, 2}
    failed = played()
    failed.error = (2, "full")
    assert judge(checks, failed) == []
    assert judge(checks, played()) == ["after 2: expected to fail (full), did not"]
    failed.error = (3, "too late")
    assert judge(checks, failed)
    failed.error = (2, "oops")
    assert judge([check(1, "a", "b")], failed) == ["failed at entry 2: oops"]


def test_final_rows_of_one_sink_or_of_several() -> None:
    left = Played(outputs={"out": [(0, row("a")), (1, row("b"))], "gone": [(0, row("a")), (1, row(None))]})
    assert judge_final({"out": [{"k": "k", "v": "b"}], "gone": []}, left) == []
    assert judge_final([{"k": "k", "v": "b"}], Played(outputs={"out": left.outputs["out"]})) == []
    assert judge_final([{"k": "k", "v": "a"}], Played(outputs={"out": left.outputs["out"]}))
