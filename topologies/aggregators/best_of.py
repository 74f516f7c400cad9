"""The best of the values of a key, as ``top_k`` keeps them: encoded, best first, equal ranks by their bytes."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any

from penstock.state.serdes.serde import Serde

_KEPT = 4_096
"""How many values, and how many results, are remembered; then all are forgotten at once."""
_COMPARABLE = frozenset({int, float, str, bytes})
_Rank = tuple[bool, Any]
_FIRST: Callable[[Any], Any] = itemgetter(0)


class BestOf:
    """The ``k`` values with the largest (or smallest) rank. What was worked out is remembered, so that one value more costs
    a few comparisons, and a kept value is decoded once."""

    def __init__(self, k: int, rank: Callable[[Any], Any], serde: Serde[Any], *, largest: bool) -> None:
        self._k = k
        self._rank = rank
        self._serde = serde
        self._largest = largest
        self._known: dict[bytes, tuple[_Rank, Any]] = {}
        """Rank and value, by the value's bytes."""
        self._ranks: dict[tuple[bytes, ...], list[_Rank]] = {}
        """The ranks of results, which are in order, for those whose ranks have one order without doubt."""

    def of(self, values: tuple[bytes, ...]) -> tuple[bytes, ...]:
        """The best of these values: the reference."""
        ranked = [(self._ranked(v)[0], v) for v in sorted(values)]
        ranked.sort(key=_FIRST, reverse=self._largest)  # stable in both directions
        found = tuple([v for _, v in ranked[: self._k]])
        ranks = [r for r, _ in ranked[: self._k]]
        if all(map(_comparable, ranks)):
            self._remember(found, ranks)
        return found

    def with_one(self, best: tuple[bytes, ...], value: Any) -> tuple[bytes, ...]:
        """The best of a result and one value more."""
        data = self._serde.serialize(value)
        ranks = self._ranks.get(best)
        own = _ordered(self._rank(value)) if type(value) is self._serde.exact else self._ranked(data)[0]
        if ranks is None or not _comparable(own):
            return self.of((*best, data))
        at = len(best)
        if self._largest:
            while at and (ranks[at - 1] < own or (best[at - 1] > data and not own < ranks[at - 1])):
                at -= 1
        else:
            while at and (own < ranks[at - 1] or (best[at - 1] > data and not ranks[at - 1] < own)):
                at -= 1
        if at == self._k:
            return best
        most = self._k - 1
        found = (*best[:at], data, *best[at:most])
        self._ranks.pop(best, None)
        self._remember(found, [*ranks[:at], own, *ranks[at:most]])
        return found

    def decoded(self, best: tuple[bytes, ...]) -> list[Any]:
        """The values."""
        if not self._serde.immutable:
            return [self._serde.deserialize(v) for v in best]
        known = self._known
        try:
            return [known[v][1] for v in best]
        except KeyError:
            return [self._ranked(v)[1] for v in best]

    def _ranked(self, data: bytes) -> tuple[_Rank, Any]:
        found = self._known.get(data)
        if found is None:
            value = self._serde.deserialize(data)
            if len(self._known) >= _KEPT:
                self._known.clear()
            found = self._known[data] = _ordered(self._rank(value)), value
        return found

    def _remember(self, best: tuple[bytes, ...], ranks: list[_Rank]) -> None:
        if len(self._ranks) >= _KEPT:
            self._ranks.clear()
        self._ranks[best] = ranks


def _ordered(rank: Any) -> _Rank:
    """A sortable form of the rank, which includes NaN."""
    return (True, 0) if rank != rank else (False, rank)


def _comparable(rank: _Rank) -> bool:
    """Whether a rank is below, above or equal to any that can be compared with it."""
    of = rank[1]
    if type(of) is tuple:
        return all(type(part) in _COMPARABLE and part == part for part in of)
    return type(of) in _COMPARABLE
