"""The inner join of any number of streams: every combination of one record per stream with equal keys within one span
of time.

A result is emitted with the record that completes it, at the latest of their timestamps. Results of one record are in
the order of the streams, by time, then arrival. On stream time (the highest of all sides) a record is kept for
``within_ms`` + ``grace_ms``. On watermarks it is kept until the watermark is ``within_ms`` past it; a record behind
the watermark is late and dropped. Null keys and values are dropped and counted.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from penstock.state.stores.segmented_store import SegmentedState
from penstock.topologies.operator_api.edge_kinds import Emits
from penstock.topologies.operator_api.operator import Operator, OperatorContext, OperatorSpec
from penstock.topologies.operators.base.row_operator import RowOperator


@dataclasses.dataclass(frozen=True, kw_only=True)
class MultiStreamJoinSpec(OperatorSpec):
    """``joiner(value, value, …)`` in the order of the in ports, of which each has one store."""

    joiner: Callable[..., Any]
    within_ms: int
    grace_ms: int
    emits: Emits = "insert"
    order_sensitive: bool = True

    def open(self, ctx: OperatorContext) -> Operator:
        """Build the operator of one task."""
        return _MultiStreamJoinOperator(ctx, self)

    def details(self) -> dict[str, Any]:
        """Bounds."""
        return {"streams": len(self.in_ports), "within": f"{self.within_ms} ms", "grace": f"{self.grace_ms} ms"}


class _MultiStreamJoinOperator(RowOperator):
    def __init__(self, ctx: OperatorContext, spec: MultiStreamJoinSpec) -> None:
        super().__init__(ctx, spec)
        self._join = spec
        self._buffers = [SegmentedState(ctx.state(s.name), only_appends=True) for s in spec.stores]
        self._keys = [s.key_serde for s in spec.stores]

    def resumed(self) -> None:
        super().resumed()
        self._expire()

    def row(self, port: int, key: Any, value: Any, ts: int) -> None:
        on_watermarks = self._join.uses_watermark
        if on_watermarks and ts < self.watermark_ms:
            self.ctx.dropped("late")
            return
        if key is None or value is None:
            self.ctx.dropped("null_key" if key is None else "null_value")
        else:
            key_bytes = self._keys[port].serialize(key)
            results = list(self._completed(port, key_bytes, value, ts))
            self._buffers[port].append(key_bytes, ts, value)
            for result, at_ms in results:
                self.emit_row(key, result, at_ms)
        if not on_watermarks:
            self.advance_stream_time(ts)
            self._expire()

    def _completed(self, port: int, key: bytes, value: Any, ts: int) -> Iterator[tuple[Any, int]]:
        """Depth first over the other streams; a partial choice spans ``[low, high]``."""
        within_ms = self._join.within_ms

        def choose(at: int, chosen: tuple[Any, ...], low: int, high: int) -> Iterator[tuple[Any, int]]:
            if at == len(self._buffers):
                yield self._join.joiner(*chosen), high
            elif at == port:
                yield from choose(at + 1, (*chosen, value), low, high)
            else:
                for entry in self._buffers[at].fetch(key, max(high - within_ms, 0), low + within_ms):
                    yield from choose(at + 1, (*chosen, entry.value), min(low, entry.time_ms), max(high, entry.time_ms))

        return choose(0, (), ts, ts)

    def _expire(self) -> None:
        kept_ms = self._join.within_ms + self._join.grace_ms
        for buffer in self._buffers:
            buffer.expire_before(self.stream_time_ms - kept_ms)

    def on_watermark(self, watermark_ms: int) -> None:
        for buffer in self._buffers:
            buffer.expire_before(watermark_ms - self._join.within_ms)
