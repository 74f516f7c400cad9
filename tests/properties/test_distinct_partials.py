"""Distinct counts that are combined before their repartition topic and have their members apart behind it: the same outputs,
partials, changelogs, stores and counters in columns as on rows, and as without the compiled part, with windows, watermarks,
values of every type, commits and restarts anywhere."""

from __future__ import annotations

import random
from collections import Counter
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from penstock.state.log import Record
from penstock.state.native import compiled, without
from penstock.state.stores.member_view import MemberStoreView
from penstock.streams.task.error_policies import Policies
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.expressions.functions import col, count, lit, struct
from penstock.topologies.expressions.tree import Expression
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operator_api.watermark_strategies import bounded_out_of_orderness
from penstock.topologies.operators.aggregates import fold_partials
from penstock.topologies.operators.aggregates.fold_partials import PartPartials
from penstock.topologies.operators.aggregates.folds.partials import PartialColumns
from penstock.topologies.operators.columnar.distinct import ValueColumns
from penstock.topologies.windows import Windows, hopping, tumbling
from tests.properties.following import left_behind

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")  # numpy would say what rows do not
BATCHES = (1, 7, 10_000)
SEEDS = range(24)
PARTIALS = "table-partials-repartition"


class Visit(msgspec.Struct, frozen=True):
    """What records have."""

    n: int
    page: str = "none"
    user: int | None = None
    x: float | None = None
    b: bool = False


GROUPS: tuple[Expression, ...] = (col("page"), col("n") % 40, struct(page=col("page"), odd=col("n") % 2), lit("all"))


def parts(rng: random.Random) -> dict[str, Expression]:
    """Aggregates, some of which are distinct counts: at other places each time, of columns of every kind."""
    n, user = col("n"), col("user")
    distinct = {
        "ns": n.count_distinct(),
        "big": n.count_distinct().where(n >= 70),
        "huge": (n * (1 << 55)).count_distinct(),
        "users": user.count_distinct(),
        "low": user.count_distinct().where(n < 30),
        "pages": col("page").count_distinct(),
        "xs": col("x").count_distinct(),
        "bs": col("b").count_distinct(),
        "both": struct(n=n % 5, page=col("page")).count_distinct(),
        "failing": (lit(60) // (n - 3)).count_distinct(),
    }
    others = {"rows": count(), "sum": n.sum(), "mean": user.mean(), "least": col("x").min(), "last": col("page").max()}
    usual = [name for name in distinct if name != "failing" or rng.random() < 0.1]
    names = rng.sample(usual, rng.randint(1, 4)) + rng.sample(list(others), rng.randint(0, 3))
    rng.shuffle(names)
    return {name: (distinct | others)[name] for name in names}


def windows(rng: random.Random) -> Windows | None:
    size, grace = rng.choice((10, 40, 1_000)), rng.choice((0, 3, 25))
    return rng.choice((None, tumbling(size, grace=grace), tumbling(size, grace=grace), hopping(40, 15, grace=grace)))


def build(rng: random.Random) -> Topology:
    builder = StreamsBuilder("p", emission="per_commit")
    watermark = rng.choice((None, 0, 6, 30))
    strategy = None if watermark is None else bounded_out_of_orderness(watermark, interval=1)
    stream: Any = builder.stream("in", key=bytes, value=Visit, watermark=strategy)
    grouped = stream.group_by(rng.choice(GROUPS))
    spans = windows(rng)
    if spans is not None:
        grouped = grouped.windowed_by(spans)
    emission = "on_close" if spans is not None and rng.random() < 0.2 else "per_commit"
    made = {"name": "table", "combine": True, "emission": emission}
    some = parts(rng)
    table = grouped.aggregate(struct(**some), **made) if rng.random() < 0.5 else grouped.agg(**made, **some)
    table.to_stream().to("out")
    return builder.build()


def random_record(rng: random.Random, now: int) -> Record:
    visit = Visit(
        rng.randint(-3, 99),
        rng.choice(("a", "", "é", "x" * 300, *(f"page {n}" for n in range(30)))),
        rng.choice((None, 0, 5, 128, 1 << 40, -1, -(1 << 63), (1 << 63) - 1)),
        rng.choice((None, 0.0, -0.0, 1.5, 1e300)),
        rng.random() < 0.5,
    )
    data = msgspec.json.encode(visit)
    kind = rng.random()
    if kind < 0.01:
        data = rng.choice((data[:-1], b"", b"[]"))
    return Record(b"k", None if kind > 0.98 else data, max(now - rng.choice((0, 0, 0, 0, 2, 7, 30)), 0))


def outcome(seed: int, batch: int, *, columns: bool) -> dict[str, Any]:
    """Everything that a seed's topology did with the seed's input."""
    topology = build(random.Random(seed))
    rng = random.Random(f"records of {seed}")
    options = TaskOptions(batch_max_records=batch, policies=Policies(processing="skip", deserialization="skip"))
    with TopologyTestDriver(topology, options=options, auto_commit=False, columns=columns) as driver:
        now = rng.randint(0, 30)
        for _ in range(rng.randint(3, 7)):
            records = []
            for _ in range(rng.choice((3, 60, 300))):
                now += rng.choice((0, 0, 0, 1, 2, 5)) if rng.random() < 0.99 else 60
                records.append(random_record(rng, now))
            driver.pipe_raw({"in": records})
            if rng.random() < 0.6:
                driver.commit()
            if rng.random() < 0.3:
                driver.restart(restore=rng.random() < 0.5)
        driver.restart()
        return {**left_behind(driver), "partials": driver.read_raw(f"{driver.application_id}-{PARTIALS}")}


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often partials were folded in columns, new members were moved into entries, and values were kept as numbers, as
    texts and next to those of rows."""
    seen: Counter[str] = Counter()

    def watch(kind: type, method: str, name: str, worth: Any) -> None:
        plain = getattr(kind, method)

        def watched(self: Any, *args: Any) -> Any:
            found = plain(self, *args)
            seen[name] += worth(self, found)
            return found

        monkeypatch.setattr(kind, method, watched)

    watch(PartialColumns, "fold", "folded", lambda fold, found: bool(found))
    watch(MemberStoreView, "_settle", "settled", lambda view, found: 1)
    watch(ValueColumns, "take", "taken", lambda values, found: bool(found))
    watch(PartPartials, "taken", "written", lambda partials, found: not isinstance(found.partials, list))
    return seen


def test_columns_change_nothing(used: Counter[str]) -> None:
    for seed in SEEDS:
        for batch in BATCHES:
            before = used.total()
            with without():
                rows = outcome(seed, batch, columns=False)
            assert used.total() == before, "rows were taken for columns"
            for columns in (False, True):
                assert outcome(seed, batch, columns=columns) == rows, (seed, batch, columns)
    if compiled() is not None:
        assert not [name for name in ("folded", "settled", "taken", "written") if not used[name]], used


def test_columns_without_the_compiled_part(used: Counter[str]) -> None:
    with without():
        for seed in SEEDS:
            assert outcome(seed, 10_000, columns=True) == outcome(seed, 10_000, columns=False), seed
    assert not used["folded"] and not used["taken"]


class Unwriting:
    """Collections in the compiled part that leave the writing of partials to Python."""

    def __init__(self, bags: Any) -> None:
        self._bags = bags

    def __bool__(self) -> bool:
        return bool(self._bags)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bags, name)

    def written(self, *args: Any) -> None:
        self._bags.written(*args)


def test_partials_that_only_python_can_write_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    native = compiled()
    if native is None:
        return
    others = SimpleNamespace(Bags=lambda: Unwriting(native.Bags()))
    for seed in SEEDS:
        with without():
            rows = outcome(seed, 10_000, columns=False)
        with monkeypatch.context() as patch:
            patch.setattr(fold_partials, "compiled", lambda: others)
            assert outcome(seed, 10_000, columns=True) == rows, seed
