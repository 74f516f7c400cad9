"""An immutable collection of values with their counts: adding a value returns a new collection.

Old accumulators must stay unchanged, and copying a large collection for each record would cost too much. So a collection
and those that it was made from share one dictionary. It belongs to the newest of them; each older one knows the next, and
what that changed. Changing the newest costs the same for any size; using an older one makes a copy, once.

Equality, hash, length and bytes do not depend on the order of arrival.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import add

CountedValue = tuple[bytes, int]
_FEW = 64
_PAIR_BYTES = 115
"""A short value, its count, and their place in a dictionary."""


class Bag:
    """Pairs ``(value, count)`` in the order of the values' bytes; ``len`` counts the values."""

    __slots__ = ("_changes", "_counts", "_length", "_newer")

    def __init__(self, pairs: Iterable[CountedValue] = ()) -> None:
        """Build a bag of pairs, each value once, with counts of at least 1."""
        self._counts: dict[bytes, int] | None = dict(pairs)
        """``None``: it belongs to a newer one."""
        self._length = len(self._counts)
        self._newer: Bag | None = None
        self._changes: Sequence[CountedValue] = ()
        """Values whose counts were changed one after the other to make the newer one, and their counts before that."""

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[CountedValue]:
        return iter(self.pairs())

    def pairs(self) -> list[CountedValue]:
        """The pairs in their order."""
        counts = self._counts
        if counts is None:
            counts = self._own()
        if self._length < _FEW:
            return sorted(counts.items())
        # in this order, so that only what comes from now on must be sorted the next time
        self._counts = counts = {value: counts[value] for value in sorted(counts)}
        return list(counts.items())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Bag):
            return NotImplemented
        return self._length == other._length and self._own() == other._own()

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __sizeof__(self) -> int:
        """The memory including the pairs, which only older ones share; the stores' caches need it."""
        return object.__sizeof__(self) + self._length * _PAIR_BYTES

    def __repr__(self) -> str:
        return f"Bag({list(self)!r})"

    def __reduce__(self) -> tuple[type[Bag], tuple[list[CountedValue]]]:
        return Bag, (list(self),)

    def moved(self, value: bytes, by: int) -> Bag:
        """A copy with one value's count changed by 1 or -1. Raises ``ValueError`` if there is none to remove."""
        counts = self._counts
        if counts is None or not self._length:  # the empty one is shared by all that begin with it
            counts = dict(self._own())
        before = counts.get(value, 0)
        left = before + by
        if left < 0:
            raise ValueError(f"{value!r:.60} cannot be removed: the collection does not contain it")
        if left:
            counts[value] = left
        else:
            del counts[value]
        new = _made(counts, self._length + (not before) - (not left))
        if counts is self._counts:
            self._counts, self._newer, self._changes = None, new, ((value, before),)
        return new

    def added(self, values: Sequence[bytes], times: Sequence[int]) -> Bag:
        """A copy with these values added, all distinct, each as often as ``times`` says."""
        counts = self._counts
        if counts is None or not self._length:
            counts = dict(self._own())
        get = counts.get
        before = [get(value, 0) for value in values]
        counts.update(zip(values, map(add, before, times), strict=True))
        new = _made(counts, len(counts))
        if counts is self._counts:
            self._counts, self._newer, self._changes = None, new, list(zip(values, before, strict=True))
        return new

    def combined(self, other: Bag, sign: int) -> Bag:
        """A copy with all of another one added (``sign`` 1) or removed (-1). Raises ``ValueError`` if they are not
        there."""
        counts = dict(self._own())
        for value, count in other._own().items():
            left = counts.get(value, 0) + sign * count
            if left < 0:
                raise ValueError("values cannot be removed: the collection does not contain them")
            if left:
                counts[value] = left
            else:
                del counts[value]
        return _made(counts, len(counts))

    def _own(self) -> dict[bytes, int]:
        """Its counts, in a dictionary that belongs to it from now on."""
        if self._counts is None:
            older = self
            steps: list[Sequence[CountedValue]] = []
            while older._counts is None:
                assert older._newer is not None
                steps.append(older._changes)
                older = older._newer
            counts = dict(older._counts)
            for changes in reversed(steps):
                for value, count in reversed(changes):
                    if count:
                        counts[value] = count
                    else:
                        del counts[value]
            self._counts, self._newer, self._changes = counts, None, ()
        return self._counts


def _made(counts: dict[bytes, int], length: int) -> Bag:
    found = Bag.__new__(Bag)
    found._counts, found._length, found._newer, found._changes = counts, length, None, ()
    return found


EMPTY = Bag()
"""Bags never change, so that one empty one is enough."""
