"""The processor API, in the manner of Samza and Kafka Streams: a user's class, its stores and timers.

A subclass of ``Processor`` overrides ``process(record, ctx)``, or ``process_batch(batch, ctx)`` for the hot path, whose
answer must not depend on where batches are cut. One instance serves one task. What is forwarded leaves when the method
returns, in the order of the calls.

Timers fire on a grid: a timer of interval ``i`` fires when time reaches or passes a multiple of ``i``, once however many
multiples were passed. So its next firing follows from stream time alone, which is committed with the offsets, and a
restart neither loses nor repeats one. Stream-time timers fire right after the record that moved stream time was
processed; wall-clock timers fire between batches, at the clock reading that the task's journal records.

The first firing is on the grid, too. Kafka Streams also fires a stream-time timer at the first record, and counts a
wall-clock timer's interval from when it was scheduled. Here a timer fires first when time passes a multiple after the first
record, or after the first reading of the clock that the journal has: a replay knows of no other beginning.

Window and session stores lose what is older than their retention behind the processor's stream time, in steps of a
tenth of the retention (of an hour at most, well within what changelogs keep beyond it), right before the record that
brings stream time to a step, and before the run of ``process_batch`` that it begins. So what a processor reads follows
from the records alone. Those of a table, which are only lent to the processor, are the table's to expire. Processors
that share a store expire it by whichever is ahead.

Timers of a key (``set_timer``, as Beam and Flink have them) fire once, at any time, and live in changelogged stores: see
``penstock.topologies.operators.processors.keyed_timers``.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, ClassVar, Generic, Literal, NamedTuple, overload

from penstock.state.errors import SerdeError, TopologyError
from penstock.state.log import Headers, Record, TaskId
from penstock.state.serdes.serde import BYTES, Serde, serde_of
from penstock.state.stores.store import StoreSpec
from penstock.state.stores.typed_stores import KeyWindowStore, SessionStore, WindowStore, store_facade
from penstock.state.type_parameters import KIn, KOut, S, VIn, VOut
from penstock.topologies.functions import is_async
from penstock.topologies.operator_api.batch import Batch
from penstock.topologies.operator_api.operator import NO_TIME, Operator, OperatorContext, OperatorSpec
from penstock.topologies.operator_api.random_draws import Draws
from penstock.topologies.operators.processors.keyed_timers import Domain, KeyedTimers, Timer, keyed_timer_stores

TimeKind = Literal["stream_time", "wall_time", "event", "processing"]
_AT_HAND: Any = object()
_STEP_MAX_MS = 3_600_000


class Processor(Generic[KIn, VIn, KOut, VOut]):
    """The base class of users' processors: ``Processor[KIn, VIn, KOut, VOut]`` has the types of its input and of what
    it forwards. ``stores`` and ``out_ports`` are declared on the class; the constructor takes no arguments unless
    ``ProcessorSpec`` gets a factory."""

    stores: ClassVar[tuple[StoreSpec, ...]] = ()
    out_ports: ClassVar[tuple[str, ...]] = ("out",)
    timers: ClassVar[tuple[TimeKind, ...]] = ()
    """Which kinds of timers ``init`` schedules (``stream_time``, ``wall_time``), and in which time timers of keys are set
    (``event``, ``processing``); others are refused."""
    timer_key: ClassVar[Any] = str
    """The serde of the keys of timers, or what names one."""
    reads_clock: ClassVar[bool] = False
    """Whether ``ctx.wall_time_ms`` is used: then the clock is read, and journaled, before records are taken."""

    def init(self, ctx: ProcessorContext[KOut, VOut]) -> None:
        """Called once before the first record, after the stores are restored: look up stores, schedule timers."""

    def process(self, record: Record[KIn, VIn], ctx: ProcessorContext[KOut, VOut]) -> None:
        """One record. When it raises, what it forwarded is dropped and the policy decides; what it wrote to stores
        stays."""
        raise TypeError(f"{type(self).__name__} overrides neither process nor process_batch")

    def on_timer(self, timer: Timer, ctx: ProcessorContext[KOut, VOut]) -> None:
        """A timer of a key has fired. If it raises, the task stops, because there is no record to skip."""
        raise TypeError(f"{type(self).__name__} sets timers and has no on_timer")

    def process_batch(self, batch: Batch, ctx: ProcessorContext[KOut, VOut]) -> None:
        """Process a run of records; by default ``process`` for each. Use ``forward_batch``, which keeps each record's
        place in the order. If it raises, the task stops under every policy: it is unknown which of the records were
        done."""
        raise TypeError(f"{type(self).__name__} overrides neither process nor process_batch")


@dataclasses.dataclass(frozen=True, slots=True)
class _Timer:
    interval_ms: int
    callback: Callable[[int], None]

    def due(self, before_ms: int, now_ms: int) -> bool:
        """A multiple of the interval lies in ``(before, now]``."""
        return before_ms != NO_TIME and now_ms // self.interval_ms > before_ms // self.interval_ms


class ProcessorContext(Generic[KOut, VOut]):
    """The services that a processor may use. Time, stores and outputs come only from here: no clock, no randomness."""

    def __init__(self, ctx: OperatorContext, spec: ProcessorSpec) -> None:
        self._ctx = ctx
        self._ports = spec.out_ports
        self._timer_kinds = spec.timers
        self._stores = {s.name: store_facade(ctx.state(s.name)) for s in spec.stores}
        self.task: TaskId = ctx.task
        self.timestamp_ms = 0
        """Event time of the current record; in a timer, the time of the firing."""
        self.headers: Headers = ()
        self.stream_time_ms = NO_TIME
        """Highest timestamp that this processor has seen."""
        self.in_batch = False
        """Whether ``process_batch`` is running."""
        self._order = 0
        self._draws = Draws()
        self._reads_clock = spec.reads_wall_time
        self._out: list[tuple[int, Any, Any, int, int, Headers]] = []
        self.stream_timers: list[_Timer] = []
        self.wall_timers: list[_Timer] = []
        self.timers = KeyedTimers(ctx, spec.timer_owner, spec.timer_key) if spec.timer_owner else None
        """Those of keys."""
        self._key: Any = None

    @property
    def draws(self) -> Draws:
        """Randomness and ids for the current record or firing, the same on every run of it."""
        if self.in_batch:
            raise TypeError("draws belong to one record, and process_batch has none: use process")
        stride = self._ctx.time.stride
        origin: Any = self._ctx.origin(self._order) or ("clock", self._ctx.time.wall_ms, self._ctx.task)
        self._draws.at(self._ctx.name, self._order % stride, origin)
        return self._draws

    @property
    def wall_time_ms(self) -> int:
        """Processing time: the journaled reading of the clock under which the current record runs. The class must say
        ``reads_clock = True``."""
        if not self._reads_clock:
            raise TopologyError(f"{self._ctx.name} reads the time; declare it on the class: reads_clock = True")
        return self._ctx.time.wall_ms

    @overload
    def store(self, store: StoreSpec[S]) -> S: ...

    @overload
    def store(self, store: str) -> Any: ...

    def store(self, store: StoreSpec[S] | str) -> Any:
        """One of the declared stores, by its spec or its name: a ``KeyValueStore``, a ``WindowStore`` … Type checkers
        know the keys and values if it is requested by its spec."""
        name = store if isinstance(store, str) else store.name
        if name not in self._stores:
            raise TopologyError(
                f"{self._ctx.name} asks for store {name!r}, which it does not declare; "
                f"it has: {', '.join(self._stores) or 'none'}"
            )
        return self._stores[name]

    def forward(
        self,
        key: KOut | None,
        value: VOut | None,
        *,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
        port: str = "out",
    ) -> None:
        """Forward a record; time and headers are those of the current record unless given."""
        if port not in self._ports:
            raise TopologyError(f"{self._ctx.name} has no out port {port!r}; it has: {', '.join(self._ports)}")
        if self.in_batch:
            raise TypeError("forward gives a record the place of the current one; in process_batch use forward_batch")
        ts = self.timestamp_ms if timestamp_ms is None else timestamp_ms
        if ts < 0:
            raise ValueError(f"timestamp_ms={ts} is negative; forward a time of 0 or later")
        hs = self.headers if headers is None else headers
        self._out.append((self._ports.index(port), key, value, ts, self._order, hs))

    def forward_batch(self, batch: Batch, port: str = "out") -> None:
        """Forward a run of records, from ``process_batch``; its ``order`` is that of the records it was made from."""
        self.send()
        self._ctx.emit(batch, self._ports.index(port))

    def schedule(self, interval_ms: int, callback: Callable[[int], None], kind: TimeKind = "stream_time") -> None:
        """Call ``callback(time_ms)`` each time that the time passes a multiple of the interval. In ``init`` only."""
        if interval_ms < 1:
            raise TopologyError(f"{self._ctx.name} schedules a timer every {interval_ms} ms; it must be at least 1")
        if kind not in self._timer_kinds:
            raise TopologyError(f"{self._ctx.name} schedules a {kind} timer; declare it: timers = ({kind!r},)")
        timers = self.stream_timers if kind == "stream_time" else self.wall_timers
        timers.append(_Timer(interval_ms, callback))

    def set_timer(self, name: str, time_ms: int, domain: Domain = "event", *, key: Any = _AT_HAND) -> None:
        """Call ``on_timer`` once for this key (by default that of the current record or timer) when the watermark, or
        the clock, has reached ``time_ms``. A timer with the same name and key is moved. If the time has already
        passed, it fires right after the current record, or at the next reading of the clock."""
        self._timers_of(domain).set(name, self._timer_key(key), time_ms, domain)

    def delete_timer(self, name: str, domain: Domain = "event", *, key: Any = _AT_HAND) -> None:
        """Forget a timer; nothing happens when there is none."""
        self._timers_of(domain).delete(name, self._timer_key(key), domain)

    def _timers_of(self, domain: Domain) -> KeyedTimers:
        if self.timers is None or domain not in self._timer_kinds:
            raise TopologyError(f"{self._ctx.name} sets a timer in {domain} time; declare it: timers = ({domain!r},)")
        return self.timers

    def _timer_key(self, key: Any) -> Any:
        if key is not _AT_HAND:
            return key
        if self.in_batch or self._key is None:
            raise TypeError("there is no current record with a key; name the timer's key: key=…")
        return self._key

    def count(self, name: str, amount: int = 1) -> None:
        """Add to a counter of the processor's own, which the runner shows as ``<operator>.user.<name>``."""
        self._ctx.count(name, amount)

    def commit(self) -> None:
        """Request a commit right after this batch."""
        self._ctx.request_commit()

    def shutdown(self) -> None:
        """Request that the worker commits and stops after this batch."""
        self._ctx.request_shutdown()

    # -- for the running form ------------------------------------------------------------------------------------

    def at(self, timestamp_ms: int, headers: Headers, order: int, key: Any = None) -> None:
        """The record or firing that follows."""
        self._key = key
        self.timestamp_ms = timestamp_ms
        self.headers = headers
        self._order = order
        for store in self._stores.values():
            store.timestamp_ms = timestamp_ms

    def send(self) -> None:
        """Emit the forwarded records, in order."""
        out, self._out = self._out, []
        start = 0
        for i in range(1, len(out) + 1):
            if i == len(out) or out[i][0] != out[start][0]:
                port, keys, values, times, order, headers = zip(*out[start:i], strict=True)
                batch = Batch(
                    list(keys), list(values), list(times), list(order), list(headers) if any(headers) else None
                )
                self._ctx.emit(batch, port[0])
                start = i

    def drop_forwarded(self, count: int) -> None:
        """Drop all forwarded records after the first ``count`` (their record failed)."""
        del self._out[count:]

    @property
    def forwarded(self) -> int:
        """How many forwarded records wait to be sent."""
        return len(self._out)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProcessorSpec(OperatorSpec):
    """A user's processor in the graph. ``factory`` makes one instance per task."""

    factory: Callable[[], Processor]
    timers: tuple[TimeKind, ...] = ()
    timer_owner: str | None = None
    """The operator that timers of keys are kept for; ``None``: it has none."""
    timer_key: Serde[Any] = BYTES
    lent: frozenset[str] = frozenset()
    """Names of stores that are another operator's to expire."""
    order_sensitive: bool = True

    def open(self, ctx: OperatorContext) -> Operator:
        """Build the operator of one task."""
        return _ProcessorOperator(ctx, self)


def processor_spec(
    factory: Callable[[], Processor], *, stores: tuple[StoreSpec, ...] = (), name: str | None = None
) -> ProcessorSpec:
    """The spec of a ``Processor`` class (or of a factory: then stores, ports and timers are read off an instance).
    ``name``: the operator's, by which its timers are kept; needed when it sets timers of keys."""
    like: Any = factory if isinstance(factory, type) else factory()
    hooks = [hook for hook in dir(Processor) if not hook.startswith("_") and is_async(getattr(like, hook, None))]
    if hooks:
        raise TopologyError(
            f"{like!r:.100} has an async {hooks[0]}, and nothing awaits it; call other services with lookup(fn, answer=…), "
            "or make it a plain method"
        )
    keyed = "event" in like.timers or "processing" in like.timers
    if keyed and name is None:
        raise TopologyError(f"{like!r:.100} sets timers of keys, which are kept by its operator's name; give name=…")
    return ProcessorSpec(
        factory=factory,
        stores=(*like.stores, *stores, *(keyed_timer_stores(name) if keyed and name is not None else ())),
        out_ports=like.out_ports,
        timers=like.timers,
        timer_owner=name if keyed else None,
        timer_key=as_key_serde(like.timer_key) if keyed else BYTES,
        uses_stream_time="stream_time" in like.timers,
        uses_watermark="event" in like.timers,
        uses_wall_time="wall_time" in like.timers or "processing" in like.timers or like.reads_clock,
        reads_wall_time=like.reads_clock or "processing" in like.timers,
    )


def as_key_serde(like: Any) -> Serde[Any]:
    """The serde of timers' keys. Raises ``TopologyError`` for what is none."""
    try:
        return serde_of(like)
    except (SerdeError, TypeError) as exc:
        raise TopologyError(f"timer_key: {exc}") from exc


class _Expiring(NamedTuple):
    """A store of the processor's own that drops old entries, in steps that follow from stream time."""

    store: WindowStore[Any, Any] | KeyWindowStore[Any, Any] | SessionStore[Any, Any]
    retention_ms: int
    step_ms: int

    def expire(self, stream_time_ms: int) -> int:
        """Drop what is behind the last step; returns the stream time of the next one."""
        step = max((stream_time_ms - self.retention_ms) // self.step_ms, 0)
        if step:
            self.store.expire_before(step * self.step_ms)
        return (step + 1) * self.step_ms + self.retention_ms


class _ProcessorOperator(Operator):
    def __init__(self, ctx: OperatorContext, spec: ProcessorSpec) -> None:
        super().__init__(ctx)
        self._user = spec.factory()
        self._context = ProcessorContext(ctx, spec)
        self._batched = type(self._user).process_batch is not Processor.process_batch
        self._timed = spec.timed
        self._watermark = "event" in spec.timers
        self._place = 0
        """The first place of the current batch whose stream time has not been shown to the timers."""
        self._expiring = [
            _Expiring(store, s.retention_ms, max(min(s.retention_ms // 10, _STEP_MAX_MS), 1))
            for s in spec.stores
            if s.retention_ms is not None and s.name not in spec.lent
            if isinstance(store := self._context.store(s.name), WindowStore | KeyWindowStore | SessionStore)
        ]
        self._next_expiry_ms: float = NO_TIME
        """The stream time at which a store next loses something."""

    def resumed(self) -> None:
        self._context.stream_time_ms = self.stream_time_ms
        self._expire()
        self._user.init(self._context)

    def _expire(self) -> None:
        steps = [store.expire(self.stream_time_ms) for store in self._expiring]
        self._next_expiry_ms = min(steps, default=math.inf)

    def _advance_stream_time(self, ts: int) -> None:
        self._context.stream_time_ms = self.stream_time_ms = ts
        if ts >= self._next_expiry_ms:
            self._expire()

    def process(self, port: int, batch: Batch) -> None:
        if not len(batch):
            return
        batch = batch.listed()
        if self._batched:
            self._process_batch(batch)
            return
        stride = self.ctx.time.stride
        for i in range(len(batch)):
            if self._timed:
                self._fire_until(batch.order[i] // stride)
            self._process_one(batch, i)
        self._context.send()

    def _process_one(self, batch: Batch, i: int) -> None:
        context = self._context
        ts = batch.timestamps[i]
        context.at(ts, () if batch.headers is None else batch.headers[i], batch.order[i], batch.keys[i])
        if ts > context.stream_time_ms:
            self._advance_stream_time(ts)
        sent = context.forwarded
        try:
            self._user.process(batch.record(i), context)
        except Exception as exc:
            context.drop_forwarded(sent)
            self.ctx.failed(batch, i, exc)

    def _process_batch(self, batch: Batch) -> None:
        """Whole runs, cut where a timer is due or a store drops entries."""
        context, stride = self._context, self.ctx.time.stride
        start = 0
        while start < len(batch):
            stop = len(batch)
            if self._timed:
                self._fire_until(batch.order[start] // stride)
                place = batch.order[start] // stride
                stop = start + 1
                while stop < len(batch) and batch.order[stop] // stride == place:
                    stop += 1
            if batch.timestamps[start] > context.stream_time_ms:
                self._advance_stream_time(batch.timestamps[start])
            if self._expiring:
                stop = self._until_expiry(batch.timestamps, start + 1, stop)
            run = batch.slice(start, stop)
            latest = max(run.timestamps)
            if latest > context.stream_time_ms:
                self._advance_stream_time(latest)
            context.at(latest, (), run.order[-1])
            context.in_batch = True
            try:
                self._user.process_batch(run, context)
            except Exception as exc:
                self.ctx.failed(run, 0, exc, may_skip=False)
            finally:
                context.in_batch = False
            context.send()
            start = stop

    def _until_expiry(self, timestamps: list[int], start: int, stop: int) -> int:
        """The first of these places whose record brings stream time to where a store loses something, or ``stop``."""
        due_ms = self._next_expiry_ms
        return next((i for i in range(start, stop) if timestamps[i] >= due_ms), stop)

    # -- timers --------------------------------------------------------------------------------------------------

    def _fire_until(self, place: int) -> None:
        """Fire what the records before ``place`` made due."""
        time = self.ctx.time
        while self._place < place:
            self._fire_stream(time.by_place_ms[self._place], self._place)
            if self._watermark:
                order = self._place * time.stride + 1 + self.ctx.index
                self._fire_keyed("event", time.watermark_by_place_ms[self._place], order)
            self._place += 1

    def _fire_stream(self, now_ms: int, place: int) -> None:
        time = self.ctx.time
        before_ms = time.by_place_ms[place - 1] if place else time.before_ms
        if now_ms != before_ms:
            self._fire(self._context.stream_timers, before_ms, now_ms, place * time.stride + 1 + self.ctx.index)

    def _fire(self, timers: list[_Timer], before_ms: int, now_ms: int, order: int) -> None:
        for timer in timers:
            if timer.due(before_ms, now_ms):
                self._context.at(now_ms, (), order)
                try:
                    timer.callback(now_ms)
                except Exception as exc:
                    self.ctx.failed(Batch([None], [None], [now_ms], [order]), 0, exc, may_skip=False)

    def _fire_keyed(self, domain: Domain, until_ms: int, order: int) -> None:
        timers = self._context.timers
        assert timers is not None
        for timer in timers.due(domain, until_ms):
            self._context.at(timer.time_ms, (), order, timer.key)
            try:
                self._user.on_timer(timer, self._context)
            except Exception as exc:
                self.ctx.failed(Batch([timer.key], [None], [timer.time_ms], [order]), 0, exc, may_skip=False)

    def advance(self, place: int) -> None:
        self._fire_until(place)
        self._context.send()

    def end_batch(self) -> None:
        self._place = 0

    def wall_intervals_ms(self) -> list[int]:
        return [t.interval_ms for t in self._context.wall_timers]

    def next_wall_ms(self) -> int | None:
        timers = self._context.timers
        return None if timers is None else timers.next_ms("processing")

    def punctuate(self, now_ms: int, before_ms: int) -> None:
        order = 1 + self.ctx.index
        self._fire(self._context.wall_timers, before_ms, now_ms, order)
        if self._context.timers is not None:
            self._fire_keyed("processing", now_ms, order)
            self._fire_keyed("event", self.ctx.time.watermark_before_ms, order)
        self._context.send()
