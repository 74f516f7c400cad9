"""The best of the values of a key, as ``top_k`` keeps them: encoded, best first, equal ranks by their bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, final

from penstock.state.serdes.serde import Serde

_KEPT = 4_096
"""How many ranked values, and how many results, are remembered; then all are forgotten at once."""
_SHOWN = 16_384
"""How many values that were shown are remembered: a few commits' of many keys."""
_COMPARABLE = frozenset({int, float, str, bytes})
_ONE_ORDER: tuple[frozenset[type], ...] = (frozenset({int, float}), frozenset({str}), frozenset({bytes}))
_Rank = tuple[bool, Any]
Kinds = tuple[frozenset[type], ...]
_FIRST: Callable[[Any], Any] = itemgetter(0)


class BestOf:
    """The ``k`` values with the largest (or smallest) rank; with ``ties`` also every further one with the rank of the last
    of these. What was worked out is remembered, so that one value more costs a few comparisons, and a kept value is decoded
    once."""

    def __init__(
        self, k: int, rank: Callable[[Any], Any], serde: Serde[Any], *, largest: bool, ties: bool = False
    ) -> None:
        self.k = k
        self.ties = ties
        self._rank = rank
        self._serde = serde
        self.largest = largest
        self._known: dict[bytes, tuple[_Rank, Any]] = {}
        """Rank and value, by the value's bytes."""
        self._values: dict[bytes, Any] = {}
        """Values that were decoded to be shown, by their bytes."""
        self._ranks: dict[tuple[bytes, ...], list[_Rank]] = {}
        """The ranks of results, which are in order, for those whose ranks have one order without doubt."""

    def of(self, values: tuple[bytes, ...]) -> tuple[bytes, ...]:
        """The best of these values: the reference."""
        ranked = [(self._ranked(v)[0], v) for v in sorted(values)]
        ranked.sort(key=_FIRST, reverse=self.largest)  # stable in both directions
        end = _end([r for r, _ in ranked], self.k, ties=self.ties)
        found = tuple([v for _, v in ranked[:end]])
        ranks = [r for r, _ in ranked[:end]]
        if all(map(_comparable, ranks)):
            self._remember(found, ranks)
        return found

    def with_one(self, best: tuple[bytes, ...], value: Any, rank: Any) -> tuple[bytes, ...]:
        """The best of a result and one value more, of this rank."""
        data = self._serde.serialize(value)
        ranks = self._ranks.get(best)
        own = _ordered(rank) if type(value) is self._serde.exact else self._ranked(data)[0]
        if ranks is None or not _comparable(own):
            return self.of((*best, data))
        at = _place(ranks, best, own, data, largest=self.largest)
        if at == len(best) >= self.k and not (self.ties and own == ranks[-1]):
            return best
        if self._serde.immutable and type(value) is self._serde.exact:
            self._know(data, own, value)
        more = [*ranks[:at], own, *ranks[at:]]
        end = _end(more, self.k, ties=self.ties)
        found = (*best[:at], data, *best[at:])[:end]
        self._ranks.pop(best, None)
        self._remember(found, more[:end])
        return found

    def decoded(self, best: tuple[bytes, ...]) -> list[Any]:
        """The values."""
        if not self._serde.immutable:
            return [self._serde.deserialize(v) for v in best]
        known = self._known
        try:
            return [known[v][1] for v in best]
        except KeyError:
            return list(map(self._read, best))

    def _read(self, data: bytes) -> Any:
        """A value, whose rank may not be known."""
        found = self._known.get(data)
        if found is not None:
            return found[1]
        value = self._values.get(data)
        if value is None:
            if len(self._values) >= _SHOWN:
                self._values.clear()
            value = self._values[data] = self._serde.deserialize(data)
        return value

    def _ranked(self, data: bytes) -> tuple[_Rank, Any]:
        found = self._known.get(data)
        if found is None:
            value = self._serde.deserialize(data)
            found = self._know(data, _ordered(self._rank(value)), value)
        return found

    def _know(self, data: bytes, rank: _Rank, value: Any) -> tuple[_Rank, Any]:
        if len(self._known) >= _KEPT:
            self._known.clear()
        found = self._known[data] = rank, value
        return found

    # -- many values at once ---------------------------------------------------------------------------------------

    def ranking(self, best: tuple[bytes, ...], kinds: Kinds) -> Ranking | None:
        """A result to which values with ranks of these kinds (see ``kinds_of``) are added one after the other. ``None``:
        ``with_one`` takes them, as it does if the result was ranked otherwise. Raises what the serde or ``by`` raises."""
        found = [self._ranked(data) for data in best]
        ranks = [rank for rank, _ in found]
        if _end(ranks, self.k, ties=self.ties) < len(best) or not all(map(_comparable, ranks)):
            return None
        own = [rank for _, rank in ranks]
        if own and not comparable(kinds, kinds_of(own)):
            return None
        if best not in self._ranks and not self._in_order(best, own):
            return None
        values = [value for _, value in found]
        return Ranking(self.k, list(best), own, values, largest=self.largest, ties=self.ties)

    def _in_order(self, best: tuple[bytes, ...], ranks: list[Any]) -> bool:
        for i in range(1, len(best)):
            a, b = ranks[i - 1], ranks[i]
            if (a < b if self.largest else b < a) or (a == b and best[i - 1] > best[i]):
                return False
        return True

    def remember(self, ranking: Ranking) -> tuple[bytes, ...]:
        """The result of a ranking. What is known of it is kept."""
        best = tuple(ranking.data)
        ranks = [(False, rank) for rank in ranking.ranks]
        self._remember(best, ranks)
        for data, rank, value in zip(best, ranks, ranking.values, strict=True):
            if data not in self._known:
                self._know(data, rank, value)
        return best

    def _remember(self, best: tuple[bytes, ...], ranks: list[_Rank]) -> None:
        if len(self._ranks) >= _KEPT:
            self._ranks.clear()
        self._ranks[best] = ranks


class Ranking:
    """The best values so far: their bytes, ranks and the values themselves, best first. For ranks that can be compared with
    each other."""

    __slots__ = ("_k", "_largest", "_ties", "data", "ranks", "values")

    def __init__(
        self, k: int, data: list[bytes], ranks: list[Any], values: list[Any], *, largest: bool, ties: bool
    ) -> None:
        self._k = k
        self._largest = largest
        self._ties = ties
        self.data = data
        self.ranks = ranks
        self.values = values

    def may_enter(self, rank: Any) -> bool:
        """Whether a value of this rank can be among the best. Its bytes decide where ranks are equal."""
        if len(self.ranks) < self._k:
            return True
        worst = self.ranks[-1]
        return not (rank < worst if self._largest else worst < rank)

    def place(self, rank: Any, data: bytes) -> int | None:
        """Where a value that may enter belongs; ``None``: nowhere."""
        at = _place(self.ranks, self.data, rank, data, largest=self._largest)
        return None if at == self._k and not self._ties else at

    def put(self, at: int, rank: Any, data: bytes, value: Any) -> None:
        """Put a value at its place. The worst goes if there are too many."""
        columns: tuple[list[Any], ...] = (self.ranks, self.data, self.values)
        for column, one in zip(columns, (rank, data, value), strict=True):
            column.insert(at, one)
        end = _end(self.ranks, self._k, ties=self._ties)
        for column in columns:
            del column[end:]


def _end(ranks: Sequence[Any], k: int, *, ties: bool) -> int:
    """How many of the values with these ranks, best first, are among the best ``k``, with ``ties`` the last one's too."""
    end = min(k, len(ranks))
    while ties and end < len(ranks) and ranks[end] == ranks[k - 1]:
        end += 1
    return end


def _place(ranks: Sequence[Any], held: Sequence[bytes], rank: Any, data: bytes, *, largest: bool) -> int:
    """Where a value belongs among those that are held, best first."""
    at = len(held)
    if largest:
        while at and (ranks[at - 1] < rank or (held[at - 1] > data and not rank < ranks[at - 1])):
            at -= 1
    else:
        while at and (rank < ranks[at - 1] or (held[at - 1] > data and not ranks[at - 1] < rank)):
            at -= 1
    return at


@final
class _AboveAll:
    """The rank of NaN as a part of a rank."""

    def __lt__(self, other: object) -> bool:
        return False

    def __gt__(self, other: object) -> bool:
        return other is not self


_NAN = _AboveAll()


def rank_of_parts(parts: Sequence[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    """A rank of several parts, of which the first that differs decides; null if one of them is."""

    # called for every value: an expression's plain function, and loops, are several times as fast
    plain = [getattr(part, "plain", part) for part in parts]

    def rank(value: Any) -> Any:
        found, ranked = [], True
        for part in plain:  # all of them: any may raise
            one = part(value)
            ranked = ranked and one is not None
            found.append(one if one == one else _NAN)
        return tuple(found) if ranked else None

    return rank


def kinds_of(ranks: Sequence[Any]) -> Kinds:
    """The types of ranks, of which there are some: for ranks that are tuples, of each part."""
    if type(ranks[0]) is tuple:
        return tuple(frozenset(map(type, part)) for part in zip(*ranks, strict=True))
    return (frozenset(map(type, ranks)),)


def comparable(*kinds: Kinds) -> bool:
    """Whether ranks of these kinds have one order."""
    return len(set(map(len, kinds))) == 1 and all(
        any(frozenset().union(*part) <= one for one in _ONE_ORDER) for part in zip(*kinds, strict=True)
    )


def _ordered(rank: Any) -> _Rank:
    """A sortable form of the rank, which includes NaN."""
    return (True, 0) if rank != rank else (False, rank)


def _comparable(rank: _Rank) -> bool:
    """Whether a rank is below, above or equal to any that can be compared with it."""
    of = rank[1]
    if type(of) is tuple:
        return all(type(part) in _COMPARABLE and part == part for part in of)
    return type(of) in _COMPARABLE
