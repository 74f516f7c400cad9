"""Hold records back until event time has passed them, and emit them in the order of their timestamps.

On stream time a record waits until the operator's stream time has reached its timestamp + ``hold_ms``; a record that is
later than that is emitted at once (Kafka Streams, KStream–KTable join with a grace period). On watermarks it waits for
the watermark to reach its timestamp; a record behind the watermark is emitted at once. Equal timestamps keep their
order of arrival (in Kafka Streams: that of keys). A record with a null key or a null value has no row to wait for: it
is emitted at once and does not advance stream time.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec

from penstock.state.serdes.serde import BYTES, Serde
from penstock.state.stores.segmented_store import SegmentedState
from penstock.state.stores.store import StoreSpec
from penstock.topologies.operator_api.operator import Operator, OperatorContext, OperatorSpec
from penstock.topologies.operators.base.row_operator import RowOperator


@dataclasses.dataclass(frozen=True, kw_only=True)
class GraceBufferSpec(OperatorSpec):
    """Holds records for ``hold_ms`` of event time; its one store is ``hold_store``."""

    hold_ms: int
    key_serde: Serde[Any]
    value_serde: Serde[Any]
    order_sensitive: bool = True

    def open(self, ctx: OperatorContext) -> Operator:
        """Build the operator of one task."""
        return _GraceBufferOperator(ctx, self)

    def details(self) -> dict[str, Any]:
        """For how long, and where."""
        return {"hold": f"{self.hold_ms} ms", "store": self.stores[0].name}


def hold_store(name: str, hold_ms: int) -> StoreSpec:
    """The spec of the store."""
    return StoreSpec(name, "list", BYTES, BYTES, retention_ms=max(hold_ms, 1))


_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]).decode


class _GraceBufferOperator(RowOperator):
    def __init__(self, ctx: OperatorContext, spec: GraceBufferSpec) -> None:
        super().__init__(ctx, spec)
        self._held = SegmentedState(ctx.state(spec.stores[0].name))
        self._hold = spec
        self._earliest_ms: int | None = None
        """A lower bound of the held times; ``None``: unknown, read the store."""

    def row(self, port: int, key: Any, value: Any, ts: int) -> None:
        if key is None or value is None:
            self.emit_row(key, value, ts)
            return
        on_watermarks = self._hold.uses_watermark
        passed_ms = self.watermark_ms if on_watermarks else self.advance_stream_time(ts) - self._hold.hold_ms
        if ts < passed_ms or (on_watermarks and ts == passed_ms):
            self.emit_row(key, value, ts)
        else:
            self._keep(key, value, ts)
        if not on_watermarks:
            self._release(passed_ms)

    def _keep(self, key: Any, value: Any, ts: int) -> None:
        packed = _pack(
            (
                None if key is None else self._hold.key_serde.serialize(key),
                None if value is None else self._hold.value_serde.serialize(value),
                self.headers,
            )
        )
        self._held.append(b"", ts, packed)
        if self._earliest_ms is not None:
            self._earliest_ms = min(self._earliest_ms, ts)

    def on_watermark(self, watermark_ms: int) -> None:
        self._release(watermark_ms)

    def _release(self, until_ms: int) -> None:
        if until_ms < 0 or (self._earliest_ms is not None and self._earliest_ms > until_ms):
            return
        read_key, read_value = self._hold.key_serde.deserialize, self._hold.value_serde.deserialize
        for held in self._held.fetch(b"", self._earliest_ms or 0, until_ms):
            key, value, headers = _unpack(held.value)
            self.emit_row(
                None if key is None else read_key(key),
                None if value is None else read_value(value),
                held.time_ms,
                headers=headers,
            )
            self._held.delete(b"", held.time_ms, held.suffix, held.time_ms)
        self._earliest_ms = until_ms + 1
