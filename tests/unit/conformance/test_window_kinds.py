"""Kinds ``trigger`` and ``windowed_stream``: cases that hold, the same with a wrong expectation, and words unknown."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.conformance.case_format import Case
from tests.conformance.drive import DriverPlayer
from tests.conformance.suite import judge

BATCHES = (1, 1_000)


def wrong(data: dict[str, Any], batch: int) -> list[str]:
    case = Case(data["id"], "g", data["kind"], data.get("portability", "portable"), copy.deepcopy(data))
    return judge(case, DriverPlayer(batch))


TRANSCRIPT = {
    "id": "early by the clock, then on time, then late",
    "kind": "trigger",
    "window": {"type": "fixed", "size": 10},
    "trigger": {
        "type": "after_watermark",
        "early": {"type": "after_processing_time", "delay": 5},
        "late": {"type": "after_count", "n": 1},
    },
    "accumulation": "discarding",
    "timestamp_combiner": "earliest",
    "allowed_lateness": 5,
    "input": [
        {"elements": [[3, "a"], [2, "b"]]},
        {"advance_processing_time": 4},
        {"elements": [[4, "c"]]},
        {"advance_processing_time": 1},
        {"watermark": 10},
        {"event": "restart"},
        {"elements": [[1, "d"]]},
        {"watermark": 16},
        {"elements": [[1, "e"]]},
    ],
    "expected": [
        {"after": 3, "panes": []},
        {
            "after": 4,
            "panes": [{"window": [0, 10], "values": ["a", "b", "c"], "ts": 2, "early": True, "is_first": True}],
        },
        {"after": 5, "panes": [{"window": [0, 10], "values": [], "ts": 2, "early": False, "late": False, "index": 1}]},
        {"after": 7, "panes": [{"values": ["d"], "ts": 9, "late": True, "nonspeculative_index": 1}]},
        {"after": 9, "panes": []},
    ],
}
MERGED = {
    "id": "panes of windows",
    "kind": "trigger",
    "portability": "bundle_dependent",
    "window": {"type": "session", "gap": 10},
    "trigger": {"type": "repeatedly", "trigger": {"type": "after_count", "n": 2}},
    "accumulation": "accumulating",
    "allowed_lateness": "unlimited",
    "input": [{"elements": [[0, "a"], [10, "b"], [5, "c"]]}, {"watermark": "max"}],
    "expected_panes": [{"window": [0, 20], "panes": [["nobody", "asks"]]}],
    "expected_panes_per_element": [{"window": [0, 20], "panes": [["a", "b", "c"]]}],
}
BY_CLOCK = {
    "id": "sessions by the clock",
    "kind": "windowed_stream",
    "topology": {
        "fn": {"n": "count(*)", "sum": "sum(v)"},
        "window": {"type": "session", "gap_ms": 3000},
        "trigger": {"type": "processing_time"},
        "time": "processing",
    },
    "input": [
        {"event": "processing_time", "ts": 3},
        {"topic": "in", "k": "a", "v": 1, "ts": 77},
        {"event": "processing_time", "ts": 1000},
        {"topic": "in", "k": "a", "v": 2, "ts": None},
        {"event": "restart"},
        {"event": "processing_time", "ts": 5000},
    ],
    "expected": [
        {"after": 5, "sink": "out", "match": "bag", "records": []},
        {
            "after": 6,
            "sink": "out",
            "match": "bag",
            "records": [{"k": "a", "w": [3, 4000], "v": {"n": 2, "sum": 3}, "ts": 3999}],
        },
    ],
}
LATE = {
    "id": "late into an open session, purged",
    "kind": "windowed_stream",
    "topology": {
        "fn": "sum",
        "window": {"type": "session", "gap_ms": 3000},
        "trigger": {"type": "event_time", "purging": True},
        "allowed_lateness_ms": 10,
        "late_sink": "late",
    },
    "input": [
        {"topic": "in", "k": "a", "v": 1, "ts": 11600},
        {"event": "watermark", "ts": 14600},
        {"topic": "in", "k": "a", "v": 2, "ts": 10000},
        {"topic": "in", "k": "a", "v": 4, "ts": 1000},
        {"event": "watermark", "ts": 14610},
        {"topic": "in", "k": "a", "v": 8, "ts": 11601},
    ],
    "expected": [
        {"after": 2, "sink": "out", "match": "bag", "records": [{"k": "a", "w": [11600, 14600], "v": 1, "ts": 14599}]},
        {"after": 6, "sink": "out", "match": "bag", "records": [{"k": "a", "w": [10000, 14600], "v": 2, "ts": 14599}]},
        {"after": 6, "sink": "late", "match": "bag", "records": [{"v": 4, "ts": 1000}, {"v": 8, "ts": 11601}]},
    ],
}


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("data", [TRANSCRIPT, MERGED, BY_CLOCK, LATE], ids=lambda d: d["id"])
def test_cases_that_hold(data: dict[str, Any], batch: int) -> None:
    assert wrong(data, batch) == []


def _changed(data: dict[str, Any], path: list[Any], value: Any) -> dict[str, Any]:
    changed = copy.deepcopy(data)
    at: Any = changed
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    return changed


@pytest.mark.parametrize(
    ("data", "path", "value", "said"),
    [
        (TRANSCRIPT, ["expected", 1, "panes", 0, "ts"], 3, "after 4: the panes differ"),
        (TRANSCRIPT, ["expected", 1, "panes", 0, "is_first"], False, "after 4"),
        (TRANSCRIPT, ["expected", 4, "panes"], [{"values": []}], "after 9"),
        (TRANSCRIPT, ["allowed_lateness"], 20, "after 9"),
        (MERGED, ["expected_panes_per_element", 0, "panes"], [["a", "b"]], "window [0, 20]"),
        (MERGED, ["expected_panes_per_element", 0, "window"], [0, 21], "window [0, 21]"),
        (BY_CLOCK, ["expected", 1, "records", 0, "ts"], 4000, "after 6"),
        (LATE, ["topology", "trigger", "purging"], False, "after 6, out"),
        (TRANSCRIPT, ["trigger"], {"type": "after_lunch"}, "'after_lunch' is unknown"),
        (TRANSCRIPT, ["window"], {"type": "stained glass"}, "'stained glass' is unknown"),
        (TRANSCRIPT, ["input", 0], {"noise": 1}, "noise"),
        (LATE, ["topology", "trigger"], {"type": "delta"}, "'delta' is unknown"),
        (LATE, ["topology", "window"], {"type": "round"}, "'round' is unknown"),
        (LATE, ["input", 1], {"event": "lunch"}, "'lunch' is unknown"),
    ],
)
def test_cases_that_do_not_hold(data: dict[str, Any], path: list[Any], value: Any, said: str) -> None:
    lines = wrong(_changed(data, path, value), 1)
    assert any(said in line for line in lines), lines
