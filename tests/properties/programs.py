"""Random topologies as descriptions, from which both the engine's graph and the oracle's walk are made.

A ``Program`` is a list of nodes in dependency order. Nodes of one sub-topology share a ``part``; only a repartition
leads from one part to another. The functions and processors are user code and shared by both sides; everything about
order, state and time is written twice.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from typing import Any, ClassVar

from penstock.state.log import Record, Windowed
from penstock.state.stores.store import StoreSpec
from penstock.state.stores.typed_stores import key_value_store
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.dsl.kstream import KStream
from penstock.topologies.dsl.ktable import KTable
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operator_api.batch import Batch
from penstock.topologies.operators.processors.processor import Processor, TimeKind
from penstock.topologies.windows import tumbling

KEYS = ("a", "b", "c", "dd", "")
UNLUCKY = 13


@dataclasses.dataclass(frozen=True)
class Node:
    """One operator: ``inputs`` are (node, out port) pairs; ``args`` depend on the kind."""

    name: str
    kind: str
    inputs: tuple[tuple[str, str], ...]
    part: int
    args: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Program:
    """Nodes in dependency order, which is also the order in which they are declared."""

    nodes: list[Node] = dataclasses.field(default_factory=list)
    parts: int = 1

    def node(self, name: str) -> Node:
        return next(n for n in self.nodes if n.name == name)

    def __str__(self) -> str:
        return "\n".join(f"{n.name} = {n.kind}{n.inputs} {n.args} part {n.part}" for n in self.nodes)


# -- user functions: values are {"n": int} -------------------------------------------------------------------------


def n_of(value: Any) -> int:
    return int(value["n"]) if value is not None else 0


def keeps(modulus: int) -> Callable[[Any, Any], bool]:
    def fn(key: Any, value: Any) -> bool:
        return n_of(value) % modulus != 0

    return fn


def doubled(value: Any) -> Any:
    return None if value is None else {"n": n_of(value) * 2 % 64}


def unlucky(value: Any) -> Any:
    if n_of(value) == UNLUCKY:
        raise ValueError("unlucky")
    return value


def children(value: Any) -> list[Any]:
    return [{"n": n_of(value) + i} for i in range(n_of(value) % 4)]


def child_pairs(key: Any, value: Any) -> list[tuple[Any, Any]]:
    return [(KEYS[(n_of(value) + i) % 5], {"n": n_of(value) + i}) for i in range(n_of(value) % 4)]


def new_key(key: Any, value: Any) -> Any:
    return None if value is None else KEYS[n_of(value) % 5]


def mapped(key: Any, value: Any) -> tuple[Any, Any]:
    return key if key is None else KEYS[(len(key) + n_of(value)) % 5], value


def grown(aggregate: Any, value: Any) -> Any:
    """A reducer that changes its first argument in place."""
    aggregate["n"] += n_of(value)
    aggregate["seen"] = aggregate.get("seen", 0) + 1
    return aggregate


def empty() -> Any:
    return {"n": 0, "all": []}


def collected(key: Any, value: Any, aggregate: Any) -> Any:
    """An adder that changes its argument in place, and deletes at times."""
    if n_of(value) % 9 == 4:
        return None
    aggregate["all"].append(n_of(value))
    aggregate["n"] += 1
    return aggregate


def summed(key: Any, value: Any, aggregate: float) -> Any:
    """Ints and floats for a store of floats."""
    return None if n_of(value) % 11 == 5 else aggregate + n_of(value)


def joined(left: Any, right: Any) -> Any:
    return {"n": (n_of(left) + n_of(right)) % 100, "row": right}


def boxed(value: Any) -> Any:
    return None if value is None else {"n": int(value)}


def flat_window(key: Windowed, value: Any) -> str:
    return str(f"{key.key}@{key.start_ms}-{key.end_ms}")


# -- processors: user code, run by both sides -------------------------------------------------------------------------


class Remembers(Processor):
    """Reads, changes in place, writes, deletes and scans a store that others may share."""

    def __init__(self, store: str) -> None:
        self.store_name = store

    def init(self, ctx: Any) -> None:
        self.store = ctx.store(self.store_name)

    def process(self, record: Record, ctx: Any) -> None:
        n = n_of(record.value)
        if record.key is None or n % 7 == 6:
            total = sum(n_of(v) for _, v in self.store.range("a", "c"))
            ctx.forward(record.key, {"n": total % 50, "from": ctx.timestamp_ms})
            return
        row = self.store.get(record.key) or {"n": 0}
        row["n"] += n
        if n % 5 == 3:
            self.store.delete(record.key)
        else:
            self.store.put(record.key, row)
        if n % 3:
            ctx.forward(record.key, row)
            row["n"] = -1


class Ticks(Remembers):
    """The same with stream-time timers, which scan backwards, forward and delete."""

    timers: ClassVar[tuple[TimeKind, ...]] = ("stream_time",)

    def init(self, ctx: Any) -> None:
        super().init(ctx)
        self.ctx = ctx
        ctx.schedule(7, self.tick)
        ctx.schedule(10, self.tock)

    def tick(self, now_ms: int) -> None:
        for key, value in list(self.store.all(reverse=True))[:2]:
            self.ctx.forward(key, {"n": n_of(value) % 64, "at": now_ms, "seen": self.ctx.stream_time_ms})

    def tock(self, now_ms: int) -> None:
        for key, value in self.store.all():
            if n_of(value) % 3 == 0:
                self.store.delete(key)
        self.store.put("b", {"n": now_ms % 17})


class Rings(Ticks):
    """The same with a wall-clock timer beside them."""

    timers: ClassVar[tuple[TimeKind, ...]] = ("stream_time", "wall_time")

    def init(self, ctx: Any) -> None:
        super().init(ctx)
        ctx.schedule(50, self.ring, "wall_time")

    def ring(self, now_ms: int) -> None:
        self.tick(now_ms)
        self.store.put("c", {"n": now_ms % 23})


class Splits(Processor):
    """Forwards up to three records to two ports in turn, with headers and times of its own."""

    out_ports = ("out", "alt")

    def process(self, record: Record, ctx: Any) -> None:
        for i in range(n_of(record.value) % 4):
            if i == 2:
                ctx.forward(record.key, {"n": i}, port="alt", headers=(("split", b"2"),))
            else:
                ctx.forward(
                    record.key, {"n": n_of(record.value) + i}, port=self.out_ports[i], timestamp_ms=ctx.timestamp_ms + i
                )


class Batched(Processor):
    """A whole batch at once, and the same for one record at a time (which the oracle asks for)."""

    def process_batch(self, batch: Batch, ctx: Any) -> None:
        places = [i for i, v in enumerate(batch.values) for _ in range(1 + n_of(v) % 2)]
        picked = batch.pick(places)
        ctx.forward_batch(picked.replace(values=[doubled(v) for v in picked.values]))


class Watches(Processor):
    """Reads the store of an aggregate, which may be counts, objects or floats."""

    def __init__(self, store: str) -> None:
        self.store_name = store

    def process(self, record: Record, ctx: Any) -> None:
        found = None if record.key is None else ctx.store(self.store_name).get(record.key)
        ctx.forward(record.key, {"n": n_of(record.value), "found": found})


class WatchesWindows(Watches):
    """Reads the windows of a key around the record's time."""

    def process(self, record: Record, ctx: Any) -> None:
        found = []
        if record.key is not None:
            store = ctx.store(self.store_name)
            found = [list(x) for x in store.fetch(record.key, max(ctx.timestamp_ms - 40, 0), ctx.timestamp_ms)]
        ctx.forward(record.key, {"n": n_of(record.value), "windows": found})


PROCESSORS: dict[str, Callable[[str], Processor]] = {
    "remember": Remembers,
    "tick": Ticks,
    "ring": Rings,
    "split": lambda store: Splits(),
    "batched": lambda store: Batched(),
    "watch": Watches,
    "watch_windows": WatchesWindows,
}
WITH_STORE = ("remember", "tick", "ring")


def store_of(name: str) -> StoreSpec:
    """The store that ``Remembers`` and its kin share under a name."""
    return key_value_store(name, key=str, value=dict)


# -- making them ----------------------------------------------------------------------------------------------------

AGGREGATES = ("count", "reduce", "aggregate", "sum", "window_count", "window_reduce")
STATELESS = (
    "filter",
    "map_values",
    "unlucky",
    "children",
    "child_pairs",
    "select_key",
    "map",
    "branch",
    "split",
    "batched",
)


class Maker:
    """Grows a random program; ``timers``: also wall-clock ones; ``parts``: at most so many sub-topologies."""

    def __init__(self, rng: random.Random, *, wall: bool = False, parts: int = 2) -> None:
        self.rng = rng
        self.program = Program()
        self.wall = wall
        self.max_parts = parts
        self.streams: list[tuple[str, str, int, bool]] = []
        """Open ends: node, port, part, whether keys may have changed."""
        self.tables: list[tuple[str, int]] = []
        self.kept: list[tuple[str, str, int]] = []
        """Stores that may be read: aggregate, kind, part."""
        self.count = 0

    def make(self) -> Program:
        rng = self.rng
        for topic in ("in-a", "in-b")[: rng.choice((1, 2, 2))]:
            self.add("stream", (), 0, topic=topic)
        if self.wall and len(self.streams) == 2:
            self.add("merge", tuple((s[0], s[1]) for s in self.streams), 0)
            if rng.random() < 0.4:
                self.add("ring", (rng.choice(self.streams)[:2],), 0, store="shared-0-0")
        for _ in range(rng.randint(2, 9)):
            self.grow()
        for node, port, part, _ in rng.sample(self.streams, min(len(self.streams), 4)):
            self.add("sink", ((node, port),), part, topic=rng.choice(("out-0", "out-1")), ends=True)
        return self.program

    def add(self, kind: str, inputs: tuple[tuple[str, str], ...], part: int, rekeyed: bool = False, **args: Any) -> str:
        self.count += 1
        name: str = args.pop("name", f"{kind.replace('_', '-')}-{self.count}")
        ends = args.pop("ends", False)
        ports = {"branch": ("1", "2", "default"), "split": ("out", "alt")}.get(kind, ("out",))
        self.program.nodes.append(Node(name, kind, inputs, part, args))
        if not ends:
            self.streams += [(name, p, part, rekeyed) for p in ports]
        return name

    def grow(self) -> None:
        rng = self.rng
        node, port, part, rekeyed = rng.choice(self.streams)
        kind = rng.choice((*STATELESS, *AGGREGATES, "merge", "merge", "join", "remember", "remember", "tick", "watch"))
        if kind == "tick" and self.wall and rng.random() < 0.6:
            kind = "ring"
        if kind == "merge":
            same = [s for s in self.streams if s[2] == part and s[:2] != (node, port)]
            others = rng.sample(same, min(len(same), rng.choice((1, 1, 2))))
            ends = ((node, port), *((s[0], s[1]) for s in others))
            self.add("merge", ends, part, rekeyed or any(s[3] for s in others))
        elif kind in STATELESS:
            changes = kind in ("child_pairs", "select_key", "map")
            self.add(kind, ((node, port),), part, rekeyed or changes, modulus=rng.choice((2, 3, 5)))
        elif kind in WITH_STORE:
            self.add(kind, ((node, port),), part, rekeyed, store=f"shared-{part}-{rng.choice((0, 0, 1))}")
        elif kind == "watch":
            readable = [k for k in self.kept if k[2] == part]
            if readable:
                store, of, _ = rng.choice(readable)
                self.add(
                    "watch_windows" if of.startswith("window") else "watch", ((node, port),), part, rekeyed, store=store
                )
        else:
            keyed = self.keyed(node, port, part, rekeyed)
            if keyed is not None:
                self.keyed_operator(kind, *keyed)

    def keyed(self, node: str, port: str, part: int, rekeyed: bool) -> tuple[str, str, int] | None:
        """The stream itself, or behind a repartition if keys may have changed (or now and then for the sake of it)."""
        if not rekeyed and (self.rng.random() < 0.8 or self.program.parts >= self.max_parts):
            return node, port, part
        if self.program.parts >= self.max_parts:
            return None
        new = self.program.parts
        self.program.parts += 1
        self.count += 1
        base = f"again-{self.count}"
        self.add("sink", ((node, port),), part, name=f"{base}-repartition-sink", topic=f"{base}-repartition", ends=True)
        name = self.add("stream", (), new, name=f"{base}-repartition", topic=f"{base}-repartition", base=base)
        return name, "out", new

    def keyed_operator(self, kind: str, node: str, port: str, part: int) -> None:
        rng = self.rng
        if kind == "join":
            table = next((t for t, p in self.tables if p == part), None)
            if table is None:
                table = f"table-{part}"
                self.program.nodes.append(Node(table, "table", (), part, {"topic": table}))
                self.tables.append((table, part))
                self.streams.append((table, "out", part, False))
            self.add("join", ((node, port),), part, table=table, left=rng.random() < 0.5)
            return
        name = self.add(
            kind, ((node, port),), part, ends=True, size=rng.choice((5, 10, 16)), grace=rng.choice((0, 0, 4, 20))
        )
        self.kept.append((name, kind, part))
        if kind.startswith("window"):
            name = self.add("unwindow", ((name, "out"),), part, ends=True)
        self.add(
            "boxed" if "count" in kind or kind == "sum" else "peek", ((name, "out"),), part, kind.startswith("window")
        )


# -- the engine's graph -----------------------------------------------------------------------------------------------


def topology_of(program: Program) -> Topology:
    """The program by the DSL."""
    builder = StreamsBuilder("random", key=str, value=dict)
    ends: dict[tuple[str, str], KStream] = {}
    tables: dict[str, KTable] = {}
    for node in program.nodes:
        if node.kind == "sink" and node.args["topic"].startswith("again"):
            base = node.args["topic"].removesuffix("-repartition")
            ends[node.args["topic"], "out"] = ends[node.inputs[0]].repartition(name=base)
        elif node.kind == "stream" and "base" not in node.args:
            ends[node.name, "out"] = builder.stream(node.args["topic"], name=node.name)
        elif node.kind == "table":
            # a worker would refuse it, since a restore could not: here nothing is restored from the topic
            tables[node.name] = builder.table(node.args["topic"], name=node.name).on_error("dead_letter")
            ends[node.name, "out"] = tables[node.name].to_stream()
        elif node.kind != "stream":
            _add_operator(node, ends, tables)
    return builder.build()


def _add_operator(node: Node, ends: dict[tuple[str, str], KStream], tables: dict[str, KTable]) -> None:
    source, name, kind = ends[node.inputs[0]], node.name, node.kind
    if kind in PROCESSORS:
        _add_processor(node, source, ends, tables)
    elif kind in AGGREGATES:
        tables[name] = _aggregated(node, source)
        ends[name, "out"] = tables[name].to_stream()
    elif kind == "branch":
        streams = source.branch(keeps(2), keeps(3), default=True, name=name)
        ends.update(zip([(name, "1"), (name, "2"), (name, "default")], streams, strict=True))
    elif kind == "merge":
        ends[name, "out"] = source.merge(*(ends[i] for i in node.inputs[1:]), name=name)
    elif kind == "join":
        join = source.left_join if node.args["left"] else source.join
        ends[name, "out"] = join(tables[node.args["table"]], joined, name=name)
    elif kind == "sink":
        source.to(node.args["topic"], name=name)
    else:
        ends[name, "out"] = {
            "filter": lambda: source.filter(keeps(node.args["modulus"]), name=name),
            "map_values": lambda: source.map_values(doubled, name=name),
            "unlucky": lambda: source.map_values(unlucky, name=name),
            "children": lambda: source.flat_map_values(children, name=name),
            "child_pairs": lambda: source.flat_map(child_pairs, name=name),
            "select_key": lambda: source.select_key(new_key, name=name),
            "map": lambda: source.map(mapped, name=name),
            "unwindow": lambda: source.select_key(flat_window, key=str, name=name),
            "boxed": lambda: source.map_values(boxed, value=dict, name=name),
            "peek": lambda: source.peek(lambda key, value: None, name=name),
        }[kind]()


def _add_processor(
    node: Node, source: KStream, ends: dict[tuple[str, str], KStream], tables: dict[str, KTable]
) -> None:
    store = node.args.get("store", "")
    stores: tuple[StoreSpec, ...] = ()
    if node.kind in WITH_STORE:
        stores = (store_of(store),)
    elif store:
        stores = (tables[store].store,)
    make = PROCESSORS[node.kind]
    processed = source.process(lambda: make(store), stores=stores, keeps_key=True, name=node.name)
    ends[node.name, "out"] = processed
    if node.kind == "split":
        ends[node.name, "alt"] = processed.port("alt")


def _aggregated(node: Node, source: KStream) -> KTable:
    grouped = source.group_by_key()
    if node.kind.startswith("window"):
        grouped = grouped.windowed_by(tumbling(node.args["size"], grace=node.args["grace"]))
    if node.kind in ("count", "window_count"):
        return grouped.count(name=node.name)
    if node.kind in ("reduce", "window_reduce"):
        return grouped.reduce(grown, name=node.name)
    if node.kind == "sum":
        return grouped.aggregate(lambda: 0, summed, value=float, name=node.name)
    return grouped.aggregate(empty, collected, value=dict, name=node.name)


def random_program(rng: random.Random, *, wall: bool = False, parts: int = 2) -> Program:
    """A program that writes at least one topic."""
    return Maker(rng, wall=wall, parts=parts).make()
