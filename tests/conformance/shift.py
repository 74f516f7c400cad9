"""Cases at another time. Brokers judge by a record's own time how long they keep it, so that a case which happens in 1970
would be deleted under the hands of the application that runs it.

Cases about the beginning of time stay there: hopping and sliding windows have none that start before 1970, and a later
time would give the first records more windows. They are short enough not to meet the broker's next round of deletions.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from math import lcm
from typing import Any

from tests.conformance.case_format import Case

_ALIGNED = ("size_ms", "advance_ms", "size", "advance", "interval_ms", "interval")
"""Names of durations at whose multiples something begins."""


def shift_towards(case: Case, around_ms: int) -> int:
    """How far the case may be moved so that it comes to lie shortly before ``around_ms`` and windows fall as before."""
    if _at_the_beginning(case):
        return 0
    period = lcm(*_periods(case.data)) or 1
    latest = max((ts for entry in case.input for ts in _times(entry)), default=0)
    return max(around_ms - latest, 0) // period * period


def _at_the_beginning(case: Case) -> bool:
    """Whether a record lies where windows before 1970 are left out."""
    if case.kind != "dataflow":
        return False
    earliest = min((ts for entry in case.input for ts in _times(entry)), default=0)
    return any(earliest < reach for reach in _reaches(case.data["topology"]))


def _reaches(node: Any) -> Iterator[int]:
    """How far before a record its windows may start."""
    if isinstance(node, dict):
        if node.get("type") == "hopping":
            yield node["size_ms"] - node["advance_ms"]
        elif node.get("type") == "sliding":
            yield node["diff_ms"]
        for value in node.values():
            yield from _reaches(value)
    elif isinstance(node, list):
        for item in node:
            yield from _reaches(item)


def shifted(case: Case, shift_ms: int) -> Case:
    """The case with its input's times moved; what it expects stays as it is."""
    data = copy.deepcopy(case.data)
    for entry in data["input"]:
        for name in ("ts", "watermark"):
            if isinstance(entry.get(name), int) and entry.get("event") != "processing_time":
                entry[name] += shift_ms
        if "w" in entry:
            entry["w"] = [None if t is None else t + shift_ms for t in entry["w"]]
        for element in entry.get("elements", []):
            element[0] += shift_ms
    for window in _unlimited(data.get("topology")):
        window["start_ms"] = window.get("start_ms", 0) + shift_ms
    return dataclasses.replace(case, data=data)


def _times(entry: dict[str, Any]) -> Iterator[int]:
    if entry.get("event") != "processing_time":
        yield from (entry[n] for n in ("ts", "watermark") if isinstance(entry.get(n), int))
        yield from (element[0] for element in entry.get("elements", []))


def _periods(node: Any) -> Iterator[int]:
    if isinstance(node, dict):
        for name, value in node.items():
            if name in _ALIGNED and isinstance(value, int) and value > 0:
                yield value
            elif name != "input":
                yield from _periods(value)
    elif isinstance(node, list):
        for item in node:
            yield from _periods(item)


def _unlimited(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        if node.get("type") == "unlimited":
            yield node
        for value in node.values():
            yield from _unlimited(value)
    elif isinstance(node, list):
        for item in node:
            yield from _unlimited(item)
