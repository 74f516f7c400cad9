"""Aggregations of a table's rows under another key: each change of a row is removed from its old group and added to
its new one.

``RegroupSpec`` turns a change of a row into changes of groups, which go through a repartition topic;
``TableAggregateSpec`` applies them: first the old value is subtracted, then the new one is added. If a row's group is
the same before and after, that is one change, so that no consumer sees the state in between. The order between two
groups is not defined.

Only what was added to a group may be removed from it. So a row for which the grouping function raises, under a policy
that skips it, belongs to no group: its former value is removed, and the row is counted, or sent to the dead letter
topic, once. An adder or subtractor that raises stops the task under every policy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from penstock.state.errors import SerdeError
from penstock.state.serdes.change_serde import Change
from penstock.state.serdes.serde import Serde
from penstock.state.stores.store import StoreSpec
from penstock.topologies.aggregators.members_apart import with_count
from penstock.topologies.operator_api.batch import Batch
from penstock.topologies.operator_api.edge_kinds import EdgeKind, Emits
from penstock.topologies.operator_api.operator import Operator, OperatorContext, OperatorSpec
from penstock.topologies.operators.aggregates.fold import DistinctCounts
from penstock.topologies.operators.base.member_store import MemberStore, numbered
from penstock.topologies.operators.base.row_expiry import RowExpiry
from penstock.topologies.operators.base.row_operator import RowOperator


@dataclasses.dataclass(frozen=True, kw_only=True)
class RegroupSpec(OperatorSpec):
    """``fn(key, value)`` gives a row's group and what of it is aggregated, or ``None``; rows without one, or whose group
    or value is null, belong to no group. With ``whole_rows``, ``fn`` gives the group alone, which gets the row. Its input
    must carry old values; it emits ``Change`` values under the groups' keys, which ``key_serde`` writes."""

    fn: Callable[[Any, Any], Any]
    key_serde: Serde[Any]
    whole_rows: bool = False
    emits: Emits = "insert"

    def open(self, ctx: OperatorContext) -> Operator:
        """Build the operator of one task."""
        return _RegroupOperator(ctx, self)


class _RegroupOperator(RowOperator):
    def __init__(self, ctx: OperatorContext, spec: RegroupSpec) -> None:
        super().__init__(ctx, spec)
        fn = spec.fn
        self._fn = (lambda key, row: (fn(key, row), row)) if spec.whole_rows else fn
        self._write = spec.key_serde.serialize

    def _grouped(self, key: Any, value: Any) -> tuple[Any, Any, bytes] | None:
        """Group, what it gets, and the group's bytes, which are made here: a group that cannot be written is refused now, as
        it will be when the row is to leave it."""
        made = None if value is None else self._fn(key, value)
        if made is None:
            return None
        try:
            group, grouped = made
        except (TypeError, ValueError) as exc:
            raise TypeError(f"the function must return a (key, value) pair or None, not {made!r:.100}") from exc
        return None if group is None or grouped is None else (group, grouped, self._write(group))

    def _grouped_before(self, key: Any, value: Any) -> tuple[Any, Any, bytes] | None:
        try:
            return self._grouped(key, value)
        except Exception:  # it was refused when it came
            return None

    def row(self, port: int, key: Any, value: Any, ts: int) -> None:
        old, new = self._grouped_before(key, self.old), None
        try:
            new = self._grouped(key, value)
        except Exception as exc:
            self.failed_waiting(key, value, ts, exc)
        if old is not None and new is not None and old[2] == new[2]:
            self.emit_row(new[0], Change(new[1], old[1]), ts)
            return
        if old is not None:
            self.emit_row(old[0], Change(None, old[1]), ts)
        if new is not None:
            self.emit_row(new[0], Change(new[1], None), ts)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableAggregateSpec(OperatorSpec):
    """``subtractor(key, old value, aggregate)``, then ``adder(key, new value, aggregate)``, from ``init()``; ``None``
    deletes the group. ``init`` is ``None`` for a reduce: then the first value is the aggregate. The result's timestamp is
    the highest that went into it.

    ``result`` makes what is emitted of an aggregate; ``None``: the aggregate itself. ``distinct``: the distinct counts whose
    members are in the second store, which adder and subtractor leave alone.
    ``ttl_ms``: groups live for this time after their latest change (``penstock.topologies.operators.base.row_expiry``);
    the second store holds their timers. What is subtracted from a group that is gone changes nothing."""

    init: Callable[[], Any] | None
    adder: Callable[[Any, Any, Any], Any]
    subtractor: Callable[[Any, Any, Any], Any]
    result: Callable[[Any], Any] | None = None
    distinct: DistinctCounts | None = None
    ttl_ms: int | None = None
    emits: Emits = "upsert"
    accepts: frozenset[EdgeKind] = frozenset({"insert"})

    @property
    def store(self) -> StoreSpec:
        """Where the aggregates are kept."""
        return self.stores[0]

    def open(self, ctx: OperatorContext) -> Operator:
        """Build the operator of one task."""
        return _TableAggregateOperator(ctx, self)

    def details(self) -> dict[str, Any]:
        """Store and emission."""
        shown = {"store": self.store.name, "emission": self.emission}
        return shown if self.ttl_ms is None else shown | {"ttl": f"{self.ttl_ms} ms"}


class _TableAggregateOperator(RowOperator):
    may_skip = False

    def __init__(self, ctx: OperatorContext, spec: TableAggregateSpec) -> None:
        super().__init__(ctx, spec)
        self._state = ctx.state(spec.store.name)
        self._key_serde = spec.store.key_serde
        self._init, self._adder, self._subtractor = spec.init, spec.adder, spec.subtractor
        self._result = spec.result
        self._every_update = spec.emission == "every_update"
        self._distinct = spec.distinct
        self._members = None if spec.distinct is None else MemberStore(ctx.state(spec.stores[1].name))
        self._expiry: RowExpiry | None = None
        if spec.ttl_ms is not None:
            self._expiry = RowExpiry(self._state, ctx.state(spec.stores[1].name), spec.ttl_ms)
        self._changed: dict[bytes, tuple[Any, Any]] = {}
        """Groups that changed since the commit: key and the value before."""

    def load(self, port: int, batch: Batch) -> None:
        with suppress(SerdeError):  # the row that has such a key meets it again
            self._state.load(self._key_serde.serialize_all([k for k in batch.keys if k is not None]))  # type: ignore[arg-type]  # no nulls
        if self._members is not None:
            with suppress(Exception):  # the row that fails meets it again
                self._members.load(self._members_in(batch))

    def _members_in(self, batch: Batch) -> list[bytes]:
        """Store keys of all members that the changes of a batch add or remove."""
        write, out = self._key_serde.serialize, []
        for key, change in zip(batch.keys, batch.values, strict=True):
            if key is not None and change is not None:
                store_key = write(key)
                for value in (change.old, change.new):
                    out += [] if value is None else [m for _, m in self._members_of(store_key, value)]
        return out

    def _members_of(self, store_key: bytes, value: Any) -> list[tuple[int, bytes]]:
        """Numbers of counts, and store keys of the members of a value."""
        assert self._distinct is not None and self._members is not None
        head = self._members.head(store_key)
        return [(number, head + numbered(number) + member) for number, member in self._distinct.members(value)]

    def _counted(self, store_key: bytes, value: Any, aggregate: Any, by: int) -> Any:
        """The aggregate with the members of a row added (``by`` 1) or removed (-1)."""
        if self._distinct is None or self._members is None:
            return aggregate
        for number, member in self._members_of(store_key, value):
            moved = self._members.move(member, by)
            if moved:
                aggregate = with_count(aggregate, self._distinct.paths[number], moved)
        return aggregate

    def before(self, key: Any, value: Any, ts: int) -> None:
        if self._expiry is not None:
            read = self._key_serde.deserialize
            for gone in self._expiry.gone(self.advance_stream_time(ts)):
                old = self._shown(gone.value)
                self.emit_row(read(gone.store_key), None, gone.deadline_ms, old=old, headers=())

    def row(self, port: int, key: Any, value: Any, ts: int) -> None:
        if key is None or value is None:
            self.ctx.dropped("null_key" if key is None else "null_value")
            return
        store_key = self._key_serde.serialize(key)
        found = self._state.get(store_key)
        if found is None and self._expiry is not None and self._expiry.late(ts, self.stream_time_ms):
            self.ctx.dropped("late")
            return
        aggregate = None if found is None else found[0]
        if aggregate is not None and value.old is not None:
            aggregate = self._counted(store_key, value.old, self._subtractor(key, value.old, aggregate), -1)
        if value.new is not None:
            if aggregate is None:
                aggregate = None if self._init is None else self._init()
            aggregate = value.new if aggregate is None else self._adder(key, value.new, aggregate)
            aggregate = self._counted(store_key, value.new, aggregate, 1)
        if found is not None:
            ts = max(ts, found[1])
        elif aggregate is None:
            return
        before = found if self._sends_olds else None
        if before is not None and not self._state.immutable:
            # functions may have changed the given aggregate in place: read the old one again
            before = self._state.get(store_key)
        old = None if before is None else self._shown(before[0])
        shown = self._shown(aggregate)
        self._state.put(store_key, aggregate, ts)
        if self._expiry is not None and aggregate is not None:
            self._expiry.written(store_key, None if found is None else found[1], ts)
        if self._every_update:
            self.emit_row(key, shown, ts, old=old)
        else:
            self._changed.setdefault(store_key, (key, old))

    def _shown(self, aggregate: Any) -> Any:
        return aggregate if self._result is None or aggregate is None else self._result(aggregate)

    def flush(self) -> None:
        changed, self._changed = self._changed, {}
        self._order, self.headers = 0, ()
        for store_key, (key, old) in changed.items():
            found = self._state.get(store_key)
            if found is None:
                self.emit_row(key, None, self._state.dirty[store_key], old=old)
            else:
                self.emit_row(key, self._shown(found[0]), found[1], old=old)
        self._send()
