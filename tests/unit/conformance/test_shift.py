"""Cases move in time as a whole, and windows fall as before."""

from __future__ import annotations

from typing import Any

from penstock.state.log import Record, Windowed
from penstock.topologies.windows import END_OF_TIME_MS
from tests.conformance.case_format import Case
from tests.conformance.compare import Row
from tests.conformance.drive import DriverPlayer
from tests.conformance.kinds import dataflow
from tests.conformance.scenario import Setting
from tests.conformance.shift import shift_towards, shifted
from tests.conformance.suite import judge, scenario_of

NOW_MS = 1_700_000_000_123


def case(entries: list[dict[str, Any]], **data: Any) -> Case:
    return Case("c", "g", "dataflow", "portable", {"input": entries, **data})


def put(ts: int | None, **more: Any) -> dict[str, Any]:
    return {"topic": "in", "k": "a", "v": 1, "ts": ts, **more}


def tumbling(size_ms: int) -> Case:
    window = {"type": "tumbling", "size_ms": size_ms, "grace_ms": 0}
    nodes = [
        {"id": "s", "op": "stream", "topic": "in"},
        {"id": "g", "op": "group_by_key", "in": "s"},
        {"id": "a", "op": "aggregate", "in": "g", "fn": "count", "window": window},
        {"op": "sink", "in": "a", "name": "out"},
    ]
    rows = [{"k": "a", "w": [0, size_ms], "v": 1, "ts": 3}, {"k": "a", "w": [size_ms, 2 * size_ms], "v": 1, "ts": 15}]
    expected = [{"after": 2, "sink": "out", "match": "sequence", "records": rows}]
    return case([put(3), put(15)], topology={"nodes": nodes}, expected=expected)


def test_the_shift_is_a_common_multiple_of_all_that_is_aligned() -> None:
    nodes = {"nodes": [{"window": {"size_ms": 14, "advance_ms": 7}}, {"window": {"size_ms": 10}}]}
    shift_ms = shift_towards(case([put(5)], topology=nodes), NOW_MS)
    assert shift_ms % 70 == 0
    assert 0 <= NOW_MS - 5 - shift_ms < 70


def test_every_time_moves_and_processing_time_does_not() -> None:
    entries = [
        put(5, w=[0, 10]),
        put(None, w=[0, None]),
        {"event": "watermark", "ts": 7},
        {"event": "watermark", "ts": "max"},
        {"event": "processing_time", "ts": 9},
        {"elements": [[1, "x"]]},
        {"watermark": 3},
        {"watermark": "max"},
    ]
    made = shifted(case(entries, topology={"window": {"type": "unlimited"}}), 100)
    assert made.input == [
        put(105, w=[100, 110]),
        put(None, w=[100, None]),
        {"event": "watermark", "ts": 107},
        {"event": "watermark", "ts": "max"},
        {"event": "processing_time", "ts": 9},
        {"elements": [[101, "x"]]},
        {"watermark": 103},
        {"watermark": "max"},
    ]
    assert made.data["topology"]["window"]["start_ms"] == 100
    assert entries[0]["ts"] == 5


def test_cases_about_the_beginning_of_time_stay_there() -> None:
    def hopping(ts: int) -> Case:
        window = {"type": "hopping", "size_ms": 10, "advance_ms": 4}
        return case([put(ts)], topology={"nodes": [{"window": window}]})

    assert shift_towards(hopping(5), NOW_MS) == 0
    assert shift_towards(hopping(6), NOW_MS) > 0
    sliding = {"nodes": [{"window": {"type": "sliding", "diff_ms": 10}}]}
    assert shift_towards(case([put(9)], topology=sliding), NOW_MS) == 0
    assert shift_towards(case([put(10)], topology=sliding), NOW_MS) > 0


def test_the_end_of_time_is_not_moved_back() -> None:
    scenario = scenario_of(tumbling(10), Setting("here.", NOW_MS))
    assert scenario.row("out", Record(Windowed("a", 0, END_OF_TIME_MS), 1, END_OF_TIME_MS)) == {
        "k": "a",
        "w": [0, END_OF_TIME_MS],
        "v": 1,
        "ts": END_OF_TIME_MS,
    }


class Later(DriverPlayer):
    """The test driver at another time."""

    def setting(self, case: Case) -> Setting:
        return Setting("here.", NOW_MS)


def test_a_case_passes_at_another_time_and_its_rows_come_back_unmoved() -> None:
    moved = tumbling(10)
    assert judge(moved, Later(1)) == []
    scenario = scenario_of(moved, Setting("here.", NOW_MS))
    assert scenario.steps[0].index == 0 and scenario.shift_ms > NOW_MS - 100
    rows: list[Row] = [row for _, row in Later(1)(scenario).outputs["out"]]
    assert [row["ts"] for row in rows] == [3, 15]
    assert dataflow.scenario(moved, Setting("here.")).inputs == ("here.in",)
