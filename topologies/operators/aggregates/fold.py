"""How records become aggregates, as a value that every aggregation understands, with any windows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from penstock.state.serdes.serde import Serde
from penstock.state.stores.store import StoreSpec
from penstock.topologies.aggregators.base import Part
from penstock.topologies.aggregators.kept_records import KeptRecords
from penstock.topologies.aggregators.members_apart import CountPath, MembersApart
from penstock.topologies.expressions.row_function import ExpressionFunction
from penstock.topologies.operator_api.operator import Emission, OperatorSpec
from penstock.topologies.operators.base.member_store import members_of
from penstock.topologies.windows import Windows

Adder = Callable[[Any, Any, Any], Any]
"""``(key, value, aggregate)`` gives the new aggregate."""


class DistinctCounts(NamedTuple):
    """The distinct counts in an aggregate whose members are in a store of their own. ``paths``: where they are;
    ``members(value)``: what a record adds, as numbers of counts and members."""

    paths: tuple[CountPath, ...]
    members: Callable[[Any], Sequence[tuple[int, bytes]]]

    @classmethod
    def of(cls, apart: MembersApart) -> DistinctCounts:
        """Those of an aggregate, for records of values."""
        members = apart.members

        def of_record(value: Any) -> list[tuple[int, bytes]]:
            return [(number, member) for number, member in enumerate(members(value)) if member is not None]

        return cls(apart.paths, of_record)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fold:
    """``adders[port](key, value, aggregate)`` for every record, from ``init()``; without ``init`` a key's first value
    is its first aggregate. A ``None`` result deletes.

    ``timed``: adders get ``(value, timestamp_ms)`` instead of the value. ``counts``: the aggregate is the number of
    records. ``partials``: the records are aggregates of other records, which the adder merges; ``sums``: they are
    numbers of records, which it adds up. ``merger(key, a, b)`` merges the aggregates of two sessions. ``merge(a, b)``
    merges those of two disjoint sets of records, so that windows may share the aggregates of their parts;
    ``inverse(a, b)`` removes b's records from a. ``result`` computes what is emitted from an aggregate; ``None``: the
    aggregate itself. ``parts``: the aggregate expressions that the adder folds, if the aggregate is the tuple of
    their accumulators; ``result_of_parts`` is then the result as an expression over theirs, the fields ``part1`` and so on.
    ``apart``: the fold with distinct members in a store of their own, if there are any. In that one ``distinct`` has their
    counts, which adders leave alone. ``kept``: what the aggregate keeps, if that is whole values of the records. ``unread``:
    the in ports whose adders never use the value.
    """

    adders: tuple[Adder, ...]
    init: Callable[[], Any] | None = None
    timed: bool = False
    counts: bool = False
    sums: bool = False
    partials: bool = False
    merger: Callable[[Any, Any, Any], Any] | None = None
    merge: Callable[[Any, Any], Any] | None = None
    inverse: Callable[[Any, Any], Any] | None = None
    result: Callable[[Any], Any] | None = None
    parts: tuple[Part, ...] = ()
    result_of_parts: ExpressionFunction | None = None
    distinct: DistinctCounts | None = None
    apart: FoldApart | None = None
    kept: KeptRecords | None = None
    unread: frozenset[int] = frozenset()

    def add(self, port: int, key: Any, value: Any, ts: int, aggregate: Any) -> Any:
        """The aggregate with one record more; ``None`` for the aggregate: it is the first."""
        if aggregate is None:
            if self.init is None:
                return value
            aggregate = self.init()
        return self.adders[port](key, (value, ts) if self.timed else value, aggregate)

    def shown(self, aggregate: Any) -> Any:
        """The value to emit for an aggregate."""
        return aggregate if self.result is None or aggregate is None else self.result(aggregate)


class FoldApart(NamedTuple):
    """A fold with distinct members apart, the serde of its aggregates, and ``merge(aggregate, partial)``, which adds a
    partial aggregate of the other form without its members."""

    fold: Fold
    value: Serde[Any]
    merge: Callable[[Any, Any], Any] | None


def with_members(store: StoreSpec, fold: Fold, kept_ms: int | None = None) -> tuple[StoreSpec, ...]:
    """The stores of an aggregation: that of the aggregates, and if it has distinct counts, that of their members.
    ``kept_ms``: the time for which windows take records."""
    return (store,) if fold.distinct is None else (store, members_of(store, kept_ms))


def _counted(key: Any, value: Any, aggregate: int) -> int:
    return aggregate + 1


def _plus(a: int, b: int) -> int:
    return a + b


def _minus(a: int, b: int) -> int:
    return a - b


COUNTING = Fold(adders=(_counted,), init=int, counts=True, merger=lambda key, a, b: a + b, merge=_plus, inverse=_minus)
"""The number of records."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Aggregation:
    """The DSL's request for an aggregation. ``key``, ``value``, ``shown_serde``: serdes of the record's key, of the
    aggregates, and of what is emitted. ``record``: the serde of the records' values (``None``: of several streams).
    ``retention_ms``: the user's, at least the windows' horizon if that is known. ``late``: late records are wanted at
    an out port ``late`` next to ``out``. ``by_watermark``: a source has a watermark strategy, so the watermark closes
    windows, not the operator's own stream time. ``ttl_ms``: aggregates without records for that time are deleted."""

    name: str
    key: Serde[Any]
    value: Serde[Any]
    emission: Emission
    fold: Fold
    shown_serde: Serde[Any]
    windows: Windows | None = None
    retention_ms: int | None = None
    record: Serde[Any] | None = None
    late: bool = False
    by_watermark: bool = False
    ttl_ms: int | None = None

    @property
    def apart(self) -> Aggregation:
        """The request with distinct members in a store of their own; as it is if there are none."""
        form = self.fold.apart
        return self if form is None else dataclasses.replace(self, fold=form.fold, value=form.value)

    @property
    def in_ports(self) -> tuple[str, ...]:
        """One per adder."""
        count = len(self.fold.adders)
        return ("in",) if count == 1 else tuple(f"in-{i + 1}" for i in range(count))

    @property
    def out_ports(self) -> tuple[str, ...]:
        """The results, and the late records if wanted."""
        return ("out", "late") if self.late else ("out",)


class BuiltOperator(NamedTuple):
    """The operator of an aggregation (its first store holds the table) and the serde of its results' keys. ``request``:
    what was built, if that is another form of what was requested."""

    spec: OperatorSpec
    key: Serde[Any]
    request: Aggregation | None = None
