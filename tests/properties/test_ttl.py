"""Rows that live for a time, against plain dictionaries that are searched whole before every record."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from penstock.state.log import Record
from penstock.topologies.dsl.builder import StreamsBuilder
from tests.properties.tables import SIZES, Rows, Update, run, store_rows, updates

SEEDS = range(8)
TTL_MS = 40
Emitted = list[tuple[int, Any, Any, int]]


class Rows4ATime:
    """The naive form: rows, and what is emitted of them."""

    def __init__(self) -> None:
        self.rows: Rows = {}
        self.now_ms = -1
        self.emitted: Emitted = []
        self.late = 0

    def advance(self, label: int, ts: int) -> None:
        self.now_ms = max(self.now_ms, ts)
        due = sorted((at + TTL_MS, k) for k, (_, at) in self.rows.items() if at + TTL_MS <= self.now_ms)
        for deadline, key in due:
            del self.rows[key]
            self.emitted.append((label, key, None, deadline))

    def put(self, label: int, key: str, value: Any, ts: int) -> None:
        self.rows.pop(key, None)
        if value is not None:
            self.rows[key] = (value, ts)
        self.emitted.append((label, key, value, ts))

    def is_late(self, ts: int) -> bool:
        late = ts + TTL_MS <= self.now_ms
        self.late += late
        return late


def upserts(given: list[Update]) -> Rows4ATime:
    naive = Rows4ATime()
    for label, (_, r) in enumerate(given):
        naive.advance(label, r.timestamp_ms)
        if r.key is None or naive.is_late(r.timestamp_ms):
            continue
        if r.value is not None or r.key in naive.rows:
            naive.put(label, r.key, r.value, r.timestamp_ms)
    return naive


def sums(given: list[Update]) -> Rows4ATime:
    naive = Rows4ATime()
    for label, (_, r) in enumerate(given):
        naive.advance(label, r.timestamp_ms)
        if r.key is None or r.value is None:
            continue
        found = naive.rows.get(r.key)
        if found is None and naive.is_late(r.timestamp_ms):
            continue
        total, at = found or (0, -1)
        naive.put(label, r.key, total + r.value["n"], max(at, r.timestamp_ms))
    return naive


def with_table(builder: StreamsBuilder) -> None:
    builder.table("a", ttl=TTL_MS, name="rows").to("out")


def with_stream(builder: StreamsBuilder) -> None:
    builder.stream("a").to_table(ttl=TTL_MS, name="rows").to("out")


def with_sums(builder: StreamsBuilder) -> None:
    grouped = builder.stream("a").group_by_key().with_ttl(TTL_MS)
    grouped.aggregate(int, lambda k, v, total: total + v["n"], value=int, name="rows").to("out")


@pytest.mark.parametrize(("make", "naively"), [(with_table, upserts), (with_stream, upserts), (with_sums, sums)])
@pytest.mark.parametrize("seed", SEEDS)
def test_rows_go_when_their_time_has_come(
    make: Callable[[StreamsBuilder], None], naively: Callable[[list[Update]], Rows4ATime], seed: int
) -> None:
    given = updates(random.Random(seed), "a", 200, keys=12)
    naive = naively(given)

    def build() -> StreamsBuilder:
        builder = StreamsBuilder()
        make(builder)
        return builder

    for size in SIZES:
        outputs, driver = run(build, given, size, restart=size in (2, 10_000))
        assert [(label, r.key, r.value, r.timestamp_ms) for label, r in outputs] == naive.emitted
        assert store_rows(driver, "rows") == naive.rows
        late = sum(n for reason, n in driver.dropped_records.items() if reason.endswith(".late"))
        assert late == naive.late
        driver.commit()
        # the changelog says the same as the store, and holds no more timers than rows
        logged: dict[bytes | None, bytes | None] = {r.key: r.value for r in driver.changelogs["test-rows-changelog"]}
        assert {k.decode() for k, v in logged.items() if k is not None and v is not None} == naive.rows.keys()


@pytest.mark.parametrize("seed", SEEDS)
def test_groups_of_a_table_go_and_what_hangs_on_them_is_told(seed: int) -> None:
    given = [(t, r) for t, r in updates(random.Random(seed), "a", 200, keys=12) if r.key is not None]
    naive = Rows4ATime()
    table: Rows = {}
    for label, (_, r) in enumerate(given):
        naive.advance(label, r.timestamp_ms) if r.value is not None or r.key in table else None
        old = table.pop(r.key, (None,))[0]
        if r.value is not None:
            table[r.key] = (r.value, r.timestamp_ms)
        if old is None and r.value is None:
            continue
        found = naive.rows.get(r.key)
        if found is None and naive.is_late(r.timestamp_ms):
            continue
        total = None if found is None else found[0] - (0 if old is None else old["n"])
        if r.value is not None:
            total = (total or 0) + r.value["n"]
        at = r.timestamp_ms if found is None else max(found[1], r.timestamp_ms)
        if found is not None or total is not None:
            naive.put(label, r.key, total, at)

    def build() -> StreamsBuilder:
        builder = StreamsBuilder()
        groups = builder.table("a").group_by(lambda k, v: (k, v)).with_ttl(TTL_MS)
        sums = groups.aggregate(int, lambda k, v, a: a + v["n"], lambda k, v, a: a - v["n"], value=int, name="rows")
        sums.to("out")
        # a second grouping lives on the old values that tombstones carry
        sums.group_by(lambda k, v: ("all", v), value=int).reduce(lambda a, v: a + v, lambda a, v: a - v, name="total")
        return builder

    for size in SIZES:
        outputs, driver = run(build, given, size, restart=size == 7)
        assert [(label, r.key, r.value, r.timestamp_ms) for label, r in outputs] == naive.emitted
        assert store_rows(driver, "rows") == naive.rows
        total = store_rows(driver, "total")["all"][0]
        assert total == sum(v for v, _ in naive.rows.values())


def test_timers_are_no_more_than_rows() -> None:
    """Ten keys, updated for ten times their time: a timer each, and nothing left of former ones."""

    def build() -> StreamsBuilder:
        builder = StreamsBuilder(value=int)
        with_table(builder)
        return builder

    given = [("a", Record(f"k{i % 10}", i, i)) for i in range(10 * TTL_MS)]
    _, driver = run(build, given, 7)
    assert len(store_rows(driver, "rows")) == 10
    assert len(store_rows(driver, "rows-ttl")) == 10
