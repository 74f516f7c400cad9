"""A key's partial matches as a tuple that also knows how many are in each state, and when the first one ends.

Both are computed on first use, and carried over to tuples with partial matches appended or removed at the beginning, so
that an event that leaves the others unchanged does not look at them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import pairwise

from penstock.topologies.patterns.state import Partial

EndsAt = Callable[[Partial], float]
NEVER = float("inf")


class PartialMatches(tuple[Partial, ...]):
    """See the module. Ordered by creation of the partial matches."""

    _states: Counter[int] | None = None
    _first_end: float | None = None
    _ascending = False
    """Whether they are known to end in their order."""

    @staticmethod
    def of(partials: Iterable[Partial]) -> PartialMatches:
        """The partial matches of a state, as they are or as a plain tuple."""
        return partials if isinstance(partials, PartialMatches) else PartialMatches(partials)

    @property
    def states(self) -> Counter[int]:
        """The number in each state that has any; do not change it."""
        if self._states is None:
            self._states = Counter(partial.state for partial in self)
        return self._states

    def first_end(self, ends_at: EndsAt) -> float:
        """When the first one ends."""
        if self._first_end is None:
            ends = list(map(ends_at, self))
            self._ascending = all(a <= b for a, b in pairwise(ends))
            self._first_end = min(ends, default=NEVER)
        return self._first_end

    def with_more(self, more: list[Partial], ends_at: EndsAt) -> PartialMatches:
        """Append others."""
        first_end = self.first_end(ends_at)
        made = PartialMatches(self + tuple(more))
        made._states = self.states + Counter(partial.state for partial in more)
        ends = list(map(ends_at, more))
        last_end = ends_at(self[-1]) if self else -NEVER
        made._ascending = self._ascending and all(a <= b for a, b in zip([last_end, *ends], ends, strict=False))
        made._first_end = min(first_end, *ends)
        return made

    def ended(self, now_ms: int, ends_at: EndsAt) -> int | None:
        """How many at the beginning have ended, if no other has; ``None``: they may be anywhere."""
        if self.first_end(ends_at) > now_ms:
            return 0
        if not self._ascending:
            return None
        count = 0
        while count < len(self) and ends_at(self[count]) <= now_ms:
            count += 1
        return count

    def without_first(self, count: int, ends_at: EndsAt) -> PartialMatches:
        """Remove the first ``count``; they must end in their order."""
        made = PartialMatches(self[count:])
        made._states = self.states - Counter(partial.state for partial in self[:count])
        made._ascending = True
        made._first_end = ends_at(made[0]) if made else NEVER
        return made
