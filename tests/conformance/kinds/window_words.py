"""Kinds ``assign_windows``, ``merge_sessions`` and ``merge_windows``: windows as values, without records."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from penstock.topologies.windows import END_OF_TIME_MS, Bounds, merge_overlapping, session
from tests.conformance.case_format import Case
from tests.conformance.compare import assignable, plain
from tests.conformance.windows import plain_window


def judge(case: Case) -> list[str]:
    """What is wrong, as lines."""
    return _KINDS[case.kind](case)


def _assign(case: Case) -> list[str]:
    windows = plain_window(case.data["window"], before_epoch=case.keeps_windows_before_epoch)
    wrong = []
    for entry, expected in zip(case.input, case.expectations(), strict=True):
        found = _shown(windows.windows_of(entry.get("k"), entry.get("v"), entry["ts"]))
        wrong += _compare(f"windows of {entry['ts']}", expected["windows"], found)
    return wrong


def _merge_sessions(case: Case) -> list[str]:
    sessions = session(case.data["gap"], grace=0, bounds="gap", touching=bool(case.data.get("touching_merges")))
    windows = [window for entry in case.input for window in sessions.assign(entry["ts"])]
    return _compare("sessions", case.expectations(), _shown(window for window, _ in sessions.merge(windows)))


def _merge_windows(case: Case) -> list[str]:
    """Those of more than one input, with their members."""
    windows = [(start, end) for start, end in (entry["window"] for entry in case.input)]
    merged = merge_overlapping(windows, touching=bool(case.data.get("touching_merges")))
    found = [{"window": list(w), "members": sorted(map(list, m))} for w, m in merged if len(m) > 1]
    expected = [{**e, "members": sorted(e["members"])} for e in case.expectations()]
    return _compare("merged windows", expected, found)


def _shown(windows: Iterable[Bounds]) -> list[list[int | None]]:
    """Windows as cases write them: one without end has null there."""
    return [[start, None if end == END_OF_TIME_MS else end] for start, end in windows]


def _compare(what: str, expected: list[Any], found: list[Any]) -> list[str]:
    same = len(expected) == len(found) and assignable(expected, found, lambda e, f: bool(plain(e) == plain(f)))
    return [] if same else [f"{what}:", f"    expected {expected}", f"    actual   {found}"]


_KINDS: dict[str, Callable[[Case], list[str]]] = {
    "assign_windows": _assign,
    "merge_sessions": _merge_sessions,
    "merge_windows": _merge_windows,
}
