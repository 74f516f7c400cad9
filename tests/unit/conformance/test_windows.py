"""Kinds that speak of windows without records, and batch grouping."""

from __future__ import annotations

from typing import Any

from tests.conformance.case_format import Case
from tests.conformance.drive import DriverPlayer
from tests.conformance.suite import judge

PLAY = DriverPlayer(1)


def case(kind: str, entries: list[dict[str, Any]], expected: list[Any], **data: Any) -> Case:
    return Case("c", "g", kind, "portable", {"input": entries, "expected": expected, **data})


def test_windows_of_a_timestamp_are_a_set() -> None:
    hopping = {"type": "hopping", "size": 4, "advance": 2}
    kept = [{"ts": 1, "windows": [[0, 4], [-2, 2]]}]
    assert judge(case("assign_windows", [{"ts": 1}], kept, window=hopping), PLAY) == []
    assert judge(case("assign_windows", [{"ts": 1}], [{"ts": 1, "windows": [[0, 4]]}], window=hopping), PLAY)
    kafka = {"repo": "apache/kafka"}
    none = [{"ts": 1, "windows": [[0, 4]]}]
    assert judge(case("assign_windows", [{"ts": 1}], none, window=hopping, source=kafka), PLAY) == []


def test_sessions_that_touch_merge_only_where_they_are_to() -> None:
    entries = [{"ts": 0}, {"ts": 10}]
    assert judge(case("merge_sessions", entries, [[0, 10], [10, 20]], gap=10, touching_merges=False), PLAY) == []
    assert judge(case("merge_sessions", entries, [[0, 20]], gap=10, touching_merges=True), PLAY) == []
    assert judge(case("merge_sessions", entries, [[0, 20]], gap=10, touching_merges=False), PLAY)


def test_merged_windows_have_members_and_single_ones_are_left_out() -> None:
    entries = [{"window": [0, 2]}, {"window": [1, 3]}, {"window": [9, 10]}]
    merged = [{"window": [0, 3], "members": [[1, 3], [0, 2]]}]
    assert judge(case("merge_windows", entries, merged), PLAY) == []
    assert judge(case("merge_windows", entries, [*merged, {"window": [9, 10], "members": [[9, 10]]}]), PLAY)


def test_hashes_are_compared_by_the_names_that_a_case_gives() -> None:
    entries = [{"utf8": "abc"}, {"hex": "616263"}]
    right = [{"signed_int32": 479470107}, {"positive_int32": 479470107}]
    assert judge(case("murmur2", entries, right), PLAY) == []
    assert judge(case("partition", entries, [{"partition": 479470107 % 7}] * 2, partitions=7), PLAY) == []
    assert judge(case("murmur2", entries, [{"signed_int32": 1}, {"unsigned_int32": 2}]), PLAY) == [
        "b'abc': signed_int32: expected 1, actual 479470107",
        "b'abc': unsigned_int32: expected 2, actual 479470107",
    ]


def test_windows_of_every_kind_have_names_with_or_without_a_unit() -> None:
    for window, expected in [
        ({"type": "tumbling", "size_ms": 5, "offset_ms": 2}, [[2, 7]]),
        ({"type": "session", "gap": 5}, [[3, 8]]),
        ({"type": "global"}, [[0, None]]),
        ({"type": "unlimited", "start": 2}, [[2, None]]),
    ]:
        assert judge(case("assign_windows", [{"ts": 3}], [{"ts": 3, "windows": expected}], window=window), PLAY) == []
    assert "has no size" in judge(case("assign_windows", [{"ts": 3}], [{}], window={"type": "tumbling"}), PLAY)[0]
