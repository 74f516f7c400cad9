"""Suppress: hold back a table's changes until a time has passed, until windows close, or until the buffer is full.

For each key the newest change is kept, at the place of the first one that was held back: ordered by buffer time, then
key bytes. The buffer time is the change's timestamp (time limit) or the window's end (window close). Every change
advances T (stream time; for windows under watermarks or in processing time that time). Then changes are emitted whose
buffer time + limit (or + grace) T has reached. They keep their own timestamp and headers. All this is Kafka Streams'
behaviour.

* Until windows close: each window's key is emitted once, at T >= end + grace (+ gap for sessions). Deletions are not
  emitted, because the row never existed downstream. Sessions and sliding windows accept records up to T = that time
  itself, so one that gets a record at exactly that time is emitted again; with ``emission="on_close"`` it would not
  be.
* A buffer with more than ``max_records`` keys or ``max_bytes`` emits its oldest change early, or stops the
  application. A key counts 28 bytes, its own bytes, those of the value, of the last emitted value if old values are
  needed, and of headers.

The store holds one entry per held key, under the key; the order among them is rebuilt when a task starts.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, NamedTuple

import msgspec
from sortedcontainers import SortedList

from penstock.state.errors import UserError
from penstock.state.log import Headers
from penstock.state.serdes.serde import Serde
from penstock.state.stores.store import StoreSpec
from penstock.topologies.operator_api.edge_kinds import Emits
from penstock.topologies.operator_api.operator import Operator, OperatorContext, OperatorSpec
from penstock.topologies.operators.base.row_operator import RowOperator
from penstock.topologies.operators.windows.window_closing import ClosingTime
from penstock.topologies.windows import Duration, duration_ms

SuppressWhenFull = Literal["emit_early", "shut_down"]
ENTRY_BYTES = 28
"""The overhead of a key in the buffer: buffer time, timestamp, place in the log."""


@dataclasses.dataclass(frozen=True)
class Until:
    """When changes are emitted: ``limit_ms`` after their buffer time. ``closes``: the buffer time is the window's
    end, and the limit its grace (``None``: that of the windows)."""

    limit_ms: int | None
    closes: bool = False


def until_time_limit(limit: Duration) -> Until:
    """Hold a key's changes back until stream time is ``limit`` past the first of them."""
    return Until(duration_ms(limit))


def until_window_closes(*, grace: Duration | None = None) -> Until:
    """Emit only the last change of each window, once the window has closed. ``grace``: how long after its end it
    closes (for sessions: gap + grace); only for tables whose windows this topology does not create."""
    return Until(None if grace is None else duration_ms(grace), closes=True)


class Buffered(NamedTuple):
    """A change that is held back. ``emitted``: the last emitted value, if old values are needed."""

    time_ms: int
    timestamp_ms: int
    headers: tuple[tuple[str, bytes | None], ...]
    emitted: bytes | None
    new: bytes | None

    def size(self, key: bytes) -> int:
        """The bytes that it counts."""
        headers = sum(len(name) + len(data or b"") for name, data in self.headers)
        return ENTRY_BYTES + len(key) + len(self.emitted or b"") + len(self.new or b"") + headers


BUFFERED: Serde[Buffered] = Serde(
    "suppressed",
    msgspec.msgpack.Encoder().encode,
    msgspec.msgpack.Decoder(Buffered).decode,
    immutable=True,
    exact=Buffered,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SuppressSpec(OperatorSpec):
    """See the module. ``value_serde``: that of the table's values. ``max_records``, ``max_bytes``: ``None`` for no
    bound."""

    limit_ms: int
    closes: bool
    value_serde: Serde[Any]
    max_records: int | None = None
    max_bytes: int | None = None
    when_full: SuppressWhenFull = "emit_early"
    clock: ClosingTime = "stream_time"
    emits: Emits = "upsert"

    @property
    def store(self) -> StoreSpec:
        """The buffer."""
        return self.stores[0]

    def open(self, ctx: OperatorContext) -> Operator:
        """Build the operator of one task."""
        return _SuppressOperator(ctx, self)

    def details(self) -> dict[str, Any]:
        """Limits and store."""
        shown: dict[str, Any] = {"store": self.store.name}
        shown["until"] = f"window close + {self.limit_ms} ms" if self.closes else f"{self.limit_ms} ms"
        if self.max_records is not None:
            shown["max_records"] = self.max_records
        if self.max_bytes is not None:
            shown["max_bytes"] = self.max_bytes
        return {**shown, "when_full": self.when_full} if len(shown) > 2 else shown


class _SuppressOperator(RowOperator):
    """``stream_time_ms`` is T."""

    def __init__(self, ctx: OperatorContext, spec: SuppressSpec) -> None:
        super().__init__(ctx, spec)
        self._spec = spec
        self._state = ctx.state(spec.store.name)
        self._key_serde = spec.store.key_serde
        self._order_of: SortedList[tuple[int, bytes]] = SortedList()
        """Buffer time and key of what is held back."""
        self._bytes = 0

    def resumed(self) -> None:
        super().resumed()
        found = [(held.time_ms, key, held.size(key)) for key, held, _ in self._state.range()]
        self._order_of = SortedList((time_ms, key) for time_ms, key, _ in found)
        self._bytes = sum(size for _, _, size in found)

    # -- time ----------------------------------------------------------------------------------------------------

    def _move(self, now_ms: int) -> None:
        """Advance T to ``now_ms``, unless it is already later, and emit what is due."""
        self.stream_time_ms = max(self.stream_time_ms, now_ms)
        due_ms = self.stream_time_ms - self._spec.limit_ms
        while self._order_of and self._order_of[0][0] <= due_ms:
            self._let_go()

    def on_watermark(self, watermark_ms: int) -> None:
        self._move(watermark_ms + 1)

    def on_wall(self, now_ms: int) -> None:
        self._move(now_ms)

    def next_wall_ms(self) -> int | None:
        if self._spec.clock != "wall" or not self._order_of:
            return None
        return int(self._order_of[0][0]) + self._spec.limit_ms

    # -- changes -------------------------------------------------------------------------------------------------

    def row(self, port: int, key: Any, value: Any, ts: int) -> None:
        if key is None:
            self.ctx.dropped("null_key")
            return
        self._hold(self._key_serde.serialize(key), key, value, ts)
        clock = self._spec.clock
        self._move(ts if clock == "stream_time" else self.watermark_ms + 1 if clock == "watermark" else self.wall_ms)
        while self._over():
            if self._spec.when_full == "shut_down":
                raise UserError(self._full())
            self._let_go()

    def _hold(self, data: bytes, key: Any, value: Any, ts: int) -> None:
        write = self._spec.value_serde.serialize
        new = None if value is None else write(value)
        found = self._state.get(data)
        if found is None:
            time_ms = key.end_ms if self._spec.closes else ts
            emitted = write(self.old) if self._sends_olds and self.old is not None else None
            self._order_of.add((time_ms, data))
        else:
            before: Buffered = found[0]
            time_ms, emitted = before.time_ms, before.emitted
            self._bytes -= before.size(data)
        held = Buffered(time_ms, ts, tuple(self.headers), emitted, new)
        self._bytes += held.size(data)
        self._state.put_entry(data, self._state.entry_of(held, ts), ts, new=found is None)

    def _let_go(self) -> None:
        """Emit the first of the buffer."""
        _, data = self._order_of.pop(0)
        found = self._state.get(data)
        assert found is not None, data
        held: Buffered = found[0]
        self._state.put(data, None, held.timestamp_ms)
        self._bytes -= held.size(data)
        if held.new is None and self._spec.closes:
            return
        read = self._spec.value_serde.deserialize
        headers: Headers = held.headers
        self.emit_row(
            self._key_serde.deserialize(data),
            None if held.new is None else read(held.new),
            held.timestamp_ms,
            old=None if held.emitted is None else read(held.emitted),
            headers=headers,
        )

    # -- bounds --------------------------------------------------------------------------------------------------

    def _over(self) -> bool:
        records, size = self._spec.max_records, self._spec.max_bytes
        return (records is not None and len(self._order_of) > records) or (size is not None and self._bytes > size)

    def _full(self) -> str:
        return (
            f"operator {self.ctx.name}: its buffer is over capacity: {len(self._order_of)} records of at most "
            f"{self._spec.max_records}, {self._bytes} bytes of at most {self._spec.max_bytes} (None: no bound); nothing "
            "of this batch is committed. Raise the bound, or let changes go early with when_full='emit_early'"
        )
