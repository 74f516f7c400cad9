"""The processors that descriptions name. ``Processors.java`` has the same, on Kafka Streams' interface."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from penstock.state.log import Record, Windowed
from penstock.state.stores.store import StoreSpec
from penstock.topologies.operators.processors.processor import Processor, ProcessorContext, TimeKind
from tests.conformance.functions import text_of
from tests.conformance.scenario import KEY, VALUE

RETENTION_MS = 100_000
"""Of window and session stores: nothing is so old that it is forgotten."""


def store_of(kind: str, name: str) -> StoreSpec:
    """The store of a processor's own."""
    if kind == "windowing":
        return StoreSpec(name, "window", KEY, VALUE, window_size_ms=10, retention_ms=RETENTION_MS)
    if kind == "sessioning":
        return StoreSpec(name, "session", KEY, VALUE, retention_ms=RETENTION_MS)
    return StoreSpec(name, "key_value", KEY, VALUE)


class _Stored(Processor):
    """A processor with one store."""

    def __init__(self, store: str) -> None:
        self.store_name = store
        self.store: Any = None

    def init(self, ctx: ProcessorContext) -> None:
        self.store = ctx.store(self.store_name)

    def process(self, record: Record, ctx: ProcessorContext) -> None:
        if record.key is not None:
            self.take(record, ctx)

    def take(self, record: Record, ctx: ProcessorContext) -> None:
        raise NotImplementedError


class Counting(_Stored):
    """Counts per key and tells the number with the value; a value of e forgets the key."""

    def take(self, record: Record, ctx: ProcessorContext) -> None:
        if text_of(record.value).startswith("e"):
            ctx.forward(record.key, f"gone:{text_of(self.store.delete(record.key))}")
            return
        count = (self.store.get(record.key) or 0) + 1
        self.store.put(record.key, count)
        ctx.forward(record.key, f"{count}:{text_of(record.value)}")


class Reporting(_Stored):
    """Keeps the last value per key; a value of d tells all rows, one of e those from key b to key q, backwards."""

    def take(self, record: Record, ctx: ProcessorContext) -> None:
        text = text_of(record.value)
        if text.startswith("d"):
            self._report(self.store.all(), ctx)
        elif text.startswith("e"):
            self._report(self.store.range("b", "q", reverse=True), ctx)
        else:
            self.store.put(record.key, record.value)

    @staticmethod
    def _report(rows: Iterable[tuple[Any, Any]], ctx: ProcessorContext) -> None:
        for key, value in rows:
            ctx.forward(key, value)


class Windowing(_Stored):
    """Chains values per key and window of 10, and tells the windows that start within 25 before the record."""

    def take(self, record: Record, ctx: ProcessorContext) -> None:
        now = record.timestamp_ms
        start = now // 10 * 10
        found = self.store.get(record.key, start)
        self.store.put(record.key, f"{text_of(found)}+{text_of(record.value)}", start)
        rows = self.store.fetch(record.key, max(0, now - 25), now)
        ctx.forward(record.key, "".join(f"{at}={value};" for at, value in rows))


class Sessioning(_Stored):
    """Merges sessions of gap 5 by hand."""

    def take(self, record: Record, ctx: ProcessorContext) -> None:
        start = end = record.timestamp_ms
        old = list(self.store.find(record.key, max(0, start - 5), end + 5))
        for session, _ in old:
            start, end = min(start, session.start_ms), max(end, session.end_ms)
            self.store.put(session, None)
        merged = "".join(f"{value}|" for _, value in old) + text_of(record.value)
        self.store.put(Windowed(record.key, start, end), merged)
        ctx.forward(record.key, f"{start}-{end}:{merged}")


class _Timed(_Stored):
    """Chains values per key until a timer tells and forgets all of them."""

    kind: TimeKind

    def init(self, ctx: ProcessorContext) -> None:
        super().init(ctx)
        self._ctx = ctx
        ctx.schedule(10, self._fire, self.kind)

    def _fire(self, time_ms: int) -> None:
        for key, value in list(self.store.all()):
            self._ctx.forward(key, f"{time_ms}:{value}", timestamp_ms=time_ms)
            self.store.delete(key)

    def take(self, record: Record, ctx: ProcessorContext) -> None:
        self.store.put(record.key, f"{text_of(self.store.get(record.key))}+{text_of(record.value)}")


class StreamTimed(_Timed):
    """In stream time."""

    timers = ("stream_time",)
    kind = "stream_time"


class WallTimed(_Timed):
    """By the wall clock."""

    timers = ("wall_time",)
    kind = "wall_time"


class LookingUp(_Stored):
    """Tells a table's row, and its timestamp, with each value."""

    def process(self, record: Record, ctx: ProcessorContext) -> None:
        found = None if record.key is None else self.store.get_with_timestamp(record.key)
        row = "null" if found is None else f"{found[0]}@{found[1]}"
        ctx.forward(record.key, f"{text_of(record.value)}|{row}")


class Retiming(_Stored):
    """Sends each record twice: as it is, and seven later under another key."""

    def process(self, record: Record, ctx: ProcessorContext) -> None:
        ctx.forward(record.key, record.value)
        ctx.forward("z", record.value, timestamp_ms=record.timestamp_ms + 7)


class Numbering(_Stored):
    """Numbers the changes of a table's row, and tells their time; a deletion deletes the row. ``Transformers.java`` has the
    same."""

    def take(self, record: Record, ctx: ProcessorContext) -> None:
        number = (self.store.get(record.key) or 0) + 1
        self.store.put(record.key, number)
        value = None if record.value is None else f"{text_of(record.value)}#{number}@{record.timestamp_ms}"
        ctx.forward(record.key, value)


PROCESSORS: dict[str, Callable[[str], Processor]] = {
    "counting": Counting,
    "reporting": Reporting,
    "windowing": Windowing,
    "sessioning": Sessioning,
    "stream_timed": StreamTimed,
    "stream_timed_from_the_first": StreamTimed,
    "wall_timed": WallTimed,
    "looking_up": LookingUp,
    "retiming": Retiming,
}
"""By the name that descriptions use."""
