"""A key's partial matches as a tuple that knows what it holds: how many are in each state, and when the first one ends.

Both are made when first asked for, and carried over to the tuple with some more at its end or without some at its
beginning, so that an event which leaves the others as they are does not look at them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from penstock.topologies.patterns.state import Partial

EndsAt = Callable[[Partial], float]
NEVER = float("inf")


class Partials(tuple[Partial, ...]):
    """See the module. The order is that in which the partial matches came to be."""

    _states: Counter[int] | None = None
    _first_end: float | None = None
    _ascending = False
    """Whether it is known that none ends before one that stands before it."""

    @staticmethod
    def of(partials: Iterable[Partial]) -> Partials:
        """Those of a state, as they are or as a plain tuple."""
        return partials if isinstance(partials, Partials) else Partials(partials)

    @property
    def states(self) -> Counter[int]:
        """How many are in each state that holds any; not to be changed."""
        if self._states is None:
            self._states = Counter(partial.state for partial in self)
        return self._states

    def first_end(self, ends_at: EndsAt) -> float:
        """When the first of them ends."""
        if self._first_end is None:
            ends = list(map(ends_at, self))
            self._ascending = all(a <= b for a, b in zip(ends, ends[1:], strict=False))
            self._first_end = min(ends, default=NEVER)
        return self._first_end

    def with_more(self, more: list[Partial], ends_at: EndsAt) -> Partials:
        """With others at the end."""
        first_end = self.first_end(ends_at)
        made = Partials(self + tuple(more))
        made._states = self.states + Counter(partial.state for partial in more)
        ends = list(map(ends_at, more))
        last_end = ends_at(self[-1]) if self else -NEVER
        made._ascending = self._ascending and all(a <= b for a, b in zip([last_end, *ends], ends, strict=False))
        made._first_end = min(first_end, *ends)
        return made

    def ended(self, now_ms: int, ends_at: EndsAt) -> int | None:
        """How many at the beginning have ended, where no other has; ``None``: they may lie anywhere."""
        if self.first_end(ends_at) > now_ms:
            return 0
        if not self._ascending:
            return None
        count = 0
        while count < len(self) and ends_at(self[count]) <= now_ms:
            count += 1
        return count

    def without_first(self, count: int, ends_at: EndsAt) -> Partials:
        """Without so many at the beginning, where none ends before one that stands before it."""
        made = Partials(self[count:])
        made._states = self.states - Counter(partial.state for partial in self[:count])
        made._ascending = True
        made._first_end = ends_at(made[0]) if made else NEVER
        return made
