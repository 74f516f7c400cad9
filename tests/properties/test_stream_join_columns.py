"""The stream–stream join by columns and by rows: the same results, late records, counters, changelogs and stores, at every
batch size, over restarts, and where both forms take turns on the same stores."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.state import native
from penstock.state.log import Record, TaskId
from penstock.state.rocksdb.rocksdb_backend import RocksDBBackend
from penstock.state.stores.list_store import TIME_IN
from penstock.state.stores.memory_backend import MemoryBackend
from penstock.state.stores.store import StateBackend, StoreWrites
from penstock.streams.task.error_policies import Policies
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.columnar import column_parts
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.expressions.functions import col, count, left, right, struct
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operator_api.watermark_strategies import bounded_out_of_orderness
from penstock.topologies.operators.columnar.stream_join import StreamJoinColumns

LETTERS = "letters"
BATCHES = (1, 2, 7, 10_000)
POLICIES = Policies(deserialization="dead_letter", processing="dead_letter", dead_letter_topic=LETTERS)


class Item(msgspec.Struct, frozen=True):
    n: int
    name: str
    until: int | None = None
    ok: bool = True


class Priced(msgspec.Struct, frozen=True):
    """With numbers that have several notations."""

    n: int
    price: float
    name: str = "x"
    until: int | None = 9


class Changing(msgspec.Struct):
    """May be changed in place."""

    n: int
    name: str
    until: int | None = None


class Both(msgspec.Struct, frozen=True):
    one: Item
    other: Item
    sum: int


def in_time(one: Item, other: Item) -> bool:
    """A condition as a plain function."""
    return one.n <= other.n and (one.until is None or other.n <= one.until)


def summed(one: Item, other: Item) -> dict[str, Any]:
    """A dict of fields of both sides."""
    return {"n": one.n, "sum": one.n + other.n, "name": one.name if one.until is None else other.name}


CONDITIONS: tuple[Any, ...] = (
    in_time,
    lambda one, other: one.name == other.name,
    None,
    right("n").between(left("n"), left("until")),
    left("n") <= right("n"),
    (left("name") == right("name")) | left("until").is_null(),
    left("n") // right("n") >= 0,
    left("n") + right("n") < 2**62,
)
JOINERS: tuple[Any, ...] = (
    struct(one=left(), other=right()),
    struct(n=left("n"), m=right("n"), name=right("name")),
    struct(n=left("n") + right("n"), whole=right()),
    left(),
    right(),
    left("n") - right("n"),
    right("until"),
    summed,
    lambda one, other: {"until": other.until, "late": one.n > other.n},
)
NUMBERS = (0, 1, 2, 3, 5, -1, 2**62, 2**63 - 1, 2**70)
KEYS = (b"a", b"b", b"ab", b"", None)


class Shape(NamedTuple):
    """One topology. ``late``: the watermark's delay; ``None``: on stream time. ``kind``: the method that joins."""

    types: tuple[Any, Any]
    condition: Any
    joiner: Any
    before: int
    after: int
    grace: int
    late: int | None
    result_time: str
    kind: str = "join"
    eager: bool = False


shapes = st.builds(
    Shape,
    st.sampled_from([(Item, Item), (Item, Item), (Priced, Item), (Item, Changing), (Changing, Priced)]),
    st.sampled_from(CONDITIONS),
    st.sampled_from(JOINERS),
    st.integers(-3, 12),
    st.integers(-3, 12),
    st.integers(0, 10),
    st.sampled_from([None, 0, 3, 10]),
    st.sampled_from(["latest", "latest", "left", "right"]),
    st.just("join"),
    st.just(False),
).filter(lambda shape: shape.before + shape.after >= 0)


def topology_of(shape: Shape, then: Any = None, emission: Any = "every_update") -> Topology:
    """The join, and what was too late for it; or what follows the join."""
    builder = StreamsBuilder("joins", emission=emission)
    watermark = None if shape.late is None else bounded_out_of_orderness(shape.late)
    one, other = (
        builder.stream(topic, key=str, value=tp, watermark=watermark)
        for topic, tp in zip(("left", "right"), shape.types, strict=True)
    )
    outer = {} if shape.kind == "join" else {"eager": shape.eager}
    joined = getattr(one, shape.kind)(
        other,
        shape.joiner,
        before=shape.before,
        after=shape.after,
        grace=shape.grace,
        condition=shape.condition,
        result_time=shape.result_time,
        name="pairs",
        **({"value": dict} if isinstance(shape.joiner, FunctionType) else {}),
        **outer,
    )
    (joined if then is None else then(joined)).to("out")
    if shape.late is not None and shape.types[0] is shape.types[1]:
        one.late_of(joined).to("late")
    return builder.build()


def deepest(stream: Any) -> Any:
    """Fields of fields, aggregated: every update."""
    best = stream.group_by_key().agg(best=col("other.n").max(), least=col("one.n").min(), times=count())
    return best.to_stream()


def regrouped(stream: Any) -> Any:
    """Former results are subtracted."""
    best = stream.group_by_key().agg(best=col("other.n").max(), name=col("one.name").min())
    by_name = best.group_by(lambda key, row: (row["name"], (row["best"] or 0) % 1000), key=str, value=int)
    return by_name.aggregate(int, lambda k, v, sum: sum + v, lambda k, v, sum: sum - v, value=int).to_stream()


def chosen(stream: Any) -> Any:
    """Conditions, keys and values of fields of fields."""
    some = stream.filter_values((col("one.n") <= col("other.n")) | (col("other.name") == "x"))
    return some.select(n=col("one.n") + 1, until=col("other.until"), whole=col("one"))


FOLLOWED: tuple[Any, ...] = (deepest, regrouped, chosen)


def random_value(rng: random.Random, tp: Any) -> bytes | None:
    """As its serde writes it, otherwise written, null, or wrong."""
    way = rng.random()
    if way < 0.06:
        return None
    if way < 0.1:
        return rng.choice((b"{", b'{"n":1.5,"name":"x"}', b"\xff"))
    row: dict[str, Any] = {"n": rng.choice(NUMBERS[:6] if rng.random() < 0.9 else NUMBERS), "name": rng.choice("xyö")}
    if tp is Priced:
        row["price"] = rng.choice((0.0, 1, 1.5, 1e300))
    if rng.random() < 0.7:
        row["until"] = rng.choice((None, 0, 3, 5, 9))
    if rng.random() < 0.3:
        row = dict(reversed(row.items()))
    if rng.random() < 0.6:
        return msgspec.json.encode(msgspec.convert(row, tp))
    return msgspec.json.format(msgspec.json.encode(row), indent=rng.choice((0, 1)))


class Step(NamedTuple):
    """What arrives at once, and whether the task then starts again, is restored, or loses the older half of its buffers, as
    if their changelogs had dropped it by age."""

    records: dict[str, list[Record]]
    then: str


def random_steps(rng: random.Random, shape: Shape, *, most: int) -> list[Step]:
    """Times go up and down, so that some records are late, and some far too late."""
    now = 0
    steps = []
    jumps, lags = (
        rng.choice(((0, 0, 1, 2), (0, 1, 1, 9))),
        rng.choice(((0,), (0, 0, 1, 3), (0, 0, 2, 6), (0, 1, 12, 60))),
    )
    for _ in range(rng.randint(1, 5)):
        records: dict[str, list[Record]] = {"left": [], "right": []}
        for _ in range(rng.randint(0, most)):
            port = rng.randint(0, 1)
            now += rng.choice(jumps) if rng.random() < 0.95 else 25
            ts = max(0, now - rng.choice(lags))
            headers = (("h", b"1"),) if rng.random() < 0.1 else ()
            value = random_value(rng, shape.types[port])
            records[("left", "right")[port]].append(Record(rng.choice(KEYS), value, ts, headers))
        steps.append(Step(records, rng.choice(("", "", "restart", "restore"))))
    return steps


def answers(
    topology: Topology, steps: Sequence[Step], batch: int, *, columns: bool, path: Path | None = None, cache: int = 0
) -> Any:
    """All that a run leaves behind. ``path``: where its stores are; ``None``: in memory."""
    options = TaskOptions(policies=POLICIES, batch_max_records=batch, columns="auto" if columns else "off")
    options = dataclasses.replace(options, state_cache_max_bytes=cache) if cache else options

    def opened(task: TaskId, stores: Any) -> StateBackend:
        return MemoryBackend(stores) if path is None else RocksDBBackend(path / str(task), stores)

    with TopologyTestDriver(topology, options=options, columns=columns, open_backend=opened) as driver:
        for step in steps:
            driver.pipe_raw(step.records)
            driver.commit()
            if step.then == "lose":
                lose_older_half(driver)
            if step.then:
                driver.restart(restore=step.then == "restore")
        stores = {
            state.spec.name: (
                list(task.backend.range(state.spec.name, None, None)),
                getattr(state, "drop_before_ms", 0),
            )
            for task in driver.tasks.values()
            for state in task.stores.values()
        }
        written = {topic: driver.read_raw(topic) for topic in ("out", "late", LETTERS)}
        return written, +driver.dropped_records, driver.changelogs, stores


def lose_older_half(driver: TopologyTestDriver) -> None:
    """Of every buffer, by time."""
    for task in driver.tasks.values():
        for spec in (state.spec for state in task.stores.values() if state.spec.kind == "list"):
            keys = sorted((key for key, _ in task.backend.range(spec.name, None, None)), key=lambda key: key[-12:])
            position = task.backend.position(spec.name)
            if position is None:
                continue
            gone = [(key, None) for key in keys if key[-12:-4] <= keys[len(keys) // 2][-12:-4]]
            task.backend.commit([StoreWrites(spec.name, gone, position)])


@pytest.fixture(scope="module")
def tried() -> Counter[bool]:
    """How often batches were joined by columns (true), or left to the rows."""
    return Counter()


@pytest.fixture(autouse=True)
def _counted(tried: Counter[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    count_joins(tried, monkeypatch)


def count_joins(tried: Counter[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on count in ``tried``."""
    join: Callable[..., Any] = StreamJoinColumns.join

    def counting(self: StreamJoinColumns, *args: Any) -> Any:
        found = join(self, *args)
        tried[found is not None] += 1
        return found

    monkeypatch.setattr(StreamJoinColumns, "join", counting)


def check(shape: Shape, seed: int, *, most: int = 25, then: Any = None, emission: Any = "every_update") -> None:
    """Rows at one size are the reference."""
    topology, steps = topology_of(shape, then, emission), random_steps(random.Random(seed), shape, most=most)
    expected = answers(topology, steps, 7, columns=False)
    for size in BATCHES:
        assert answers(topology, steps, size, columns=True) == expected, size


@settings(deadline=None, max_examples=200)
@given(shapes, st.integers(0, 2**32))
def test_the_same_by_columns_and_by_rows(shape: Shape, seed: int) -> None:
    check(shape, seed)


@settings(deadline=None, max_examples=100)
@given(shapes, st.integers(0, 2**32), st.sampled_from(FOLLOWED), st.sampled_from(["every_update", "per_commit"]))
def test_what_follows_gets_the_same(shape: Shape, seed: int, then: Any, emission: str) -> None:
    """Aggregates, filters and values of fields of either side."""
    check(shape._replace(joiner=struct(one=left(), other=right())), seed, then=then, emission=emission)


@settings(deadline=None, max_examples=40)
@given(shapes, st.integers(0, 2**32))
def test_the_same_without_the_compiled_part(shape: Shape, seed: int) -> None:
    """Texts are then read and written one by one."""
    with native.without():
        check(shape, seed)


def test_what_expires_within_a_batch_is_not_met() -> None:
    """A late record finds the younger one of two partners: the older one went when time went on before it."""
    shape = Shape((Item, Item), None, struct(n=left("n"), m=right("n")), 5, 0, 0, None, "latest")
    old, young, late = (msgspec.json.encode(Item(n, "x")) for n in (1, 2, 3))
    rights, lefts = [Record(b"a", old, 0), Record(b"a", young, 1)], [Record(b"z", late, 6), Record(b"a", late, 4)]
    steps = [Step({"left": lefts, "right": rights}, "")]
    for columns in (False, True):
        written = answers(topology_of(shape), steps, 100, columns=columns)[0]
        assert written["out"] == [Record(b"a", b'{"n":3,"m":2}', 4)], columns


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("size", [1, 100])
def test_what_can_find_no_partner_is_not_written(columns: bool, size: int) -> None:
    """Rights below the watermark, and lefts the window's length below it."""
    shape = Shape((Item, Item), None, struct(n=left("n"), m=right("n")), 0, 5, 0, 3, "latest")
    lefts, rights = ([Record(b"a", msgspec.json.encode(Item(i, "x")), i) for i in range(40)] for _ in range(2))
    steps = [Step({"left": lefts, "right": rights}, "")]
    _, _, changelogs, stores = answers(topology_of(shape), steps, size, columns=columns)
    watermark_ms = 39 - 3 - 1
    times = {name: [int.from_bytes(key[TIME_IN], "big") for key, _ in found] for name, (found, _) in stores.items()}
    assert times == {"pairs-left": list(range(watermark_ms - 5, 40)), "pairs-right": list(range(watermark_ms, 40))}
    assert sum(map(len, changelogs.values())) == 10 + 5


@settings(deadline=None, max_examples=100)
@given(shapes, st.integers(0, 2**32))
def test_rows_and_columns_take_turns(shape: Shape, seed: int) -> None:
    """Some batches are long enough for columns, others are not; and one side's may come as lists."""
    fewest = column_parts.FEWEST
    column_parts.FEWEST = 9
    try:
        check(shape, seed, most=60)
    finally:
        column_parts.FEWEST = fewest


@pytest.mark.parametrize("seed", range(6))
def test_the_same_on_disk_with_little_memory(seed: int, tmp_path: Path) -> None:
    """Groups are read from the disk again and again, and sequence numbers, too. Little memory means more commits, so
    changelogs are others, and so are the expired entries that stores still have."""
    rng = random.Random(seed)
    shape = Shape((Item, Item), CONDITIONS[seed], JOINERS[0], 9, 9, 5, (None, 3)[seed % 2], "latest")
    steps = [step._replace(then=rng.choice(("", "restart"))) for step in random_steps(rng, shape, most=60)]
    expected = answers(topology_of(shape), steps, 7, columns=False)
    for size in BATCHES:
        found = answers(topology_of(shape), steps, size, columns=True, path=tmp_path / str(size), cache=1)
        assert found[:2] == expected[:2], size
        assert live(found[3]) == live(expected[3]), size


def live(stores: dict[str, tuple[list[tuple[bytes, bytes]], int]]) -> dict[str, list[tuple[bytes, bytes]]]:
    """The entries that have not expired."""
    return {
        name: [(key, value) for key, value in entries if key[TIME_IN] >= before_ms.to_bytes(8, "big")]
        for name, (entries, before_ms) in stores.items()
    }


def test_most_batches_are_joined_by_columns(tried: Counter[bool]) -> None:
    """What the other tests compare is not rows with rows."""
    assert tried[True] > 2 * tried[False] > 0, tried
