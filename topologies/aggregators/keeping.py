"""Aggregates that keep values: first and last, lists and sets, distinct counts. Those by rank are in ``ranked``.

Values are kept as bytes, so that no code can change them in place. ``value`` names their serde (anything that
``serde_of`` takes; for a Struct or a dataclass, dicts of its fields are kept as instances), ``None`` means plain
values (see ``PLAIN``). Two values are the same if their bytes are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from penstock.state.errors import TopologyError
from penstock.state.serdes.serde import INT, Serde, SerdeLike
from penstock.state.stores.latest_view import TIMED
from penstock.state.type_parameters import T, V
from penstock.topologies.aggregators.bag import EMPTY, Bag
from penstock.topologies.aggregators.base import AggregateInput, Aggregator, Step, getter, named
from penstock.topologies.aggregators.encoding import BAGS, RESULT_JSON, kept_serdes, maybe, packed
from penstock.topologies.aggregators.kept_records import KeptByTime
from penstock.topologies.aggregators.members_apart import (
    DISTINCT_COUNT,
    MembersApart,
    count_itself,
    keep_first,
    left_alone,
)

_LIST = packed("values", tuple[bytes, ...])


def first(of: AggregateInput[V] = None, *, value: SerdeLike[T] | None = None) -> Aggregator[T, V]:
    """The value with the earliest event time; of several, that of the first record."""
    return _by_time("first", of, value, later=False)


def last(of: AggregateInput[V] = None, *, value: SerdeLike[T] | None = None) -> Aggregator[T, V]:
    """The value with the latest event time; of several, that of the last record."""
    return _by_time("last", of, value, later=True)


def _by_time(kind: str, of: AggregateInput, value: Any, *, later: bool) -> Aggregator:
    """Accumulators ``()`` or ``(timestamp_ms, value bytes)``."""
    name = named(kind, of)
    pick, (serde, result_serde) = getter(of, name), kept_serdes(value)
    kept = KeptByTime(result_serde, later) if of is None and value is not None else None

    def merge(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
        if not a or not b:
            return a or b
        return b if (b[0] >= a[0] if later else b[0] < a[0]) else a

    def add(acc: tuple[Any, ...], data: bytes, timestamp_ms: int) -> tuple[Any, ...]:
        return merge(acc, (timestamp_ms, data))

    def result(acc: tuple[Any, ...]) -> Any:
        return serde.deserialize(acc[1]) if acc else None

    step = Step(add, serde.serialize)
    return Aggregator(
        name=name,
        init=tuple,
        add=step.of(pick),
        step=step,
        result=result,
        serde=TIMED,
        result_serde=result_serde,
        merge=merge,
        exact_merge=True,
        ordered=True,
        kept=kept,
    )


def reduce_(
    fn: Callable[[T, T], T],
    of: AggregateInput[V] = None,
    *,
    inverse: Callable[[T, T], T] | None = None,
    exact: bool = False,
    value: SerdeLike[T] | None = None,
) -> Aggregator[T, V]:
    """``fn(a, b)`` over the values, which must be associative; a single value is its own result. ``inverse(total,
    x)`` removes what ``fn`` added; it cannot report when nothing is left. ``exact``: ``fn`` gives the same result in
    any order and grouping."""
    name = named("reduce", of)
    if not callable(fn) or not (inverse is None or callable(inverse)):
        raise TopologyError(f"aggregate {name!r} needs functions of two values, not {fn!r:.60} and {inverse!r:.60}")
    pick, (serde, result_serde) = getter(of, name), kept_serdes(value)

    def merge(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
        return (fn(a[0], b[0]),) if a and b else a or b

    def add(acc: tuple[Any, ...], row: Any, timestamp_ms: int) -> tuple[Any, ...]:
        x = pick(row)
        return acc if x is None else merge(acc, (x,))

    def subtract(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
        return (inverse(a[0], b[0]),) if inverse is not None and a and b else a

    def remove(acc: tuple[Any, ...], row: Any, timestamp_ms: int) -> tuple[Any, ...]:
        x = pick(row)
        return acc if x is None else subtract(acc, (x,))

    return Aggregator(
        name=name,
        init=tuple,
        add=add,
        result=lambda acc: acc[0] if acc else None,
        serde=maybe(serde),
        result_serde=result_serde,
        merge=merge,
        inverse=None if inverse is None else remove,
        subtract=None if inverse is None else subtract,
        exact_merge=exact,
        ordered=not exact,
    )


def list_(of: AggregateInput[V] = None, *, value: SerdeLike[T] | None = None) -> Aggregator[list[T], V]:
    """All values, in the order of the records. The state grows with the records: group or window first."""
    name = named("list", of)
    pick, (serde, _) = getter(of, name), kept_serdes(value)

    def add(acc: tuple[bytes, ...], data: bytes, timestamp_ms: int) -> tuple[bytes, ...]:
        return (*acc, data)

    def merge(a: tuple[bytes, ...], b: tuple[bytes, ...]) -> tuple[bytes, ...]:
        return a + b

    def result(acc: tuple[bytes, ...]) -> list[Any]:
        return [serde.deserialize(v) for v in acc]

    step = Step(add, serde.serialize)
    return Aggregator(
        name=name,
        init=tuple,
        add=step.of(pick),
        step=step,
        result=result,
        serde=_LIST,
        result_serde=RESULT_JSON,
        merge=merge,
        exact_merge=True,
        ordered=True,
    )


def set_(of: AggregateInput[V] = None, *, value: SerdeLike[T] | None = None) -> Aggregator[list[T], V]:
    """The distinct values as a list: ascending if they can be compared, else in the order of their bytes."""
    name = named("set", of)
    serde, _ = kept_serdes(value)

    def result(acc: Bag) -> list[Any]:
        values = [serde.deserialize(v) for v, _ in acc]
        try:
            return sorted(values)
        except TypeError:
            return values

    return _bag(name, of, serde, result, RESULT_JSON)


def count_distinct(of: AggregateInput[V] = None, *, value: SerdeLike[T] | None = None) -> Aggregator[int, V]:
    """The number of distinct values, exactly. The state holds all of them; ``approx_distinct`` needs bounded space.

    Aggregations per key, of a table, and per window that is ordered in time keep each value as an entry of a store of its
    own, so that any number of them works. Others keep them in the aggregate's own value, which cannot grow beyond a record:
    sessions, sliding and custom windows, panes, aggregates with a ttl, of a micro-batch and of a whole stream."""
    made = _bag(named("count-distinct", of), of, kept_serdes(value)[0], len, INT)
    pick, step = getter(of, made.name), made.step
    assert step is not None and step.prepare is not None
    write = step.prepare

    def members(row: Any) -> tuple[bytes | None]:
        x = pick(row)
        return (None if x is None else write(x),)

    count = Aggregator(
        name=made.name,
        init=int,
        add=left_alone,
        result=count_itself,
        serde=DISTINCT_COUNT,
        result_serde=INT,
        merge=keep_first,
        inverse=left_alone,
        exact_merge=True,
    )
    return dataclasses.replace(made, apart=MembersApart(count, ((),), members))


def _bag(name: str, of: AggregateInput, serde: Serde[Any], result: Any, result_serde: Serde[Any]) -> Aggregator:
    pick = getter(of, name)

    def add(acc: Bag, data: bytes, timestamp_ms: int) -> Bag:
        return acc.moved(data, 1)

    def remove(acc: Bag, data: bytes, timestamp_ms: int) -> Bag:
        return acc.moved(data, -1)

    def merge(a: Bag, b: Bag) -> Bag:
        return a.combined(b, 1)

    def subtract(a: Bag, b: Bag) -> Bag:
        return a.combined(b, -1)

    step = Step(add, serde.serialize)
    return Aggregator(
        name=name,
        init=lambda: EMPTY,
        add=step.of(pick),
        step=step,
        result=result,
        serde=BAGS,
        result_serde=result_serde,
        merge=merge,
        inverse=Step(remove, serde.serialize).of(pick),
        subtract=subtract,
        exact_merge=True,
    )
