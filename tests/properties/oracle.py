"""A naive interpreter of random programs: one record at a time, plain dicts, a recursive depth-first walk.

Written from the documented semantics (order, time, drops, timestamps), without a look at how the engine gets there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import orjson

from penstock.state.log import Headers, Record, Windowed
from penstock.topologies.operator_api.batch import Batch
from tests.properties import programs as p

Row = tuple[Any, Any, int, Headers]
"""Key, value, timestamp, headers."""
Written = tuple[bytes | None, bytes | None, int, Headers]


class Input(NamedTuple):
    """One record of the log."""

    topic: str
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: Headers


class Store:
    """Bytes by key bytes, as any reader would see them; ``ints``: big-endian longs instead of JSON."""

    def __init__(self, form: str = "json") -> None:
        self.rows: dict[bytes, tuple[bytes, int]] = {}
        self.form = form

    def get(self, key: bytes) -> tuple[Any, int] | None:
        found = self.rows.get(key)
        return None if found is None else (self.read(found[0]), found[1])

    def read(self, data: bytes) -> Any:
        return int.from_bytes(data, "big") if self.form == "long" else orjson.loads(data)

    def put(self, key: bytes, value: Any, timestamp_ms: int) -> None:
        if value is None:
            self.rows.pop(key, None)
        else:
            data = value.to_bytes(8, "big") if self.form == "long" else orjson.dumps(value)
            self.rows[key] = (data, timestamp_ms)


class Facade:
    """A store as processors see it."""

    def __init__(self, store: Store, ctx: Context) -> None:
        self._store, self._ctx = store, ctx

    def get(self, key: str) -> Any:
        found = self._store.get(key.encode())
        return None if found is None else found[0]

    def put(self, key: str, value: Any) -> None:
        self._store.put(key.encode(), value, self._ctx.timestamp_ms)

    def delete(self, key: str) -> None:
        self.put(key, None)

    def range(self, low: str | None, high: str | None, *, reverse: bool = False) -> Iterator[tuple[str, Any]]:
        for key in sorted(self._store.rows, reverse=reverse):
            if (low is None or low.encode() <= key) and (high is None or key <= high.encode()):
                found = self._store.get(key)
                if found is not None:
                    yield key.decode(), found[0]

    def all(self, *, reverse: bool = False) -> Iterator[tuple[str, Any]]:
        return self.range(None, None, reverse=reverse)

    def fetch(self, key: str, from_ms: int, to_ms: int) -> Iterator[tuple[int, Any]]:
        for store_key in sorted(self._store.rows):
            start = int.from_bytes(store_key[:8], "big")
            if store_key[8:] == key.encode() and from_ms <= start <= to_ms:
                found = self._store.get(store_key)
                if found is not None:
                    yield start, found[0]


class Context:
    """What a processor may reach."""

    def __init__(self, stores: dict[str, Store]) -> None:
        self._stores = stores
        self.timestamp_ms = 0
        self.stream_time_ms = -1
        self.headers: Headers = ()
        self.out: list[tuple[str, Row]] = []
        self.timers: list[tuple[str, int, Any]] = []

    def store(self, name: str) -> Facade:
        return Facade(self._stores[name], self)

    def schedule(self, interval_ms: int, callback: Any, kind: str = "stream_time") -> None:
        self.timers.append((kind, interval_ms, callback))

    def forward(
        self,
        key: Any,
        value: Any,
        *,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
        port: str = "out",
    ) -> None:
        ts = self.timestamp_ms if timestamp_ms is None else timestamp_ms
        self.out.append((port, (key, value, ts, self.headers if headers is None else headers)))

    def forward_batch(self, batch: Batch) -> None:
        for i in range(len(batch)):
            r = batch.record(i)
            self.out.append(("out", (r.key, r.value, r.timestamp_ms, r.headers)))


class Oracle:
    """One task of one part of a program. ``feed`` the inputs in their order, then compare what it holds."""

    def __init__(self, program: p.Program, part: int) -> None:
        self.nodes = [n for n in program.nodes if n.part == part]
        self.stores: dict[str, Store] = {}
        self.written: dict[str, list[Written]] = {}
        self.dropped: Counter[str] = Counter()
        self.letters: list[tuple[Input, str]] = []
        self.failures = 0
        self.stream_time_ms = -1
        self._operator_time: dict[str, int] = {}
        self._processors: dict[str, tuple[Any, Context]] = {}
        self._input: Input | None = None
        for node in self.nodes:
            self._open(node)

    def _open(self, node: p.Node) -> None:
        if node.kind in p.AGGREGATES:
            self.stores[node.name] = Store(
                "long" if "count" in node.kind else "float" if node.kind == "sum" else "json"
            )
            if node.kind == "sum":
                self.stores[node.name] = FloatStore()
        elif node.kind == "table":
            self.stores[node.name] = Store()
        if node.kind in p.PROCESSORS:
            store = node.args.get("store", "")
            if node.kind in p.WITH_STORE:
                self.stores.setdefault(store, Store())
            ctx = Context(self.stores)
            user: Any = p.PROCESSORS[node.kind](store)
            self._processors[node.name] = (user, ctx)
            user.init(ctx)

    # -- input -----------------------------------------------------------------------------------------------------

    def feed(self, record: Input) -> None:
        """One record of the log, then the timers that it made due."""
        self._input = record
        for node in self.nodes:
            if node.kind in ("stream", "table") and node.args["topic"] == record.topic.removeprefix("app-"):
                self._source(node, record)
        before = self.stream_time_ms
        self.stream_time_ms = max(before, record.timestamp_ms)
        if before >= 0:
            self._fire("stream_time", before, self.stream_time_ms)
        self._input = None

    def clock(self, before_ms: int, now_ms: int) -> None:
        """The wall clock went on."""
        self._fire("wall_time", before_ms, now_ms)

    def _fire(self, kind: str, before_ms: int, now_ms: int) -> None:
        for node in self.nodes:
            if node.kind in p.PROCESSORS:
                _, ctx = self._processors[node.name]
                for timer_kind, interval, callback in ctx.timers:
                    if timer_kind == kind and now_ms // interval > before_ms // interval:
                        ctx.timestamp_ms, ctx.headers = now_ms, ()
                        callback(now_ms)
                self._send(node, ctx)

    def _source(self, node: p.Node, record: Input) -> None:
        if node.kind == "table" and record.key is None:
            self.dropped[f"{node.name}.null_key"] += 1
            return
        try:
            value = None if record.value is None else orjson.loads(record.value)
            key = None if record.key is None else record.key.decode()
        except ValueError:
            self._failed(node)
            return
        if node.kind == "table":
            assert record.key is not None
            rows = self.stores[node.name].rows
            if record.value is None:
                rows.pop(record.key, None)
            else:
                rows[record.key] = (record.value, record.timestamp_ms)
        self._down(node, "out", (key, value, record.timestamp_ms, record.headers))

    def _failed(self, node: p.Node) -> None:
        self.failures += 1
        nothing = Input("", -1, None, None, max(self.stream_time_ms, 0), ())
        self.letters.append((self._input or nothing, node.name))

    def _drop(self, node: p.Node, reason: str) -> None:
        self.dropped[f"{node.name}.{reason}"] += 1

    # -- the walk --------------------------------------------------------------------------------------------------

    def _down(self, node: p.Node, port: str, row: Row) -> None:
        for child in self.nodes:
            for end in child.inputs:
                if end == (node.name, port):
                    self._visit(child, row)

    def _visit(self, node: p.Node, row: Row) -> None:
        key, value, ts, headers = row
        kind = node.kind
        if kind in p.PROCESSORS:
            self._process(node, row)
        elif kind in p.AGGREGATES:
            self._aggregate(node, row)
        elif kind == "join":
            self._join(node, row)
        elif kind == "sink":
            self._write(node, row)
        elif kind in ("merge", "peek"):
            self._down(node, "out", row)
        elif kind == "filter":
            if p.keeps(node.args["modulus"])(key, value):
                self._down(node, "out", row)
        elif kind == "branch":
            port = "1" if p.keeps(2)(key, value) else "2" if p.keeps(3)(key, value) else "default"
            self._down(node, port, row)
        elif kind == "children":
            for child in p.children(value):
                self._down(node, "out", (key, child, ts, headers))
        elif kind == "child_pairs":
            for pair in p.child_pairs(key, value):
                self._down(node, "out", (*pair, ts, headers))
        elif kind == "unlucky":
            if p.n_of(value) == p.UNLUCKY:
                self._failed(node)
            else:
                self._down(node, "out", row)
        else:
            functions: dict[str, Callable[[], tuple[Any, Any]]] = {
                "map_values": lambda: (key, p.doubled(value)),
                "boxed": lambda: (key, p.boxed(value)),
                "select_key": lambda: (p.new_key(key, value), value),
                "unwindow": lambda: (p.flat_window(key, value), value),
                "map": lambda: p.mapped(key, value),
            }
            new = functions[kind]()
            self._down(node, "out", (*new, ts, headers))

    def _process(self, node: p.Node, row: Row) -> None:
        user, ctx = self._processors[node.name]
        ctx.timestamp_ms, ctx.headers = row[2], row[3]
        ctx.stream_time_ms = max(ctx.stream_time_ms, row[2])
        if node.kind == "batched":
            user.process_batch(Batch([row[0]], [row[1]], [row[2]], [0], [row[3]]), ctx)
        else:
            user.process(Record(*row), ctx)
        self._send(node, ctx)

    def _send(self, node: p.Node, ctx: Context) -> None:
        out, ctx.out = ctx.out, []
        for port, row in out:
            self._down(node, port, row)

    def _join(self, node: p.Node, row: Row) -> None:
        key, value, ts, headers = row
        if value is None:
            self._drop(node, "null_value")
            return
        if key is None and not node.args["left"]:
            self._drop(node, "null_key")
            return
        found = None if key is None else self.stores[node.args["table"]].get(key.encode())
        if found is not None or node.args["left"]:
            self._down(node, "out", (key, p.joined(value, found[0] if found else None), ts, headers))

    def _aggregate(self, node: p.Node, row: Row) -> None:
        key, value, ts, headers = row
        if key is None or value is None:
            self._drop(node, "null_key" if key is None else "null_value")
            return
        store, store_key, out_key = self.stores[node.name], key.encode(), key
        if node.kind.startswith("window"):
            size, grace = node.args["size"], node.args["grace"]
            time = self._operator_time[node.name] = max(self._operator_time.get(node.name, -1), ts)
            start = ts - ts % size
            if start + size <= time - grace:
                self._drop(node, "late")
                return
            store_key, out_key = start.to_bytes(8, "big") + store_key, Windowed(key, start, start + size)
            for old in list(store.rows):
                if int.from_bytes(old[:8], "big") <= time - size - grace:
                    del store.rows[old]
        found = store.get(store_key)
        new = self._folded(node, key, value, None if found is None else found[0])
        ts = ts if found is None else max(ts, found[1])
        store.put(store_key, new, ts)
        self._down(node, "out", (out_key, new, ts, headers))

    def _folded(self, node: p.Node, key: str, value: Any, old: Any) -> Any:
        if "count" in node.kind:
            return (old or 0) + 1
        if "reduce" in node.kind:
            return value if old is None else p.grown(old, value)
        if node.kind == "sum":
            return p.summed(key, value, 0 if old is None else old)
        return p.collected(key, value, p.empty() if old is None else old)

    def _write(self, node: p.Node, row: Row) -> None:
        key, value, ts, headers = row
        data = None if value is None else orjson.dumps(value)
        topic = node.args["topic"]
        self.written.setdefault(topic, []).append((None if key is None else key.encode(), data, ts, headers))


class FloatStore(Store):
    """Doubles."""

    def read(self, data: bytes) -> float:
        return float(orjson.loads(data))

    def put(self, key: bytes, value: Any, timestamp_ms: int) -> None:
        super().put(key, None if value is None else float(value), timestamp_ms)


def merged(inputs: list[Input]) -> list[Input]:
    """The feed's order over a fixed range: by running maximum of the timestamp within the partition, topic, offset."""
    highest: dict[str, int] = {}
    keyed = []
    for r in sorted(inputs, key=lambda r: (r.topic, r.offset)):
        highest[r.topic] = max(highest.get(r.topic, r.timestamp_ms), r.timestamp_ms)
        keyed.append((highest[r.topic], r.topic, r.offset, r))
    return [r for *_, r in sorted(keyed, key=lambda x: x[:3])]
