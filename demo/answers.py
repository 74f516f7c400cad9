"""Holding an output topic to the independent count."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import orjson

from demo.findings import Check
from demo.records import Answer
from penstock.streams.ports.chunk import Chunk


class Found(NamedTuple):
    """An output topic: the last value of each key, and each key's updates as the values said of themselves."""

    last: dict[str, Any]
    updates: dict[str, list[int]]
    records: int


def read_answer(chunks: Iterable[Chunk], updates_of: Callable[[Any], int]) -> Found:
    """Everything that the topic says. ``updates_of``: the number that a value gives to its own update."""
    last: dict[str, Any] = {}
    updates: dict[str, list[int]] = {}
    records = 0
    for chunk in chunks:
        records += len(chunk)
        for key, value in zip(chunk.keys, chunk.values, strict=True):
            name = (key or b"").decode()
            last[name] = None if value is None else orjson.loads(value)
            updates.setdefault(name, []).append(0 if value is None else updates_of(last[name]))
    return Found(last, updates, records)


def check_answer(title: str, when: str, expected: Answer, found: Found) -> list[Check]:
    """Two checks: the last values are those counted; and the updates of each key are 1, 2, 3 … each once and in order, so
    that every record is accounted for, none twice."""
    wrong = _differing(expected.last, found.last)
    total = sum(expected.updates.values())
    values = f"{len(expected.last):,} keys equal the count"
    if wrong:
        key = wrong[0]
        values = (
            f"{len(wrong):,} of {len(expected.last):,} keys differ, first {key}: "
            f"{expected.last.get(key)} counted, {found.last.get(key)} found"
        )
    counted = {key: list(range(1, count + 1)) for key, count in expected.updates.items()}
    uneven = _differing(counted, found.updates)
    accounted = f"{found.records:,} updates for {total:,} records, each once and in order"
    if uneven:
        key = uneven[0]
        accounted = (
            f"{found.records:,} updates for {total:,} records; {len(uneven):,} keys have lost, doubled or disordered ones, "
            f"first {key}: {_oddity(found.updates.get(key, []), expected.updates.get(key, 0))}"
        )
    return [
        Check(f"{title}: output equals the independent count {when}", not wrong, values),
        Check(f"{title}: every record accounted for {when}", not uneven, accounted),
    ]


def uncounted(expected: Answer, found: Found) -> int:
    """How many updates are missing, too many, or there more than once."""
    wrong = 0
    for key in expected.updates.keys() | found.updates.keys():
        seen = found.updates.get(key, [])
        distinct = set(seen)
        wrong += len(seen) - len(distinct) + len(distinct ^ set(range(1, expected.updates.get(key, 0) + 1)))
    return wrong


def _differing(expected: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    return sorted(key for key in expected.keys() | found.keys() if expected.get(key) != found.get(key))


def _oddity(updates: list[int], wanted: int) -> str:
    for place, update in enumerate(updates, 1):
        if place != update:
            return f"its update {place} says {update}"
    return f"{len(updates)} updates instead of {wanted}"
