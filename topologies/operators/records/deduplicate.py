"""Deduplication: the first record of each key within a horizon of event time.

A record is dropped if a record of its key that was processed before it, kept or dropped, is less than ``within_ms``
away from it in event time, on either side. The state of a key is the list of spans that its records cover: chains in
which neighbours are less than ``within_ms`` apart. A span is dropped when stream time has advanced by more than
``within_ms + grace_ms`` since its last record arrived. So a duplicate that is late by more than the grace passes, and
the store holds only keys of that horizon.
"""

from __future__ import annotations

import dataclasses
from contextlib import suppress
from typing import Any, TypeAlias

import msgspec

from penstock.state.errors import SerdeError
from penstock.state.serdes.serde import Serde
from penstock.state.stores.store import StoreSpec
from penstock.topologies.operator_api.batch import Batch
from penstock.topologies.operator_api.operator import Operator, OperatorContext, OperatorSpec
from penstock.topologies.operators.base.row_operator import RowOperator
from penstock.topologies.operators.base.store_timers import TimerQueue, timer_store

Span: TypeAlias = "tuple[int, int, int]"
"""First and last timestamp, and the stream time when its last record came."""

_DECODER = msgspec.msgpack.Decoder(tuple[tuple[int, int, int], ...])
SPANS: Serde[tuple[Span, ...]] = Serde(
    "spans", msgspec.msgpack.Encoder().encode, _DECODER.decode, immutable=True, exact=tuple
)


def dedup_stores(name: str, key: Serde[Any]) -> tuple[StoreSpec, StoreSpec]:
    """The stores of a deduplication: spans per key, and when to look after them."""
    return StoreSpec(name, "key_value", key, SPANS), timer_store(f"{name}-expiry")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeduplicateSpec(OperatorSpec):
    """See the module. Records without a key have no duplicates and pass. ``stores``: those of ``dedup_stores``."""

    within_ms: int
    grace_ms: int
    order_sensitive: bool = True  # what is dropped depends on stream time, which other keys advance

    def open(self, ctx: OperatorContext) -> Operator:
        """Build the operator of one task."""
        return _DeduplicateOperator(ctx, self)

    def details(self) -> dict[str, Any]:
        """Store and horizon."""
        return {"store": self.stores[0].name, "within": f"{self.within_ms} ms", "grace": f"{self.grace_ms} ms"}


class _DeduplicateOperator(RowOperator):
    def __init__(self, ctx: OperatorContext, spec: DeduplicateSpec) -> None:
        super().__init__(ctx, spec)
        self._state = ctx.state(spec.stores[0].name)
        self._timers = TimerQueue(ctx.state(spec.stores[1].name))
        self._write = spec.stores[0].key_serde.serialize
        self._within_ms = spec.within_ms
        self._keep_ms = spec.within_ms + spec.grace_ms

    def load(self, port: int, batch: Batch) -> None:
        with suppress(Exception):  # row meets it at its record
            self._state.load([self._write(k) for k in batch.keys if k is not None])

    def row(self, port: int, key: Any, value: Any, ts: int) -> None:
        if key is None:
            self.emit_row(key, value, ts)
            return
        try:
            name = self._write(key)
        except Exception as exc:
            raise SerdeError(
                f"serde {self.spec.stores[0].key_serde.name} cannot write the key {key!r:.100} ({exc}); give it its own"
            ) from exc
        now_ms = self.advance_stream_time(ts)
        self._forget(now_ms)
        found = self._state.get(name)
        spans = () if found is None else self._remembered(found[0], now_ms)
        near = [s for s in spans if s[0] - self._within_ms < ts < s[1] + self._within_ms]
        grown = (min([ts, *(s[0] for s in near)]), max([ts, *(s[1] for s in near)]), now_ms)
        self._state.put(name, tuple(sorted([grown, *(s for s in spans if s not in near)])), now_ms)
        if found is None:
            self._timers.set(now_ms + self._keep_ms + 1, name)
        if not near:
            self.emit_row(key, value, ts)

    def _remembered(self, spans: tuple[Span, ...], now_ms: int) -> tuple[Span, ...]:
        return tuple([s for s in spans if now_ms - s[2] <= self._keep_ms])

    def _forget(self, now_ms: int) -> None:
        """Drop keys whose spans are all over. Each key has one timer, which is set again while it has spans."""
        for _, name in self._timers.due(now_ms):
            found = self._state.get(name)
            left = () if found is None else self._remembered(found[0], now_ms)
            if left:
                self._state.put(name, left, now_ms)
                self._timers.set(max(s[2] for s in left) + self._keep_ms + 1, name)
            else:
                self._state.put(name, None, now_ms)
