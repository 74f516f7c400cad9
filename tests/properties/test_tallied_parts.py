"""Aggregates of whole numbers that the compiled part folds, before a repartition topic, behind it and without one: outputs,
partials, changelogs and their order, stores and counters are those of rows, with windows and late records, nulls, numbers
near the bounds of 64 bits, and with commits that fail, readers, losses and restarts anywhere."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
import orjson
import pytest

from penstock.state.errors import UserError
from penstock.state.log import Record, TaskId
from penstock.state.native import without
from penstock.state.stores.memory_backend import MemoryBackend
from penstock.state.stores.part_store import PartStoreView
from penstock.streams.task.commit_metadata import VERSION, CommitMetadata
from penstock.streams.task.error_policies import Policies
from penstock.streams.task.task import Task
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.columnar import column_parts
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.expressions.functions import col, count, key, lit, struct, window_start
from penstock.topologies.expressions.tree import Expression
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operator_api.watermark_strategies import bounded_out_of_orderness
from penstock.topologies.operators.aggregates.folds.tallied_parts import TalliedParts
from penstock.topologies.operators.aggregates.tallied_partials import TalliedPartPartials
from penstock.topologies.windows import tumbling
from tests.properties.following import COMMIT, DISCARD, READ, RESTART, RESTORE, left_behind, take_all
from tests.properties.oracle import Input
from tests.properties.running import chunk_of

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")  # numpy would say what rows do not
SIZES = (7, 50, 10_000)
PARTIALS = "table-partials-repartition"
POLICIES = Policies(processing="skip", deserialization="skip")
FAR = (*[1 << 60, -(1 << 60)] * 3, (1 << 62) - 1, 1 << 62, -(1 << 62), (1 << 63) - 1, -(1 << 63))


class Given(msgspec.Struct, frozen=True):
    """What records have."""

    n: int
    text: str = "none"
    m: int | None = None
    x: float = 0.0


GROUPS: tuple[Expression, ...] = (
    col("n") % 5,
    col("text"),
    lit(7),
    col("text").cast("bytes"),
    struct(odd=col("n") % 2, text=col("text")),
    (col("n") % 3) * 0.5,
)
EVERY: dict[str, Expression] = {
    "records": count(),
    "some": count().where(col("n") > 4),
    "there": col("m").count(),
    "sum": col("n").sum(),
    "mean": col("m").mean(),
    "lows": col("m").sum(),
    "least": col("m").min(),
    "most": col("n").max().where(col("n") % 2 == 0),
    "ratio": col("n").sum() // count(),
    "next": (col("n") + 1).max(),
}
OTHERS: dict[str, Expression] = {
    "highest": col("x").max(),
    "last": col("text").max(),
    "failing": (lit(60) // (col("n") - 3)).sum(),
    "over": (col("n") * 3).sum(),
}


def parts(rng: random.Random) -> dict[str, Expression]:
    every = EVERY if rng.random() < 0.85 else EVERY | OTHERS
    return {name: every[name] for name in rng.sample(list(every), rng.randint(1, 5))}


def build(rng: random.Random) -> Topology:
    builder = StreamsBuilder("p", emission="per_commit")
    watermark = rng.choice((None, None, 0, 6))
    strategy = None if watermark is None else bounded_out_of_orderness(watermark, interval=1)
    plain: Any = "json" if rng.random() < 0.1 else Given
    stream: Any = builder.stream("in", key=rng.choice((bytes, str)), value=plain, watermark=strategy)
    by = rng.choice((None, *GROUPS))
    grouped = stream.group_by_key() if by is None else stream.group_by(by)
    size, grace = rng.choice((10, 40, 1_000)), rng.choice((0, 3, 25))
    spans = rng.choice((None, tumbling(size, grace=grace), tumbling(size, grace=grace, offset=3)))
    if spans is not None:
        grouped = grouped.windowed_by(spans)
    emission = "on_close" if spans is not None and rng.random() < 0.2 else "per_commit"
    combine = {"combine": True} if by is not None and rng.random() < 0.7 else {}
    table = grouped.agg(name="table", emission=emission, approximate=True, **combine, **parts(rng))
    if rng.random() < 0.1:
        table = table.filter(lambda key, value: True)
    shown = table.to_stream()
    if spans is not None and rng.random() < 0.5:
        shown = shown.with_columns(of=key()["key"], start=window_start())
    shown.to("out")
    return builder.build()


def random_record(rng: random.Random, now: int, *, far: float) -> Record:
    fields: dict[str, Any] = {
        "n": rng.choice(FAR) if rng.random() < far else rng.randint(-3, 9),
        "m": rng.choice(FAR) if rng.random() < far else rng.choice((None, None, 1, 5, 9)),
        "x": rng.choice((1.5, -2.0)),
    }
    if rng.random() < 0.7:
        fields["text"] = rng.choice(("a", 'q"', "é", "zz", "x" * 40))
    if rng.random() < 0.01:
        fields["n"] = rng.choice((1.5, None, "1"))
    kind = rng.random()
    data = orjson.dumps(fields) if kind > 0.01 else b"{"
    record_key = None if rng.random() < 0.02 else rng.choice((b"a", b"b", b"", b"c" * 30))
    ts = max(now - rng.choice((0, 0, 0, 0, 2, 7, 30)), 0)
    return Record(record_key, None if kind > 0.97 else data, ts, (("h", b"1"),) if rng.random() < 0.01 else ())


def random_steps(rng: random.Random) -> list[Record | str]:
    steps: list[Record | str] = []
    now, far = rng.randint(0, 30), rng.choice((0, 0, 0.003, 0.05))
    for _ in range(rng.randint(3, 7)):
        for _ in range(rng.choice((1, 3, 30, 90))):
            now += rng.choice((0, 0, 0, 1, 2)) if rng.random() < 0.98 else 60
            steps.append(random_record(rng, now, far=far))
        if rng.random() < 0.9:
            steps.append(rng.choice((COMMIT, COMMIT, COMMIT, RESTART, RESTORE, READ, DISCARD)))
    return steps


def outcome(seed: int, size: int, *, columns: bool) -> dict[str, Any]:
    """Everything that a seed's topology did with the seed's input."""
    topology = build(random.Random(seed))
    steps: list[Any] = random_steps(random.Random(f"records of {seed}"))
    options = TaskOptions(batch_max_records=size, policies=POLICIES)
    found: dict[str, Any] = {"shown": []}
    try:
        with TopologyTestDriver(topology, options=options, auto_commit=False, columns=columns) as driver:
            plain = driver.pipe_raw

            def pipe_all(topic: str, records: list[Record]) -> None:
                plain({topic: list(records)})
                found["shown"] += driver.read_raw("out")

            driver.pipe_all = pipe_all  # type: ignore[method-assign]  # records are bytes
            found["seen"] = take_all(driver, steps, left_behind)
            driver.restart()  # carries on what commits send
            found["partials"] = driver.read_raw(f"{driver.application_id}-{PARTIALS}")
            return found | left_behind(driver)
    except UserError as exc:  # a sum does not fit into 64 bits
        return found | {"failed": str(exc)}


@pytest.fixture(autouse=True)
def small_batches_in_columns() -> Iterator[None]:
    """Batches of a few records go by columns."""
    fewest = column_parts.FEWEST
    yield
    column_parts.FEWEST = fewest


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each way was taken."""
    seen: Counter[str] = Counter()

    def watch(kind: type, name: str, note: Any) -> None:
        plain = getattr(kind, name)

        def watched(self: Any, *args: Any) -> Any:
            found = plain(self, *args)
            seen[note(self, found)] += 1
            return found

        monkeypatch.setattr(kind, name, watched)

    watch(PartStoreView, "take", lambda view, done: f"{view.spec.kind} {'taken' if done else 'left'}")
    watch(PartStoreView, "_settle", lambda view, _: "settled")
    watch(PartStoreView, "packed_changes", lambda view, found: "packed" if found is not None else "unpacked")
    watch(TalliedPartPartials, "add_spans", lambda partials, done: "combined" if done else "not combined")
    watch(TalliedPartPartials, "_settle", lambda partials, _: "held")
    watch(TalliedParts, "flush", lambda fold, settled: "flushed by rows" if settled else "flushed")
    return seen


def _other(found: dict[Any, Any], rows: dict[Any, Any]) -> list[Any]:
    """What is not as by rows, by name; pytest would take minutes to show how."""
    return [name for name in found.keys() | rows.keys() if found.get(name) != rows.get(name)]


@pytest.mark.parametrize("block", range(10))
def test_columns_change_nothing(used: Counter[str], block: int) -> None:
    written = 0
    for seed in range(block, 200, 10):
        rng = random.Random(seed)
        for size in SIZES:
            column_parts.FEWEST = 64
            rows = outcome(seed, size, columns=False)
            column_parts.FEWEST = rng.choice((1, 2, 20))
            assert not _other(outcome(seed, size, columns=True), rows), f"seed {seed}, batches of {size}"
            written += len(rows["shown"])
    assert written > 500
    ways = ("window taken", "key_value taken", "settled", "packed", "combined", "held", "flushed by rows")
    assert not [way for way in ways if not used[way]], used


def test_columns_without_the_compiled_part(used: Counter[str]) -> None:
    with without():
        for seed in range(20):
            assert not _other(outcome(seed, 50, columns=True), outcome(seed, 50, columns=False)), seed
    assert not used["packed"] and not used["combined"]


def _summed(windowed: bool) -> Topology:
    builder = StreamsBuilder("t", key=str, value=Given, emission="per_commit")
    grouped: Any = builder.stream("in").group_by_key()
    if windowed:
        grouped = grouped.windowed_by(tumbling(40, grace=5))
    table = grouped.agg(name="sums", n=count(), total=col("n").sum(), low=col("m").min())
    table.to_stream().to("out")
    return builder.build()


def _shown(seed: int, *, columns: bool) -> list[Any]:
    """What each try of a commit emitted and logged; some tries do not succeed, and their tasks go on."""
    rng = random.Random(seed)
    topology = _summed(rng.random() < 0.5)
    (sub,) = topology.subtopologies
    start = {"in": (0, CommitMetadata(version=VERSION))}
    options = TaskOptions(columns="auto" if columns else "off", policies=POLICIES)
    backend = MemoryBackend(sub.stores)
    task = Task(TaskId(0, 0), "t", topology, sub, backend, start, options, {})
    out: list[Any] = []
    offset = 0
    for _ in range(8):
        for size in [rng.choice((0, 1, 5, 90)) for _ in range(2)]:
            far = rng.choice((0, 0, 0.02))
            rows = []
            for i in range(size):
                record = random_record(rng, offset + i, far=far)
                rows.append(Input("in", offset + i, b"%d" % rng.randrange(30), record.value, record.timestamp_ms, ()))
            if rows:
                offset += size
                task.add(chunk_of(rows, 0).in_columns() if columns else chunk_of(rows, 0), offset)
                while task.process(0):
                    pass
            if rng.random() < 0.2:
                task.stores["sums"].get(b"7")
        try:
            work = task.prepare_commit()
        except UserError as exc:  # a sum does not fit into 64 bits
            return [*out, str(exc)]
        sent = task.take_outputs()
        out.append([_logged(o) for o in sent])
        out.append({name: puts.listed() for name, puts in work.pending.items()})
        out.append([_logged(o) for _, o in work.changelogs])
        if rng.random() < 0.6:
            task.committed(work, dict.fromkeys(work.pending, b""))
        else:
            task.abandon_commit(work)
    out.append(dict(backend.range("sums", None, None)))
    return out


def _logged(output: Any) -> Any:
    return [list(output.keys), list(output.values), list(output.timestamps)]


@pytest.mark.parametrize("seed", range(60))
def test_a_commit_that_is_tried_again_shows_only_what_is_new(seed: int) -> None:
    found, rows = (dict(enumerate(_shown(seed, columns=columns))) for columns in (True, False))
    assert not _other(found, rows)
