"""Load shedding: while event time lags behind the clock by more than a bound, only a sample of the records is passed
on.

The rate is halved at a reading of the clock that finds the lag above the bound, and doubled at one that finds it
below half of it, at most once per ``settle_ms``. Which records are kept follows from a hash of their place in the
log, so a lower rate keeps a subset of what a higher one would keep, and a replay, which reads the clock in the
journal, keeps the same. Each record carries its rate in a header; dropped ones are counted.
"""

from __future__ import annotations

import dataclasses
from hashlib import blake2b
from typing import Any

from penstock.state.log import Headers
from penstock.state.serdes.serde import BYTES, JSON
from penstock.state.stores.store import StoreSpec
from penstock.topologies.operator_api.operator import Operator, OperatorContext, OperatorSpec
from penstock.topologies.operators.base.row_operator import RowOperator

RATE_HEADER = "penstock.rate"
LOWEST_RATE = 1 / 1_024
_KEY = b"rate"
_HASHES = 1 << 64


def rate_of(headers: Headers) -> float:
    """The sampling rate of a record with these headers; 1 if nothing was shed."""
    for name, value in headers:
        if name == RATE_HEADER and value is not None:
            return float(value)
    return 1.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoadSheddingSpec(OperatorSpec):
    """Sheds load above ``max_latency_ms``; its one store holds the rate and when it was last changed."""

    max_latency_ms: int
    settle_ms: int
    uses_wall_time: bool = True
    reads_wall_time: bool = True
    order_sensitive: bool = True

    def open(self, ctx: OperatorContext) -> Operator:
        """Build the operator of one task."""
        return _LoadSheddingOperator(ctx, self)

    def details(self) -> dict[str, Any]:
        """The bound."""
        return {"max_latency": f"{self.max_latency_ms} ms", "store": self.stores[0].name}


def rate_store(name: str) -> StoreSpec:
    """The spec of the store."""
    return StoreSpec(name, "key_value", BYTES, JSON)


class _LoadSheddingOperator(RowOperator):
    def __init__(self, ctx: OperatorContext, spec: LoadSheddingSpec) -> None:
        super().__init__(ctx, spec)
        self._shed = spec
        self._state = ctx.state(spec.stores[0].name)
        self._rate: float | None = None
        self._changed_ms = 0

    def _load(self) -> float:
        if self._rate is None:
            found = self._state.get(_KEY)
            self._rate, self._changed_ms = found[0] if found is not None else (1.0, 0)
        return self._rate

    def row(self, port: int, key: Any, value: Any, ts: int) -> None:
        rate = self._settled(self._load(), self.wall_ms - self.advance_stream_time(ts))
        if rate < 1.0:
            place = self.ctx.origin(self._order)
            mark = int.from_bytes(blake2b(repr(place).encode(), digest_size=8).digest(), "big")
            if mark >= rate * _HASHES:
                self.ctx.dropped("shed")
                return
        before = rate_of(self.headers)
        kept = tuple(h for h in self.headers if h[0] != RATE_HEADER)
        marked = (*kept, (RATE_HEADER, repr(rate * before).encode())) if rate * before < 1.0 else kept
        self.emit_row(key, value, ts, headers=marked)

    def _settled(self, rate: float, lag_ms: int) -> float:
        now_ms = self.wall_ms
        if now_ms - self._changed_ms < self._shed.settle_ms:
            return rate
        wanted = rate
        if lag_ms > self._shed.max_latency_ms:
            wanted = max(rate / 2, LOWEST_RATE)
        elif lag_ms * 2 < self._shed.max_latency_ms:
            wanted = min(rate * 2, 1.0)
        if wanted != rate:
            self._rate, self._changed_ms = wanted, now_ms
            self._state.put(_KEY, [wanted, now_ms], max(self.stream_time_ms, 0))
        return wanted
