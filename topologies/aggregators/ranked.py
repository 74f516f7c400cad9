"""Aggregates that keep values by rank: the one with the highest or the lowest, and the top k.

Values are kept as bytes, as in ``keeping``. Equal ranks are in the order of the values' bytes, so that the order of records
never matters; NaN ranks above all numbers. Values with a null rank are ignored.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from penstock.state.errors import TopologyError
from penstock.state.serdes.serde import Serde, SerdeLike, serde_of
from penstock.state.type_parameters import T, V
from penstock.topologies.aggregators.base import AggregateInput, Aggregator, expressions_of, getter, named
from penstock.topologies.aggregators.best_of import BestOf, rank_of_parts
from penstock.topologies.aggregators.encoding import RESULT_JSON, kept_serdes, packed
from penstock.topologies.aggregators.kept_records import KeptBest, KeptByRank
from penstock.topologies.expressions.row_function import ExpressionFunction

_BEST = dataclasses.replace(packed("values", tuple[bytes, ...]), exact=tuple)
"""For tuples of bytes and nothing else, which come back as they were."""
RankInput: TypeAlias = "AggregateInput[T] | tuple[AggregateInput[T], ...]"
"""The column that values are ranked by, or several, of which the first that differs decides."""


class _Rank(NamedTuple):
    """``of``: the rank of a value. ``serde``: of whole values, if it is known; ``read``: the parts, if they are
    expressions."""

    of: Callable[[Any], Any]
    serde: Serde[Any] | None
    read: tuple[ExpressionFunction, ...] | None


def _ranked(name: str, by: Any, serde: Serde[Any] | None) -> _Rank:
    if isinstance(by, tuple) and not by:
        raise TopologyError(f"aggregate {name!r}: by=() ranks nothing; give at least one part")
    parts = [getter(part, name, serde) for part in (by if isinstance(by, tuple) else (by,))]
    return _Rank(rank_of_parts(parts) if isinstance(by, tuple) else parts[0], serde, expressions_of(parts))


def max_by(by: RankInput[T], *, value: SerdeLike[T] | None = None) -> Aggregator[T, T]:
    """The whole value with the largest ``by``; of several, the one whose bytes are smallest. ``by=(col("price"),
    -col("time"))`` compares by the first part, then by the next; ``col("bid.price")`` is of an object within the value. A
    value of which a part is null is ignored; NaN is above all numbers.

    Values of an immutable type, with expressions as ``by``, are ranked by columns, and stay bytes."""
    return _by_rank("max-by", by, value, largest=True)


def min_by(by: RankInput[T], *, value: SerdeLike[T] | None = None) -> Aggregator[T, T]:
    """The whole value with the smallest ``by``; else as ``max_by``."""
    return _by_rank("min-by", by, value, largest=False)


def _by_rank(kind: str, by: Any, value: Any, *, largest: bool) -> Aggregator:
    """Accumulators ``()`` or ``(value bytes,)``."""
    name = named(kind, by)
    rank = _ranked(name, by, None if value is None else serde_of(value))
    serde, result_serde = kept_serdes(value)
    best = BestOf(1, rank.of, serde, largest=largest)

    def result(acc: tuple[bytes, ...]) -> Any:
        return best.decoded(acc)[0] if acc else None

    kept = None
    if rank.serde is not None and rank.read is not None:
        kept = KeptByRank(rank.serde, rank.read, largest)
    return dataclasses.replace(
        _of_best(name, getter(None, name), rank, best), result=result, result_serde=result_serde, kept=kept
    )


def _of_best(name: str, pick: Callable[[Any], Any], rank: _Rank, best: BestOf) -> Aggregator:
    def add(acc: tuple[bytes, ...], row: Any, timestamp_ms: int) -> tuple[bytes, ...]:
        x = pick(row)
        if x is None or (own := rank.of(x)) is None:
            return acc
        return best.with_one(acc, x, own)

    def merge(a: tuple[bytes, ...], b: tuple[bytes, ...]) -> tuple[bytes, ...]:
        return best.of(a + b)

    return Aggregator(
        name=name,
        init=tuple,
        add=add,
        result=best.decoded,
        serde=_BEST,
        result_serde=RESULT_JSON,
        merge=merge,
        exact_merge=True,
    )


def top_k(
    k: int,
    of: AggregateInput[V] = None,
    *,
    by: RankInput[T] = None,
    largest: bool = True,
    ties: bool = False,
    value: SerdeLike[T] | None = None,
) -> Aggregator[list[T], V]:
    """The ``k`` values with the largest (or smallest) ``by``, best first, as a list. Equal ranks are in the order of
    the values' bytes; NaN ranks above all numbers. ``by`` is computed from the value that ``of`` picks (``None``: the
    value is its own rank); values with a null rank are ignored. ``by=(col("price"), -col("time"))`` compares by the first
    part, then by the next; a value of which a part is null is ignored. A value that occurs twice counts twice. ``ties``:
    with every further value whose rank is that of the last one (SQL's ``WITH TIES``), however many these are.

    Whole values (no ``of``) with expressions as ``by`` are ranked by columns, and decoded if they are among the best."""
    name = named(f"top-{k}-with-ties" if ties else f"top-{k}", of)
    if k < 1:
        raise TopologyError(f"aggregate {name!r}: k={k}; it must be at least 1")
    rank = _ranked(name, by, serde_of(value) if of is None and value is not None else None)
    best = BestOf(k, rank.of, kept_serdes(value)[0], largest=largest, ties=ties)
    kept = None
    if rank.serde is not None and rank.read is not None:
        kept = KeptBest(rank.serde, best, rank.read, not isinstance(by, tuple))
    return dataclasses.replace(_of_best(name, getter(of, name), rank, best), kept=kept)
