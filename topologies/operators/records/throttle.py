"""Throttling: at most ``n`` records of each key in each interval of event time.

Intervals are aligned to 0, as tumbling windows are. The first ``n`` records of a key in an interval pass, at once and
unchanged, in the order in which they are processed; the others are dropped and counted. An interval is open until the
operator's stream time is more than ``grace_ms`` past its end; a record that comes later is dropped and counted as late,
so no key ever has more than ``n`` records of an interval downstream.
"""

from __future__ import annotations

import dataclasses
import struct
from contextlib import suppress
from typing import Any

from penstock.state.errors import SerdeError
from penstock.state.serdes.serde import INT, Serde
from penstock.state.stores.store import StoreSpec
from penstock.topologies.operator_api.batch import Batch
from penstock.topologies.operator_api.operator import Operator, OperatorContext, OperatorSpec
from penstock.topologies.operators.base.row_operator import RowOperator

_START = struct.Struct(">q")


def throttle_store(name: str, key: Serde[Any], per_ms: int, grace_ms: int) -> StoreSpec:
    """The store of a ``ThrottleSpec``: how many records of each key have passed, per interval."""
    return StoreSpec(name, "window", key, INT, window_size_ms=per_ms, retention_ms=per_ms + grace_ms)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ThrottleSpec(OperatorSpec):
    """See the module. Records without a key pass. ``stores``: that of ``throttle_store``."""

    n: int
    per_ms: int
    grace_ms: int
    order_sensitive: bool = True  # which records are late depends on stream time, which other keys move

    def open(self, ctx: OperatorContext) -> Operator:
        """Build the operator of one task."""
        return _ThrottleOperator(ctx, self)

    def details(self) -> dict[str, Any]:
        """Store and limit."""
        limit = f"{self.n} per {self.per_ms} ms"
        return {"store": self.stores[0].name, "limit": limit, "grace": f"{self.grace_ms} ms"}


class _ThrottleOperator(RowOperator):
    """Store keys: interval start (8) | key bytes."""

    def __init__(self, ctx: OperatorContext, spec: ThrottleSpec) -> None:
        super().__init__(ctx, spec)
        self._state = ctx.state(spec.stores[0].name)
        self._keys: Serde[Any] = spec.stores[0].key_serde
        self._n, self._per_ms, self._grace_ms = spec.n, spec.per_ms, spec.grace_ms

    def _name(self, key: Any, ts: int) -> bytes:
        return _START.pack(ts - ts % self._per_ms) + self._keys.serialize(key)

    def load(self, port: int, batch: Batch) -> None:
        with suppress(Exception):  # row meets it at its record
            pairs = zip(batch.keys, batch.timestamps, strict=True)
            self._state.load([self._name(key, ts) for key, ts in pairs if key is not None])

    def row(self, port: int, key: Any, value: Any, ts: int) -> None:
        if key is None:
            self.emit_row(key, value, ts)
            return
        try:
            name = self._name(key, ts)
        except Exception as exc:
            raise SerdeError(
                f"serde {self._keys.name} cannot write the key {key!r:.100} ({exc}); give the stream its key serde"
            ) from exc
        open_ms = self.advance_stream_time(ts) - self._grace_ms  # intervals that end by then are over
        self._state.expire_below(_START.pack(max(open_ms - open_ms % self._per_ms, 0)))
        if ts - ts % self._per_ms + self._per_ms <= open_ms:
            self.ctx.dropped("late")
            return
        found = self._state.get(name)
        passed = 0 if found is None else found[0]
        if passed == self._n:
            self.ctx.dropped("throttled")
            return
        self._state.put(name, passed + 1, ts)
        self.emit_row(key, value, ts)
