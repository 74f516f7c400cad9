"""The applications of the swarm, each with a judge that knows the right answer from the input alone."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import orjson

from penstock.state.log import Record, TaskId
from penstock.state.stores.typed_stores import key_value_store
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.examples import celsius, keyed_count
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operators.processors.processor import Processor, ProcessorContext
from penstock.topologies.windows import tumbling
from tests.simulation.programs import REGIONS, clicks_per_region, combined_clicks

Stores = Mapping[tuple[TaskId, str], Mapping[bytes, bytes]]
Records = Iterable[tuple[bytes | None, bytes | None]]
Row = tuple[str, bytes, bytes | None, int]
Step = Callable[[dict[bytes, int], bytes, bytes], Iterable[tuple[bytes, bytes | None]]]
KEYS = 14
WINDOW_MS = 2_000
TICK_MS = 1_000


@dataclasses.dataclass(frozen=True)
class Seen:
    """What a judge looks at. ``records(topic)``: committed ones, in the order of each partition; ``stores``: of all tasks
    that run; ``exact``: exactly-once; ``fresh``: nothing stale may stand last in an output, since no client had records in
    its queue when it was held up."""

    records: Callable[[str], list[tuple[bytes, bytes | None]]]
    stores: Stores
    exact: bool
    fresh: bool


@dataclasses.dataclass(frozen=True)
class Program:
    """``write(rng, n)``: the nth record of the input. ``one_each``: the output topic that gets one record for each of this
    input topic, in the same transaction. ``judge`` yields what is wrong. ``step``: the outputs of one record of its only
    input, with the state by key; ``kept``: the store whose changelog gets that state."""

    build: Callable[[], Topology]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    write: Callable[[random.Random, int], Row]
    judge: Callable[[Seen], Iterable[str]]
    one_each: tuple[str, str] | None = None
    step: Step | None = None
    kept: str = ""
    expires: bool = False
    """Stores may hold less than their changelogs."""


def number(value: bytes | None) -> int:
    """A stored or written long."""
    return int.from_bytes(value or b"", "big", signed=True)


def by_key(rows: Iterable[tuple[bytes, Any]]) -> dict[bytes, list[Any]]:
    """In the order of the log: a key is always on one partition."""
    out: defaultdict[bytes, list[Any]] = defaultdict(list)
    for key, value in rows:
        out[key].append(value)
    return dict(out)


def merged(stores: Stores, name: str) -> dict[bytes, int]:
    """A store of numbers over all tasks, without their timestamps."""
    return {k: number(v[8:]) for (_, n), store in stores.items() if n == name for k, v in store.items()}


def compare(what: str, wanted: Mapping[bytes, list[Any]], got: Mapping[bytes, list[Any]], exact: bool) -> Iterable[str]:
    """Values by key: the same ones in the same order, or, at least once, none of them missing."""
    if wanted.keys() != got.keys():
        yield f"I1 {what}: keys {sorted(wanted.keys() ^ got.keys())} are missing or were never written"
    for key in sorted(wanted.keys() & got.keys()):
        missing, more = Counter(wanted[key]) - Counter(got[key]), Counter(got[key]) - Counter(wanted[key])
        if missing:
            yield f"I1 {what} of {key!r} lacks {dict(missing)}"
        if more and (exact or set(got[key]) - set(wanted[key])):
            yield f"I2 {what} of {key!r} has {dict(more)} too many"
        if exact and not missing and not more and wanted[key] != got[key]:
            yield f"I3 {what} of {key!r} is in another order"


def _key(rng: random.Random, n: int) -> bytes:
    """Half of the records are of keys that come all the time. The others come for a while, and never again: what goes wrong
    with them stays wrong, and what is deleted stays deleted."""
    if rng.random() < 0.5:
        return b"k%d" % rng.randrange(KEYS)
    return b"o%d" % (n // 5 + rng.randrange(4))


def _write_key(rng: random.Random, n: int) -> Row:
    return "in", _key(rng, n), b"%d" % n, 1_000 + 200 * n


def _long(value: int) -> bytes:
    return value.to_bytes(8, "big", signed=True)


def _step_count(state: dict[bytes, int], key: bytes, value: bytes) -> Iterable[tuple[bytes, bytes | None]]:
    state[key] = state.get(key, 0) + 1
    yield key, _long(state[key])


def _judge_counts(seen: Seen) -> Iterable[str]:
    counts = Counter(key for key, _ in seen.records("in"))
    got = by_key((k, number(v)) for k, v in seen.records("out"))
    yield from compare("out", {k: list(range(1, n + 1)) for k, n in counts.items()}, got, seen.exact)
    if seen.fresh and (stale := [k for k, n in counts.items() if got.get(k, [n])[-1] != n]):
        yield f"I12 the last counts of {stale} in out are stale"
    if merged(seen.stores, "counts") != counts:
        yield f"I12 the counts are {merged(seen.stores, 'counts')}, not {dict(counts)}"


def _balances() -> Topology:
    """Sums that a zero deletes."""
    builder = StreamsBuilder("balances", key=str, value=str)
    grouped = builder.stream("in").group_by_key()
    grouped.aggregate(lambda: 0, lambda _, v, a: a + int(v) if v != "0" else None, value=int, name="sums").to("out")
    return builder.build()


def _step_balance(state: dict[bytes, int], key: bytes, value: bytes) -> Iterable[tuple[bytes, bytes | None]]:
    if value == b"0":
        state.pop(key, None)
        yield key, None
    else:
        state[key] = state.get(key, 0) + int(value)
        yield key, _long(state[key])


def _write_balance(rng: random.Random, n: int) -> Row:
    return "in", _key(rng, n), b"%d" % rng.choice((0, 0, 1, 5, 9)), 1_000 + 200 * n


def _judge_balances(seen: Seen) -> Iterable[str]:
    wanted: defaultdict[bytes, list[int | None]] = defaultdict(list)
    for key, value in seen.records("in"):
        last = wanted[key][-1] if wanted[key] else None
        wanted[key].append(None if value == b"0" else (last or 0) + int(value or b"0"))
    got = by_key((k, None if v is None else number(v)) for k, v in seen.records("out"))
    yield from compare(
        "out", {k: _changes(v) for k, v in wanted.items()}, {k: _changes(v) for k, v in got.items()}, seen.exact
    )
    sums = {k: v[-1] for k, v in wanted.items() if v[-1] is not None}
    if merged(seen.stores, "sums") != sums:
        yield f"I12 the sums are {merged(seen.stores, 'sums')}, not {sums}"


def _changes(values: list[int | None]) -> list[int | None]:
    """Whether a key that is not there is deleted again is not judged."""
    return [v for v in values if v is not None]


def _write_click(rng: random.Random, n: int) -> Row:
    user = b"u%d" % rng.randrange(KEYS)
    if n < KEYS or rng.random() < 0.2:
        region = None if rng.random() < 0.2 else orjson.dumps({"r": rng.choice(REGIONS)})
        return "users", b"u%d" % n if n < KEYS else user, region, 10 * n
    return "clicks", user, orjson.dumps({"n": n}), 10 * n


def _judge_joined(seen: Seen) -> Iterable[str]:
    """Which version of the table a click meets depends on when both came; all that follows from it does not."""
    clicks = by_key((k, orjson.loads(v or b"")["n"]) for k, v in seen.records("clicks"))
    joined = [(k, orjson.loads(v or b"")) for k, v in seen.records("joined")]
    yield from compare("joined", clicks, by_key((k, v["n"]) for k, v in joined), seen.exact)
    table = dict(seen.records("users"))
    stored = {k: v[8:] for (_, n), store in seen.stores.items() if n == "users" for k, v in store.items()}
    if stored != {k: v for k, v in table.items() if v is not None}:
        yield f"I12 the table of users is {stored}, not {table}"
    regions = Counter(str(v["region"]).encode() for _, v in joined)
    yield from _judge_regions(seen, regions, exact_steps=True)


def _judge_regions(seen: Seen, wanted: Mapping[bytes, int], *, exact_steps: bool) -> Iterable[str]:
    counts = merged(seen.stores, "counts")
    steps = by_key((k, int(v or b"0")) for k, v in seen.records("counted"))
    if sum(counts.values()) < len(seen.records("clicks")):
        yield f"I1 the counts {counts} miss some of {len(seen.records('clicks'))} clicks"
    for key, n in wanted.items():
        if seen.exact and counts.get(key) != n:
            yield f"I2 the count of {key!r} is {counts.get(key)}, not {n}"
        if not seen.exact and not exact_steps and counts.get(key, 0) < n:
            yield f"I1 the count of {key!r} is {counts.get(key)}, less than {n}"
        if seen.exact and exact_steps and steps.get(key) != list(range(1, n + 1)):
            yield f"I2 the counts of {key!r} went {steps.get(key)}, not up to {n} by one"
        if seen.exact and (steps.get(key, [])[-1:] != [n] or steps[key] != sorted(set(steps[key]))):
            yield f"I3 the counts of {key!r} went {steps.get(key)}, not up to {n}"


def _write_region(rng: random.Random, n: int) -> Row:
    return "clicks", b"u%d" % rng.randrange(KEYS), orjson.dumps({"n": n}), 1_000 + 10 * n


def _judge_combined(seen: Seen) -> Iterable[str]:
    wanted = Counter(REGIONS[orjson.loads(v or b"")["n"] % 3].encode() for _, v in seen.records("clicks"))
    yield from _judge_regions(seen, wanted, exact_steps=False)


def _windows() -> Topology:
    builder = StreamsBuilder("windows", key=str, value=bytes)
    counts = (
        builder.stream("in").group_by_key().windowed_by(tumbling(f"{WINDOW_MS}ms", grace="10s")).count(name="counts")
    )
    counts.to_stream(lambda w, n: f"{w.key}@{w.start_ms}", key=str).to("out", value=int)
    return builder.build()


def _window_of(key: bytes, value: bytes) -> bytes:
    """The value of a record tells its time."""
    return b"%s@%d" % (key, (1_000 + 200 * int(value)) // WINDOW_MS * WINDOW_MS)


def _step_windows(state: dict[bytes, int], key: bytes, value: bytes) -> Iterable[tuple[bytes, bytes | None]]:
    yield from _step_count(state, _window_of(key, value), value)


def _judge_windows(seen: Seen) -> Iterable[str]:
    windows = Counter(_window_of(k, v or b"0") for k, v in seen.records("in"))
    got = by_key((k, number(v)) for k, v in seen.records("out"))
    if not seen.exact:
        got = {k: v for k, v in got.items() if k in windows}
    yield from compare("out", {k: list(range(1, n + 1)) for k, n in windows.items()}, got, seen.exact)


def _judge_stateless(seen: Seen) -> Iterable[str]:
    count = len(seen.records("in"))
    got = by_key(seen.records("out"))
    wanted = by_key((k, _fahrenheit(v)) for k, v in seen.records("in"))
    if sum(map(len, got.values())) < count:
        yield f"I1 out has {sum(map(len, got.values()))} records for {count}"
    yield from compare("out", wanted, got, seen.exact)


def _step_stateless(state: dict[bytes, int], key: bytes, value: bytes) -> Iterable[tuple[bytes, bytes | None]]:
    yield key, _fahrenheit(value)


def _fahrenheit(value: bytes | None) -> bytes:
    return str(float(value or b"0") * 9 / 5 + 32).encode()


def _asked() -> Topology:
    """Each value with an answer of the world outside, which is another one each time."""
    asked = itertools.count()

    async def answer(value: str) -> str:
        return f"{value}:{next(asked)}"

    builder = StreamsBuilder("asked", key=str, value=str)
    builder.stream("in").map_values(answer, value=str).to("out")
    return builder.build()


def _judge_asked(seen: Seen) -> Iterable[str]:
    wanted = by_key(seen.records("in"))
    got = by_key((k, (v or b"").partition(b":")[0]) for k, v in seen.records("out"))
    yield from compare("out", wanted, got, seen.exact)
    answers = [v for _, v in seen.records("out")]
    if seen.exact and len(set(answers)) < len(answers):
        yield "I2 an answer was used for two records"


TICKS, KEPT = key_value_store("ticks", key=str, value=int), key_value_store("counts", key=str, value=int)


class Ticks(Processor[str, str, str, int]):
    """Counts records by key, and the turns of a clock on the wall: its state changes while its positions stand still."""

    stores = (TICKS, KEPT)
    timers = ("wall_time",)

    def init(self, ctx: ProcessorContext[str, int]) -> None:
        self._ctx = ctx
        ctx.schedule(TICK_MS, self._tick, "wall_time")

    def process(self, record: Record[str, str], ctx: ProcessorContext[str, int]) -> None:
        """One of each key."""
        n = (ctx.store(KEPT).get(record.key) or 0) + 1
        ctx.store(KEPT).put(record.key, n)
        ctx.forward(record.key, n)

    def _tick(self, now_ms: int) -> None:
        ticks = self._ctx.store(TICKS)
        ticks.put("t", (ticks.get("t") or 0) + 1)


def _ticking() -> Topology:
    builder = StreamsBuilder("ticking", key=str, value=str)
    builder.stream("in").process(Ticks, name="ticking").to("out", value=int)
    return builder.build()


PROGRAMS = {
    "counts": Program(
        lambda: keyed_count.build("in", "out"),
        ("in",),
        ("out",),
        _write_key,
        _judge_counts,
        ("in", "out"),
        _step_count,
        "counts",
    ),
    "balances": Program(_balances, ("in",), ("out",), _write_balance, _judge_balances, step=_step_balance, kept="sums"),
    "joined": Program(
        clicks_per_region, ("users", "clicks"), ("joined", "counted"), _write_click, _judge_joined, ("clicks", "joined")
    ),
    "regions": Program(combined_clicks, ("clicks",), ("counted",), _write_region, _judge_combined),
    "windows": Program(
        _windows, ("in",), ("out",), _write_key, _judge_windows, ("in", "out"), _step_windows, expires=True
    ),
    "ticking": Program(_ticking, ("in",), ("out",), _write_key, _judge_counts, ("in", "out"), _step_count, "counts"),
    "asked": Program(_asked, ("in",), ("out",), _write_key, _judge_asked, ("in", "out")),
    "stateless": Program(
        lambda: celsius.build("in", "out"),
        ("in",),
        ("out",),
        _write_key,
        _judge_stateless,
        ("in", "out"),
        _step_stateless,
    ),
}
