"""Aggregations per key whose rows live for a time (``penstock.topologies.operators.base.row_expiry``): a key without
records for that time starts again with its next one."""

from __future__ import annotations

import dataclasses
from contextlib import suppress
from typing import Any

from penstock.state.errors import SerdeError, TopologyError
from penstock.state.stores.store import StoreSpec
from penstock.topologies.operator_api.batch import Batch
from penstock.topologies.operator_api.edge_kinds import Emits
from penstock.topologies.operator_api.operator import Operator, OperatorContext, OperatorSpec
from penstock.topologies.operators.aggregates.fold import Aggregation, BuiltOperator, Fold
from penstock.topologies.operators.base.row_expiry import RowExpiry, expiry_store
from penstock.topologies.operators.base.row_operator import RowOperator


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExpiringAggregateSpec(OperatorSpec):
    """As ``AggregateSpec`` without windows. ``stores``: the aggregates and their timers."""

    fold: Fold
    ttl_ms: int
    emits: Emits = "upsert"

    def open(self, ctx: OperatorContext) -> Operator:
        """The running form."""
        return _ExpiringAggregateOperator(ctx, self)

    def details(self) -> dict[str, Any]:
        """Store, emission and how long rows live."""
        return {"store": self.stores[0].name, "emission": self.emission, "ttl": f"{self.ttl_ms} ms"}


def build_operator(request: Aggregation) -> BuiltOperator:
    """The operator of an aggregation with a ttl. Raises ``TopologyError`` where that has no meaning."""
    assert request.ttl_ms is not None
    if request.windows is not None or request.emission != "every_update" or request.late:
        raise TopologyError(
            f"operator {request.name!r}: ttl is for aggregates per key that emit every update; windows end by themselves, "
            "and emission='per_commit' would hide that a row was gone in between"
        )
    stores = (StoreSpec(request.name, "key_value", request.key, request.value), expiry_store(request.name))
    spec = ExpiringAggregateSpec(
        in_ports=request.in_ports,
        stores=stores,
        emission=request.emission,
        order_sensitive=True,
        fold=request.fold,
        ttl_ms=request.ttl_ms,
    )
    return BuiltOperator(spec, request.key)


class _ExpiringAggregateOperator(RowOperator):
    def __init__(self, ctx: OperatorContext, spec: ExpiringAggregateSpec) -> None:
        super().__init__(ctx, spec)
        rows, timers = spec.stores
        self._state = ctx.state(rows.name)
        self._key_serde = rows.key_serde
        self._expiry = RowExpiry(self._state, ctx.state(timers.name), spec.ttl_ms)
        self._fold = spec.fold

    def load(self, port: int, batch: Batch) -> None:
        with suppress(SerdeError):  # the row that has such a key meets it again
            self._state.load(self._key_serde.serialize_all([k for k in batch.keys if k is not None]))  # type: ignore[arg-type]  # no nulls

    def before(self, key: Any, value: Any, ts: int) -> None:
        read, shown = self._key_serde.deserialize, self._fold.shown
        for gone in self._expiry.gone(self.advance_stream_time(ts)):
            old = shown(gone.value) if self._sends_olds else None
            self.emit_row(read(gone.store_key), None, gone.deadline_ms, old=old, headers=())

    def row(self, port: int, key: Any, value: Any, ts: int) -> None:
        if key is None or value is None:
            self.ctx.dropped("null_key" if key is None else "null_value")
            return
        store_key = self._key_serde.serialize(key)
        found = self._state.get(store_key)
        if found is None and self._expiry.late(ts, self.stream_time_ms):
            self.ctx.dropped("late")
            return
        aggregate = self._fold.add(port, key, value, ts, None if found is None else found[0])
        result = self._fold.shown(aggregate)
        # functions may have changed the aggregate that they were given: the old one is read again
        before = self._state.get(store_key) if self._sends_olds and found is not None else None
        old = None if before is None else self._fold.shown(before[0])
        new_ts = ts if found is None else max(ts, found[1])
        self._state.put(store_key, aggregate, new_ts)
        if aggregate is not None:
            self._expiry.written(store_key, None if found is None else found[1], new_ts)
        if found is not None or aggregate is not None:
            self.emit_row(key, result, new_ts, old=old)
