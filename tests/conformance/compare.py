"""Checks: what a sink or a store held, against what a case expects. Pure.

Records are dictionaries with ``k``, ``w`` (window as ``[start, end]``; absent without one), ``v`` and ``ts``. Fields that
an expected record lacks are not compared. Every function returns ``None`` when the check holds, or what is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from tests.conformance.case_format import CaseError

Row = dict[str, Any]
FIELDS = ("k", "w", "v", "ts")


def plain(value: Any) -> Any:
    """A value as JSON has it, so that a tuple equals the list that a case can write."""
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    return value


def agrees(expected: Row, actual: Row, ignored: Sequence[str] = ()) -> bool:
    """Whether the fields that ``expected`` has are equal."""
    return all(
        plain(expected[f]) == plain(actual.get(f)) for f in FIELDS if f in expected and f not in ignored
    )  # 1 == 1.0, as JSON does not tell them apart


def sequence(expected: list[Row], actual: list[Row], ignored: Sequence[str] = ()) -> str | None:
    """The same records in the same order."""
    if len(expected) != len(actual):
        return f"{len(expected)} records expected, {len(actual)} found"
    for i, (e, a) in enumerate(zip(expected, actual, strict=True)):
        if not agrees(e, a, ignored):
            return f"record {i} differs"
    return None


def bag(expected: list[Row], actual: list[Row], ignored: Sequence[str] = ()) -> str | None:
    """The same records, as often, in any order."""
    if len(expected) != len(actual):
        return f"{len(expected)} records expected, {len(actual)} found"
    if not assignable(expected, actual, lambda e, a: agrees(e, a, ignored)):
        return "the records differ"
    return None


def assignable(expected: Sequence[Any], actual: Sequence[Any], fits: Callable[[Any, Any], bool]) -> bool:
    """Whether each expected item can have an actual one of its own. Augmenting paths: items may fit several."""
    taken: dict[int, int] = {}

    def place(e: int, tried: set[int]) -> bool:
        for a, found in enumerate(actual):
            if a in tried or not fits(expected[e], found):
                continue
            tried.add(a)
            if a not in taken or place(taken[a], tried):
                taken[a] = e
                return True
        return False

    return all(place(e, set()) for e in range(len(expected)))


def distinct(expected: list[Row], actual: list[Row], ignored: Sequence[str] = ()) -> str | None:
    """The same set of different records."""
    for e in expected:
        if not any(agrees(e, a, ignored) for a in actual):
            return f"not found: {shown(e)}"
    for a in actual:
        if not any(agrees(e, a, ignored) for e in expected):
            return f"not expected: {shown(a)}"
    return None


def grouped_sequence(expected: list[Row], actual: list[Row], ignored: Sequence[str] = ()) -> str | None:
    """The same sequence per key and window."""
    by_window = any("w" in e for e in expected) and "w" not in ignored
    theirs, ours = _grouped(expected, by_window), _grouped(actual, by_window)
    for key in {**theirs, **ours}:
        wrong = sequence(theirs.get(key, []), ours.get(key, []), ignored)
        if wrong:
            return f"{key}: {wrong}"
    return None


def last(expected: list[Row], actual: list[Row], ignored: Sequence[str] = (), *, by_window: bool) -> str | None:
    """The last record per key (and window), exactly these."""
    ours = {key: rows[-1] for key, rows in _grouped(actual, by_window).items()}
    return bag(expected, list(ours.values()), ignored)


def last_contains(expected: list[Row], actual: list[Row], ignored: Sequence[str] = ()) -> str | None:
    """The last record of each of these keys (and windows); ``absent``: there is none."""
    for e in expected:
        by_window = "w" in e and "w" not in ignored
        rows = _grouped(actual, by_window).get(_group(e, by_window), [])
        if e.get("absent"):
            if rows:
                return f"never to be emitted: {shown(rows[-1])}"
        elif not rows or not agrees(e, rows[-1], ignored):
            return f"expected last {shown(e)}, found {shown(rows[-1]) if rows else 'none'}"
    return None


def table_from_changelog(expected: list[Row], actual: list[Row], ignored: Sequence[str] = ()) -> str | None:
    """The rows that are left when the records are applied as updates."""
    return bag(expected, table_of(actual), ignored)


def table_of(changes: list[Row]) -> list[Row]:
    """The rows that are left when the changes are applied: a null value deletes."""
    rows: dict[str, Row] = {}
    for change in changes:
        key = _group(change, True)
        rows.pop(key, None)
        if change["v"] is not None:
            rows[key] = change
    return list(rows.values())


def table_contains(expected: list[Row], actual: list[Row], ignored: Sequence[str] = ()) -> str | None:
    """These rows at least; a null value: no such row."""
    for e in expected:
        by_window = "w" in e and "w" not in ignored
        rows = _grouped(actual, by_window).get(_group(e, by_window), [])
        if e.get("v", ...) is None:
            if rows:
                return f"no row expected, found {shown(rows[-1])}"
        elif not any(agrees(e, a, ignored) for a in rows):
            return f"expected {shown(e)}, found {', '.join(map(shown, rows)) or 'none'}"
    return None


def _group(row: Row, by_window: bool) -> str:
    key = json.dumps(plain(row.get("k")), sort_keys=True)
    return f"{key} {json.dumps(plain(row.get('w')))}" if by_window else key


def _grouped(rows: list[Row], by_window: bool) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(_group(row, by_window), []).append(row)
    return groups


def _last_per_key(expected: list[Row], actual: list[Row], ignored: Sequence[str] = ()) -> str | None:
    return last(expected, actual, ignored, by_window=False)


def _last_per_window(expected: list[Row], actual: list[Row], ignored: Sequence[str] = ()) -> str | None:
    return last(expected, actual, ignored, by_window=True)


Match = Callable[[list[Row], list[Row], Sequence[str]], str | None]
MATCHES: dict[str, tuple[Match, tuple[str, ...]]] = {
    "sequence": (sequence, ()),
    "sequence_no_ts": (sequence, ("ts",)),
    "queue_prefix": (sequence, ()),
    "grouped_sequence": (grouped_sequence, ()),
    "bag": (bag, ()),
    "bag_values": (bag, ("ts",)),
    "set": (distinct, ()),
    "last_per_key": (_last_per_key, ()),
    "last_per_window": (_last_per_window, ()),
    "last_contains": (last_contains, ()),
    "table_from_changelog": (table_from_changelog, ()),
    "table": (bag, ()),
    "table_contains": (table_contains, ()),
}
"""Function and fields that it leaves out, by the format's name."""


def match(name: str, expected: list[Row], actual: list[Row], *, ignore_window: bool = False) -> str | None:
    """Judge by one of ``MATCHES``. Raises ``CaseError`` for a name that the format does not have."""
    if name not in MATCHES:
        raise CaseError(f"match {name!r} is unknown; the format has {', '.join(MATCHES)}")
    check, ignored = MATCHES[name]
    return check(expected, actual, (*ignored, "w") if ignore_window else ignored)


def shown(row: Row) -> str:
    """A record on one line."""
    parts = [] if "k" not in row else [json.dumps(plain(row["k"]))]
    if row.get("w") is not None:
        parts.append("@" + json.dumps(plain(row["w"])).replace(" ", ""))
    if row.get("absent"):
        return " ".join([*parts, "absent"])
    if "v" in row:
        parts.append(json.dumps(plain(row["v"]), default=repr))
    if "ts" in row:
        parts.append(f"ts={row['ts']}")
    return " ".join(parts)
