"""Shrinking: the fewest entries of an input for which something still holds, by delta debugging."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.differential.inputs import Entry

Holds = Callable[[Sequence[list[Entry]]], list[bool]]
"""Whether it holds, for each of several inputs: asking for many at once costs little more than for one."""


def shrunk(entries: list[Entry], holds: Holds) -> list[Entry]:
    """The input without what is not needed: no single entry can be left out."""
    size = max(len(entries) // 2, 1)
    while True:
        entries = _without_parts(entries, size, holds)
        if size == 1:
            return entries
        size = max(size // 2, 1)


def _without_parts(entries: list[Entry], size: int, holds: Holds) -> list[Entry]:
    """Leave out runs of this size for as long as one can be left out."""
    while len(entries) > 1:
        candidates = [entries[:at] + entries[at + size :] for at in range(0, len(entries), size)]
        answers = holds(candidates)
        found = next((c for c, yes in zip(candidates, answers, strict=True) if yes), None)
        if found is None:
            return entries
        entries = found
    return entries
