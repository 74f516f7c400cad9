"""Dicts that are made of columns, and that functions combine before a repartition topic: the same outputs as on rows,
although the functions change the dicts that they get, which others read, too."""

from __future__ import annotations

import random
from typing import Any

import pytest

from penstock.state.log import Record
from penstock.streams.task.error_policies import Policies
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.expressions.functions import col, key, value, when, window_end
from penstock.topologies.expressions.tree import Expression
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operators.aggregates import fold_partials
from penstock.topologies.windows import tumbling

SKIPPING = Policies(processing="skip")
N = value().cast("int64")
FIELDS: tuple[dict[str, Expression], ...] = (
    {"n": N, "even": N % 2 == 0, "text": key()["key"]},
    {"n": N, "ratio": N / 3},  # a float
    {"n": N, "none": when(N > 9).then(N).otherwise(None)},  # a null
    {"n": N, "end": window_end()},  # a time
)


def changing(key: Any, value: dict[str, Any], acc: list[Any]) -> list[Any]:
    """Keeps the dicts that it gets, and changes them."""
    if value["n"] == 7:
        raise ValueError("seven")
    value["n"] += 100
    acc.append(value)
    return acc[-3:]


def both(one: list[Any], other: list[Any]) -> list[Any]:
    return (one + other)[-3:]


def topology(fields: dict[str, Expression], *, first: bool) -> Topology:
    builder = StreamsBuilder("t", key=str, emission="per_commit")
    windows = builder.stream("in", value=str).group_by_key().windowed_by(tumbling(5, grace=0))
    made = windows.count(emission="on_close").to_stream().select(**fields)
    if first:
        made.map_values(lambda fields: fields).to("copy")
    lists = made.group_by(col("n") % 5).aggregate(list, changing, merge=both, value=list, name="lists", combine=True)
    if not first:
        made.map_values(lambda fields: fields).to("copy")
    lists.to_stream().to("out")
    return builder.build()


def outputs(built: Topology, seed: int, *, columns: bool, batch: int) -> list[Any]:
    rng = random.Random(seed)
    options = TaskOptions(columns="auto" if columns else "off", batch_max_records=batch)
    out: list[Any] = []
    now = 0
    with TopologyTestDriver(built, options=options, policies=SKIPPING, columns=columns, auto_commit=False) as driver:
        for _ in range(4):
            records = [Record(b"%d" % rng.randrange(70), b"", now + at // 40) for at in range(rng.choice((3, 900)))]
            now += 30
            driver.pipe_raw({"in": records})
            driver.commit()
            out.append([driver.read_raw(topic) for topic in ("copy", "out")])
    return out


@pytest.mark.parametrize("seed", range(12))
def test_rows_and_columns_give_the_same(seed: int) -> None:
    rng = random.Random(seed)
    built = topology(rng.choice(FIELDS), first=rng.random() < 0.5)
    expected = outputs(built, seed, columns=False, batch=1)
    for batch in (7, 10_000):
        assert outputs(built, seed, columns=True, batch=batch) == expected


def test_plain_dicts_are_not_written_to_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = []
    are = fold_partials.ReadableColumns.are_dicts
    monkeypatch.setattr(
        fold_partials.ReadableColumns, "are_dicts", lambda self, column: kept.append(are(self, column)) or kept[-1]
    )
    for fields in FIELDS[:2]:
        outputs(topology(fields, first=True), 3, columns=True, batch=10_000)
        assert (True in kept) == (fields is FIELDS[0])
        kept.clear()
