"""Holding a key: a record that fails waits, with all later records of its key, and is tried again until it succeeds.

Other keys go on. The waiting records are in a store, so that they outlive the worker. The first one of a key is tried at
growing intervals of the clock; when it succeeds, those behind it follow in their order, until one of them fails. Each
reading of the clock is journaled. A record without a key waits for nothing: it ends the worker, as under ``fail``.

What is emitted late keeps its timestamp and its headers. To windows downstream it may be late.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import msgspec

from penstock.state.log import Headers
from penstock.state.serdes.serde import BYTES, Serde
from penstock.state.stores.store import StoreSpec
from penstock.topologies.operator_api.batch import Batch
from penstock.topologies.operator_api.on_error import HoldKey, Retry
from penstock.topologies.operator_api.operator import Operator, OperatorContext, OperatorSpec
from penstock.topologies.operators.base.row_operator import RowOperator

_LENGTH, _NUMBER = struct.Struct(">I"), struct.Struct(">q")
_FRONT, _WAITING, _AFTER = b"f", b"w", b"g"
"""Store keys: ``f`` | key: the key's queue. ``w`` | length of the key (4) | key | number (8): a waiting record."""
_pack = msgspec.msgpack.Encoder().encode
_RECORD = msgspec.msgpack.Decoder(tuple[bytes | None, int, tuple[tuple[str, bytes | None], ...]])
_STAMP_MS = 1
"""Timestamp of the entries; brokers refuse those of the future."""
FIRING_MAX = 10_000
"""The most waiting records that one reading of the clock lets through."""


class Queue(NamedTuple):
    """The waiting records of a key: ``first`` to ``after``, exclusive. ``attempts``: how often the first one has failed;
    ``due_ms``: when it is tried again."""

    first: int
    after: int
    attempts: int
    due_ms: int


_QUEUE = msgspec.msgpack.Decoder(Queue)


def waiting_store(name: str) -> StoreSpec:
    """The spec of the store."""
    return StoreSpec(f"{name}-waiting", "key_value", BYTES, BYTES)


def holding(inner: OperatorSpec, name: str, key: Serde[Any], value: Serde[Any], policy: HoldKey) -> HoldingSpec:
    """The spec of operator ``name`` with the policy. ``key``, ``value``: the serdes of its input."""
    return HoldingSpec(
        in_ports=inner.in_ports,
        out_ports=inner.out_ports,
        emits=inner.emits,
        stores=(waiting_store(name),),
        inner=inner,
        key_serde=key,
        value_serde=value,
        policy=policy,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class HoldingSpec(OperatorSpec):
    """Runs ``inner``, an operator without state, record by record; see the module."""

    retries: ClassVar[bool] = True
    inner: OperatorSpec
    key_serde: Serde[Any]
    value_serde: Serde[Any]
    policy: HoldKey
    uses_wall_time: bool = True
    reads_wall_time: bool = True

    @property
    def kind(self) -> str:
        """That of the inner operator."""
        return self.inner.kind

    def open(self, ctx: OperatorContext) -> Operator:
        """Build the operator of one task."""
        return _HoldingOperator(ctx, self)

    def details(self) -> dict[str, Any]:
        """Those of the inner operator, and the policy."""
        return {**self.inner.details(), "on_error": "hold key", "store": self.stores[0].name}


class _Failed(Exception):
    """The inner operator failed at the record; its cause says why."""


class _InnerContext:
    """The context of the inner operator: what it emits and what fails comes to the outer one."""

    def __init__(self, ctx: OperatorContext, emit: Callable[[Batch, int], None]) -> None:
        self._ctx, self._emit = ctx, emit

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ctx, name)

    retry: Retry | None = None

    def retrying(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """The function alone: the queue is what repeats it."""
        return fn

    def emit(self, batch: Batch, port: int = 0) -> None:
        """Keep what the record gives."""
        self._emit(batch, port)

    def failed(self, batch: Batch, index: int, error: Exception, *, may_skip: bool = True) -> None:
        """End the record."""
        raise _Failed from error


class _HoldingOperator(RowOperator):
    def __init__(self, ctx: OperatorContext, spec: HoldingSpec) -> None:
        super().__init__(ctx, spec)
        self._holding = spec
        self._state = ctx.state(spec.stores[0].name)
        inner: Any = _InnerContext(ctx, self._emitted)
        self._inner = spec.inner.open(inner)
        self._queues: dict[bytes, Queue] | None = None
        self._waiting = 0
        self._next_ms: int | None = None
        self._next_known = False

    def resumed(self) -> None:
        super().resumed()
        self._loaded()

    # -- records ---------------------------------------------------------------------------------------------------

    def row(self, port: int, key: Any, value: Any, ts: int) -> None:
        if key is None:
            self._run(key, value, ts)
            return
        queues = self._loaded()
        name = self._holding.key_serde.serialize(key) if queues else b""
        if queues and (queue := queues.get(name)) is not None:
            self._append(name, queue, value, ts)
            return
        try:
            self._run(key, value, ts)
        except Exception as exc:
            self._report(key, value, ts, exc, 1)
            due_ms = self.wall_ms + self._holding.policy.pause_ms(1)
            self._append(self._holding.key_serde.serialize(key), Queue(0, 0, 1, due_ms), value, ts)

    def _run(self, key: Any, value: Any, ts: int) -> None:
        """Give a record to the inner operator. Raises what its function raised; then nothing was emitted."""
        sent = len(self._out)
        headers = [self.headers] if self.headers else None
        try:
            self._inner.process(0, Batch([key], [value], [ts], [self._order], headers))
        except _Failed as exc:
            del self._out[sent:]
            assert isinstance(exc.__cause__, Exception)
            raise exc.__cause__ from None

    def _emitted(self, batch: Batch, port: int) -> None:
        headers = [self.headers] * len(batch) if batch.headers is None else batch.headers
        for key, value, ts, own in zip(batch.keys, batch.values, batch.timestamps, headers, strict=True):
            self.emit_row(key, value, ts, headers=own, port=port)

    def _report(self, key: Any, value: Any, ts: int, error: Exception, attempts: int) -> None:
        """Raises the error if it is not the record's."""
        self.ctx.held(Batch([key], [value], [ts], [self._order]), 0, error, attempts)

    # -- queues ----------------------------------------------------------------------------------------------------

    def _loaded(self) -> dict[bytes, Queue]:
        """The queues by key. They are few: keys that fail now."""
        if self._queues is None:
            found = self._state.range(_FRONT, _AFTER)
            self._queues = {data[1:]: _QUEUE.decode(queue) for data, queue, _ in found}
            self._count(sum(map(_length, self._queues.values())))
        return self._queues

    def _append(self, name: bytes, queue: Queue, value: Any, ts: int) -> None:
        data = None if value is None else self._holding.value_serde.serialize(value)
        self._state.put(_place(name, queue.after), _pack((data, ts, self.headers)), _STAMP_MS)
        self._keep(name, queue._replace(after=queue.after + 1))

    def _keep(self, name: bytes, queue: Queue | None) -> None:
        queues = self._loaded()
        before = queues.pop(name, None)
        if queue is not None:
            queues[name] = queue
        self._count(self._waiting + _length(queue) - _length(before))
        self._state.put(_FRONT + name, None if queue is None else _pack(queue), _STAMP_MS)
        self._next_known = False

    def _count(self, waiting: int) -> None:
        self._waiting = waiting
        self.ctx.holds(waiting)

    def next_wall_ms(self) -> int | None:
        if not self._next_known:
            self._next_ms = min((queue.due_ms for queue in self._loaded().values()), default=None)
            self._next_known = True
        return self._next_ms

    def on_wall(self, now_ms: int) -> None:
        due = sorted((queue.due_ms, name) for name, queue in self._loaded().items() if queue.due_ms <= now_ms)
        left = FIRING_MAX
        for _, name in due:
            left = self._try(name, now_ms, left)
            if not left:
                return

    def _try(self, name: bytes, now_ms: int, left: int) -> int:
        """Let the records of a key through until one fails. Returns how many more may follow."""
        queue = self._loaded()[name]
        key = self._holding.key_serde.deserialize(name)
        while queue.first < queue.after and left:
            place = _place(name, queue.first)
            found = self._state.get(place)
            assert found is not None, place
            data, ts, headers = _RECORD.decode(found[0])
            value = None if data is None else self._holding.value_serde.deserialize(data)
            if not self._passes(key, value, ts, headers, queue.attempts + 1):
                attempts = queue.attempts + 1
                self._keep(name, queue._replace(attempts=attempts, due_ms=now_ms + self._pause_ms(attempts)))
                return left
            self._state.put(place, None, _STAMP_MS)
            queue = queue._replace(first=queue.first + 1, attempts=0)
            left -= 1
        self._keep(name, queue if queue.first < queue.after else None)
        return left

    def _pause_ms(self, attempts: int) -> int:
        return self._holding.policy.pause_ms(attempts)

    def _passes(self, key: Any, value: Any, ts: int, headers: Headers, attempts: int) -> bool:
        self.headers = headers
        try:
            self._run(key, value, ts)
        except Exception as exc:
            self._report(key, value, ts, exc, attempts)
            return False
        finally:
            self.headers = ()
        return True


def _length(queue: Queue | None) -> int:
    return 0 if queue is None else queue.after - queue.first


def _place(name: bytes, number: int) -> bytes:
    return _WAITING + _LENGTH.pack(len(name)) + name + _NUMBER.pack(number)
