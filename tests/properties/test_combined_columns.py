"""Aggregate expressions and counts that are combined on columns before their repartition topic: the same outputs,
changelogs, stores and counters as on rows, and as without combining, with windows of all kinds, watermarks, records that are
late or cannot be read, commits and restarts anywhere."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
import orjson
import pytest

from penstock.state.log import Record
from penstock.state.native import without
from penstock.streams.task.error_policies import Policies
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.expressions.functions import col, count, lit, struct, when
from penstock.topologies.expressions.tree import Expression
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operator_api.watermark_strategies import bounded_out_of_orderness
from penstock.topologies.operators.aggregates import column_combining
from penstock.topologies.operators.aggregates.combine import CombineOperator, CombineSpec
from penstock.topologies.operators.aggregates.fold_partials import PartPartials
from penstock.topologies.operators.aggregates.partial_aggregates import CountPartials
from penstock.topologies.windows import CalendarWindows, Windows, hopping, tumbling
from tests.properties.following import left_behind

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")  # numpy would say what rows do not
BATCHES = (1, 7, 10_000)
SEEDS = range(30)
PARTIALS = "table-partials-repartition"


class Given(msgspec.Struct, frozen=True):
    """What records have."""

    n: int
    text: str = "none"
    m: int | None = None
    x: float = 0.0


class Outer(msgspec.Struct, frozen=True):
    """A record around it."""

    kind: int
    inner: Given | None = None


GROUPS: tuple[Expression, ...] = (
    col("n") % 3,
    col("text"),
    lit(7),
    struct(odd=col("n") % 2, text=col("text")),
    when(col("n") % 4 == 0).then(None).otherwise(col("n") % 2),
    (col("n") % 3) * 0.5,
    lit(12) // (col("n") - 7),
)


def parts(rng: random.Random) -> dict[str, Expression]:
    """Aggregates that merge exactly."""
    n = col("n")
    every = {
        "records": count(),
        "some": count().where(n > 4),
        "sum": n.sum(),
        "big": (n * (1 << 60)).sum(),
        "mean": n.mean(),
        "lows": col("m").sum(),
        "least": col("m").min(),
        "most": n.max().where(n % 2 == 0),
        "highest": col("x").max(),
        "texts": col("text").count_distinct(),
        "ratio": n.sum() // count(),
        "last": col("text").max(),
        "first": col("text").min().where(n < 7),
        "failing": (lit(60) // (n - 3)).sum(),
    }
    usual = [name for name in every if name not in ("failing", "big")] if rng.random() < 0.8 else list(every)
    return {name: every[name] for name in rng.sample(usual, rng.randint(1, 4))}


def windows(rng: random.Random) -> Windows | None:
    size, grace = rng.choice((5, 10, 40)), rng.choice((0, 3, 25))
    return rng.choice(
        (
            None,
            tumbling(size, grace=grace),
            tumbling(1_000, grace=grace),
            hopping(size, rng.choice((2, 5, 7)), grace=grace),
            CalendarWindows("day", "Europe/Berlin", grace_ms=grace),
        )
    )


def build(rng: random.Random, *, combine: bool = True) -> Topology:
    """Records, some of them within others or made of them, grouped and aggregated."""
    builder = StreamsBuilder("p", emission="per_commit")
    watermark = rng.choice((None, None, 0, 6, 30))
    strategy = None if watermark is None else bounded_out_of_orderness(watermark, interval=1)
    form = rng.choice(("typed", "plain", "within", "made"))
    given: Any = {"typed": Given, "plain": "json", "within": Outer, "made": Given}[form]
    stream: Any = builder.stream("in", key=bytes, value=given, watermark=strategy)
    if form == "within":
        stream = stream.filter_values(col("kind") < 9).map_values(col("inner"))
    elif form == "made":
        stream = stream.with_columns(n=col("n") + rng.choice((0, 1)))
    grouped = stream.group_by(rng.choice(GROUPS))
    spans = windows(rng)
    if spans is not None:
        grouped = grouped.windowed_by(spans)
    closes = spans is not None and rng.random() < 0.3
    options: dict[str, Any] = {"name": "table", "combine": combine, "emission": "on_close" if closes else "per_commit"}
    table = grouped.count(**options) if rng.random() < 0.25 else grouped.agg(**options, approximate=True, **parts(rng))
    table.to_stream().to("out")
    return builder.build()


def random_record(rng: random.Random, now: int, *, outer: bool) -> Record:
    fields: dict[str, Any] = {
        "n": rng.randint(0, 9),
        "m": rng.choice((None, None, 1, 5, 9)),
        "x": rng.choice((1.5, -2.0)),
    }
    if rng.random() < 0.7:
        fields["text"] = rng.choice(("a", 'q"', "é", "zz"))
    inner = fields if rng.random() < 0.95 else None
    data = orjson.dumps({"kind": rng.randrange(10), "inner": inner} if outer else fields)
    kind = rng.random()
    if kind < 0.02:
        data = rng.choice((data[:-1], b"", b"[]", b'{"n":1e400}'))
    headers = (("h", b"%d" % now),) if rng.random() < 0.05 else ()
    ts = max(now - rng.choice((0, 0, 0, 0, 2, 7, 30)), 0)
    return Record(b"k", None if kind > 0.97 else data, ts, headers)


def outcome(seed: int, batch: int, *, columns: bool, combine: bool = True) -> dict[str, Any]:
    """Everything that a seed's topology did with the seed's input; ``partials``: with the watermarks between them."""
    rng = random.Random(seed)
    topology = build(rng, combine=combine)
    rng = random.Random(f"records of {seed}")
    options = TaskOptions(batch_max_records=batch, policies=Policies(processing="skip", deserialization="skip"))
    outer = any(
        getattr(s, "value_serde", None) is not None and "Outer" in s.value_serde.name
        for s in topology.operators.values()
    )
    with TopologyTestDriver(topology, options=options, auto_commit=False, columns=columns) as driver:
        now = rng.randint(0, 30)
        for _ in range(rng.randint(2, 5)):
            records = []
            for _ in range(rng.choice((3, 60, 200))):
                now += rng.choice((0, 0, 0, 1, 2, 5)) if rng.random() < 0.98 else 60
                records.append(random_record(rng, now, outer=outer))
            driver.pipe_raw({"in": records})
            if rng.random() < 0.5:
                driver.commit()
            if rng.random() < 0.3:
                driver.restart(restore=rng.random() < 0.5)
        driver.restart()  # carries on what commits send
        return {**left_behind(driver), "partials": driver.read_raw(f"{driver.application_id}-{PARTIALS}")}


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many records were added as columns, and how often something was sent before the end of a batch."""
    seen: Counter[str] = Counter()
    for kind in (CountPartials, PartPartials):
        plain = kind.of_columns

        def watched(self: Any, span: int, keys: list[Any], found: Any, batch: Any, plain: Any = plain) -> Any:
            made = plain(self, span, keys, found, batch)
            seen[type(self).__name__] += 0 if made is None else len(batch)
            return made

        monkeypatch.setattr(kind, "of_columns", watched)
    send = CombineOperator.send

    def sending(self: CombineOperator, order: int) -> None:
        seen["sent amid a batch"] += order > 0
        send(self, order)

    monkeypatch.setattr(CombineOperator, "send", sending)
    return seen


@pytest.mark.parametrize(("spans", "seeds"), [(8, SEEDS), (2, range(100, 110))])
def test_columns_change_nothing(
    used: Counter[str], monkeypatch: pytest.MonkeyPatch, spans: int, seeds: Sequence[int]
) -> None:
    monkeypatch.setattr(column_combining, "_SPANS_MAX", spans)  # with two, batches are cut
    sent = 0
    for seed in seeds:
        for batch in BATCHES:
            before = used["PartPartials"] + used["TalliedPartials"]
            rows = outcome(seed, batch, columns=False)
            assert used["PartPartials"] + used["TalliedPartials"] == before, "rows were taken for columns"
            assert outcome(seed, batch, columns=True) == rows, (seed, batch)
            sent += len(rows["partials"])
    assert sent > 500
    kinds = ("PartPartials", "TalliedPartials", "sent amid a batch")
    assert not [kind for kind in kinds if not used[kind]], used


def test_columns_without_the_compiled_part(used: Counter[str]) -> None:
    with without():
        for seed in range(8):
            assert outcome(seed, 10_000, columns=True) == outcome(seed, 10_000, columns=False), seed
    assert used["PartPartials"]


def test_combining_on_columns_changes_no_table(used: Counter[str]) -> None:
    for seed in SEEDS:
        topology = build(random.Random(seed))
        assert any(isinstance(s, CombineSpec) for s in topology.operators.values())
        found = outcome(seed, 10_000, columns=True)
        plain = outcome(seed, 10_000, columns=True, combine=False)
        assert found["stores"] == plain["stores"], seed
        assert {r.key: r for r in found["written"]} == {r.key: r for r in plain["written"]}, seed
