"""The as-of join of two streams: each left record is joined with the right record of its key that is nearest in time.

``backward``: the latest right record at or before the left one's time; ``forward``: the first at or after it;
``nearest``: whichever is closer, the earlier one if both are equally close. It must be at most ``tolerance_ms`` away.
Of several with one timestamp the last to arrive counts. A left record waits until no such right record can arrive any
more: on stream time (the highest of both sides) for ``grace_ms`` after the last timestamp that counts, on watermarks
for the watermark. Results are emitted in the order of the left records' timestamps, then arrival, with those
timestamps. A left record that arrives when its wait is already over is joined at once with what is there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from penstock.state.serdes.serde import BYTES
from penstock.state.stores.segmented_store import SegmentedEntry, SegmentedState
from penstock.state.stores.store import StoreSpec
from penstock.topologies.operator_api.edge_kinds import Emits
from penstock.topologies.operator_api.operator import Operator, OperatorContext, OperatorSpec
from penstock.topologies.operators.base.row_operator import RowOperator

Direction = Literal["backward", "forward", "nearest"]
_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(tuple[bytes, bytes, tuple[tuple[str, bytes | None], ...]]).decode


@dataclasses.dataclass(frozen=True, kw_only=True)
class AsOfJoinSpec(OperatorSpec):
    """``joiner(left, right)``; ``left``: also with ``None``. Stores: waiting left records, right records."""

    joiner: Callable[[Any, Any], Any]
    direction: Direction
    tolerance_ms: int
    grace_ms: int
    left_value: Any
    left: bool = False
    in_ports: tuple[str, ...] = ("left", "right")
    emits: Emits = "insert"
    order_sensitive: bool = True

    @property
    def ahead_ms(self) -> int:
        """How far after a left record a right one may be."""
        return 0 if self.direction == "backward" else self.tolerance_ms

    def open(self, ctx: OperatorContext) -> Operator:
        """Build the operator of one task."""
        return _AsOfJoinOperator(ctx, self)

    def details(self) -> dict[str, Any]:
        """Kind and bounds."""
        return {
            "type": "left" if self.left else "inner",
            "direction": self.direction,
            "tolerance": f"{self.tolerance_ms} ms",
            "grace": f"{self.grace_ms} ms",
        }


def as_of_stores(
    name: str, key: Any, right: Any, direction: Direction, tolerance_ms: int, grace_ms: int
) -> tuple[StoreSpec, StoreSpec]:
    """The stores of an as-of join called ``name``."""
    wait_ms = grace_ms + (0 if direction == "backward" else tolerance_ms)
    return (
        StoreSpec(f"{name}-left", "list", BYTES, BYTES, retention_ms=max(wait_ms, 1)),
        StoreSpec(f"{name}-right", "list", key, right, retention_ms=max(wait_ms + tolerance_ms, 1)),
    )


class _AsOfJoinOperator(RowOperator):
    def __init__(self, ctx: OperatorContext, spec: AsOfJoinSpec) -> None:
        super().__init__(ctx, spec)
        self._join = spec
        waiting, right = spec.stores
        self._waiting = SegmentedState(ctx.state(waiting.name))
        self._right = SegmentedState(ctx.state(right.name))
        self._keys = right.key_serde
        self._keep_ms = right.retention_ms or 1
        self._earliest_ms = 0
        """A lower bound of the times of waiting left records."""

    def resumed(self) -> None:
        super().resumed()
        self._right.expire_before(self._passed_ms() - self._keep_ms)

    def _passed_ms(self) -> int:
        return self.watermark_ms if self._join.uses_watermark else self.stream_time_ms

    def _over(self, ts: int) -> bool:
        """Whether every right record that may count for a left one at ``ts`` has arrived."""
        if self._join.uses_watermark:
            return self.watermark_ms >= ts + self._join.ahead_ms
        return self.stream_time_ms >= ts + self._join.ahead_ms + self._join.grace_ms

    def row(self, port: int, key: Any, value: Any, ts: int) -> None:
        if key is None or value is None:
            self._without_key_or_value(port, value, ts)
            return
        key_bytes = self._keys.serialize(key)
        if port == 1:
            self._right.append(key_bytes, ts, value)
            self._pass_time(ts)
            return
        if self._over(ts):
            self._meet(key, key_bytes, value, ts)
            return
        self._waiting.append(b"", ts, _pack((key_bytes, self._join.left_value.serialize(value), self.headers)))
        self._earliest_ms = min(self._earliest_ms, ts)
        self._pass_time(ts)

    def _without_key_or_value(self, port: int, value: Any, ts: int) -> None:
        if value is not None and port == 0 and self._join.left:
            result = self._join.joiner(value, None)
            self._pass_time(ts)
            self.emit_row(None, result, ts)
            return
        self._pass_time(ts)
        self.ctx.dropped("null_value" if value is None else "null_key")

    def _pass_time(self, ts: int) -> None:
        if not self._join.uses_watermark:
            before_ms = self.stream_time_ms
            if before_ms < self.advance_stream_time(ts):
                self._release(self.stream_time_ms - self._join.grace_ms - self._join.ahead_ms)

    def on_watermark(self, watermark_ms: int) -> None:
        self._release(watermark_ms - self._join.ahead_ms)

    def _release(self, until_ms: int) -> None:
        if until_ms >= self._earliest_ms:
            for held in self._waiting.fetch(b"", self._earliest_ms, until_ms):
                key_bytes, value, headers = _unpack(held.value)
                left = self._join.left_value.deserialize(value)
                key = self._keys.deserialize(key_bytes)
                try:
                    self._meet(key, key_bytes, left, held.time_ms, headers)
                except Exception as exc:
                    self.failed_waiting(key, left, held.time_ms, exc)
                self._waiting.delete(b"", held.time_ms, held.suffix, held.time_ms)
            self._earliest_ms = until_ms + 1
        self._right.expire_before(self._passed_ms() - self._keep_ms)

    def _meet(self, key: Any, key_bytes: bytes, value: Any, ts: int, headers: Any = None) -> None:
        found = self._nearest(key_bytes, ts)
        if found is not None:
            self.emit_row(key, self._join.joiner(value, found.value), ts, headers=headers)
        elif self._join.left:
            self.emit_row(key, self._join.joiner(value, None), ts, headers=headers)

    def _nearest(self, key: bytes, ts: int) -> SegmentedEntry | None:
        tolerance_ms, direction = self._join.tolerance_ms, self._join.direction
        behind = ahead = None
        if direction != "forward":
            behind = next(self._right.fetch(key, max(ts - tolerance_ms, 0), ts, reverse=True), None)
        if direction != "backward":
            ahead = self._first_ahead(key, ts, ts + tolerance_ms)
        if behind is None or ahead is None:
            return behind or ahead
        return behind if ts - behind.time_ms <= ahead.time_ms - ts else ahead

    def _first_ahead(self, key: bytes, from_ms: int, to_ms: int) -> SegmentedEntry | None:
        first = next(self._right.fetch(key, from_ms, to_ms), None)
        if first is None:
            return None
        return next(self._right.fetch(key, first.time_ms, first.time_ms, reverse=True))
