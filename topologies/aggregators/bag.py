"""An immutable collection of values with their counts: adding a value returns a new collection.

Old accumulators must stay unchanged, and copying one large tuple for each record would cost too much. So the values
are kept in sorted runs of bounded length, and a change copies only one run and the list of runs.

How values are split into runs depends on the order of arrival; equality, hash, length and bytes do not.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import chain

CountedValue = tuple[bytes, int]
RUN_MAX = 256
"""The most pairs in a run; a longer one is split in two."""
_PAIR_BYTES = 150
"""A pair, its short value and its count, and the pair's place."""


class Bag:
    """Pairs ``(value, count)`` in the order of the values' bytes; ``len`` counts the values."""

    __slots__ = ("_heads", "_length", "_runs")

    def __init__(self, pairs: Iterable[CountedValue] = ()) -> None:
        """Build a bag of pairs that are sorted, each value once, with counts of at least 1."""
        rows = tuple(pairs)
        step = RUN_MAX // 2
        self._runs: tuple[tuple[CountedValue, ...], ...] = tuple(rows[i : i + step] for i in range(0, len(rows), step))
        self._heads = tuple([run[0][0] for run in self._runs])
        self._length = len(rows)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[CountedValue]:
        return chain.from_iterable(self._runs)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Bag):
            return NotImplemented
        return self._length == other._length and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __sizeof__(self) -> int:
        """The memory including the pairs, which no other object holds; the stores' caches need it."""
        return object.__sizeof__(self) + self._length * _PAIR_BYTES

    def __repr__(self) -> str:
        return f"Bag({list(self)!r})"

    def moved(self, value: bytes, by: int) -> Bag:
        """A copy with one value's count changed by 1 or -1. Raises ``ValueError`` if there is none to remove."""
        runs = self._runs
        place = max(bisect_right(self._heads, value) - 1, 0) if len(runs) > 1 else 0
        run = runs[place] if runs else ()
        at = bisect_left(run, (value,))
        there = at < len(run) and run[at][0] == value
        left = (run[at][1] if there else 0) + by
        if left < 0:
            raise ValueError(f"{value!r:.60} cannot be removed: the collection does not contain it")
        if there and left:  # the same values, in the same runs
            changed = (*run[:at], (value, left), *run[at + 1 :])
            return _made((*runs[:place], changed, *runs[place + 1 :]), self._heads, self._length)
        changed = run[:at] + (((value, left),) if left else ()) + run[at + there :]
        half = len(changed) // 2
        parts = (changed[:half], changed[half:]) if len(changed) > RUN_MAX else (changed,) if changed else ()
        heads = tuple([some[0][0] for some in parts])
        return _made(
            runs[:place] + parts + runs[place + 1 :],
            self._heads[:place] + heads + self._heads[place + 1 :],
            self._length + len(changed) - len(run),
        )

    def combined(self, other: Bag, sign: int) -> Bag:
        """A copy with all of another one added (``sign`` 1) or removed (-1). Raises ``ValueError`` if they are not
        there."""
        counts = dict(self)
        for value, count in other:
            counts[value] = counts.get(value, 0) + sign * count
        if any(c < 0 for c in counts.values()):
            raise ValueError("values cannot be removed: the collection does not contain them")
        return Bag(sorted((v, c) for v, c in counts.items() if c))


def _made(runs: tuple[tuple[CountedValue, ...], ...], heads: tuple[bytes, ...], length: int) -> Bag:
    found = Bag.__new__(Bag)
    found._runs, found._heads, found._length = runs, heads, length
    return found


EMPTY = Bag()
"""Bags never change, so that one empty one is enough."""
