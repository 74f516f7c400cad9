"""The checks of dataflow and windowed-stream cases: ``after n`` entries of the input, what a sink or store holds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tests.conformance.compare import Row, match, shown, table_of
from tests.conformance.scenario import Played

Check = dict[str, Any]
TABLE = "table:"
SINK = "out."
"""Before a sink's name in its topic: cases may call a sink as an input."""


def stores_of(checks: Iterable[Check]) -> frozenset[tuple[int, str]]:
    """The stores that checks look at, and when."""
    return frozenset(
        (c["after"], c["sink"].removeprefix(TABLE)) for c in checks if str(c.get("sink", "")).startswith(TABLE)
    )


def counts_of(checks: Iterable[Check]) -> frozenset[int]:
    """When checks look at counters."""
    return frozenset(c["after"] for c in checks if "metric" in c)


def splits_of(checks: Sequence[Check]) -> frozenset[int]:
    """Where batches must end for the checks' sake: a case that is to fail is looked at step by step."""
    return frozenset(c["after"] for c in checks) if any("error" in c for c in checks) else frozenset()


def judge(checks: Sequence[Check], played: Played) -> list[str]:
    """What is wrong, as lines; none when every check holds. A check compares what its sink was given since the check of
    that sink before it."""
    wrong: list[str] = []
    read: dict[str, int] = {}
    fails_by = min((c["after"] for c in checks if "error" in c), default=None)
    if played.error is not None and fails_by is None:
        if played.error[0] == 0:
            return [played.error[1]]
        wrong.append(f"failed at entry {played.error[0]}: {played.error[1]}")
    for check in checks:
        if "error" in check:
            if played.error is None or played.error[0] > check["after"]:
                wrong.append(f"after {check['after']}: expected to fail ({check['error']}), did not")
        elif "metric" in check:
            found = played.dropped.get(check["after"])
            if found != check["value"]:
                wrong.append(f"after {check['after']}: {check['metric']}: expected {check['value']}, found {found}")
        else:
            wrong += _judge_one(check, played, read)
    return wrong


def _judge_one(check: Check, played: Played, read: dict[str, int]) -> list[str]:
    sink, after = check["sink"], check["after"]
    expected: list[Row] = check["records"]
    if sink.startswith(TABLE):
        rows = played.stores.get((after, sink.removeprefix(TABLE)))
        if rows is None:
            return [f"after {after}, {sink}: the store was not read"]
        if check["match"] == "table":
            expected = [e for e in expected if e.get("v", ...) is not None]
        return _report(check, expected, rows)
    have = played.until(sink, after)
    start = 0 if check.get("since") == "start" else read.get(sink, 0)
    rows = have[start:]
    read[sink] = len(have)
    if check["match"] == "queue_prefix":
        rows = rows[: len(expected)]
        read[sink] = start + len(rows)
    return _report(check, expected, rows)


def _report(check: Check, expected: list[Row], actual: list[Row]) -> list[str]:
    problem = match(check["match"], expected, actual, ignore_window=bool(check.get("ignore_window")))
    if problem is None:
        return []
    return [
        f"after {check['after']}, {check['sink']} ({check['match']}): {problem}",
        *(f"    expected {shown(e)}" for e in expected or [{"v": "nothing"}]),
        *(f"    actual   {shown(a)}" for a in actual or [{"v": "nothing"}]),
    ]


def judge_final(expected: list[Row] | dict[str, list[Row]], played: Played) -> list[str]:
    """``expected_final``: the rows that are left at the end, of the only sink or of several by name."""
    if played.error is not None:
        return [f"failed at entry {played.error[0]}: {played.error[1]}"]
    by_sink = expected if isinstance(expected, dict) else dict.fromkeys(played.outputs, expected)
    wrong: list[str] = []
    for sink, rows in by_sink.items():
        left = table_of([row for _, row in played.outputs.get(sink, [])])
        wrong += _report({"after": "the end", "sink": sink, "match": "table"}, rows, left)
    return wrong
