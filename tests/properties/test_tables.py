"""Tables against naive recomputation: after every update, the table that the outputs make must be what plain dictionaries
say, however the input is cut into batches, and across a restart."""

from __future__ import annotations

import random
from typing import Any

import pytest

from penstock.state.log import Record
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.dsl.ktable import KTable
from tests.properties.tables import (
    SIZES,
    Rows,
    check_history,
    doubled,
    doubling,
    keeping,
    odd,
    paired,
    run,
    store_rows,
    tables_after,
    updates,
    values_of,
)

SEEDS = range(6)


# -- naive forms -----------------------------------------------------------------------------------------------------


def joining(kind: str, left: Rows, right: Rows) -> Rows:
    keys = {
        "join": left.keys() & right.keys(),
        "left_join": left.keys(),
        "right_join": right.keys(),
        "outer_join": left.keys() | right.keys(),
    }
    absent = (None, -1)
    return {
        k: (
            paired(left.get(k, absent)[0], right.get(k, absent)[0]),
            max(left.get(k, absent)[1], right.get(k, absent)[1]),
        )
        for k in keys[kind]
    }


# -- filter, map, join -----------------------------------------------------------------------------------------------

KINDS = ("join", "left_join", "right_join", "outer_join")


def joined_tables(builder: StreamsBuilder, kind: str, named: tuple[bool, bool, bool]) -> KTable:
    left = builder.table("a").filter(odd, name="odd" if named[0] else None)
    right = builder.table("b").map_values(doubled, name="doubled" if named[1] else None)
    result: KTable = getattr(left, kind)(right, paired, name="joined" if named[2] else None)
    return result


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_joins_of_derived_tables_follow_both_sides(kind: str, seed: int) -> None:
    rng = random.Random(seed)
    given = updates(rng, "ab", 120)
    named = (rng.random() < 0.5, rng.random() < 0.5, rng.random() < 0.5)

    def build() -> StreamsBuilder:
        builder = StreamsBuilder()
        joined_tables(builder, kind, named).to("out")
        return builder

    expected = [joining(kind, keeping(t["a"]), doubling(t["b"])) for t in tables_after(given, "ab")]
    first = None
    for size in SIZES:
        outputs, driver = run(build, given, size, restart=size == 2)
        check_history(outputs, expected, times=False)
        first = first or outputs
        assert outputs == first
        for is_named, name, want in (
            (named[0], "odd", keeping(tables_after(given, "ab")[-1]["a"])),
            (named[2], "joined", expected[-1]),
        ):
            if is_named:
                assert values_of(store_rows(driver, name)) == values_of(want)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_joined_row_is_as_new_as_what_last_changed_it_and_its_partner(kind: str, seed: int) -> None:
    given = updates(random.Random(seed), "ab", 120)

    def build() -> StreamsBuilder:
        builder = StreamsBuilder(value=int)
        getattr(builder.table("a"), kind)(builder.table("b"), added_up, name="sums").to("out")
        return builder

    numbers = [(t, Record(r.key, r.value and r.value["n"], r.timestamp_ms)) for t, r in given]
    expected: list[Rows] = []
    times: dict[str, int] = {}
    for (topic, r), tables in zip(numbers, tables_after(numbers, "ab"), strict=True):
        if r.key is not None:
            partner = tables["b" if topic == "a" else "a"].get(r.key, (None, -1))
            times[r.key] = max(r.timestamp_ms, partner[1])
        keys = joining(kind, tables["a"], tables["b"])
        expected.append({k: (added_up(*joined_pair(tables, k)), times[k]) for k in keys})
    for size in SIZES:
        outputs, driver = run(build, numbers, size, restart=size == 7)
        check_history(outputs, expected)
        assert store_rows(driver, "sums") == expected[-1]


def added_up(left: int | None, right: int | None) -> int:
    return 100 * (left or 0) + (right or 0)


def joined_pair(tables: dict[str, Rows], key: str) -> tuple[Any, Any]:
    return tables["a"].get(key, (None,))[0], tables["b"].get(key, (None,))[0]


@pytest.mark.parametrize("seed", SEEDS)
def test_joins_of_joins_and_of_tables_made_of_one_table(seed: int) -> None:
    rng = random.Random(seed)
    given = updates(rng, "ab", 100)
    first_kind, second_kind, side, named = rng.choice(KINDS), rng.choice(KINDS), rng.choice("ab"), rng.random() < 0.5

    def build() -> StreamsBuilder:
        builder = StreamsBuilder()
        a, b = builder.table("a"), builder.table("b")
        inner = getattr(a.filter(odd, name="odd" if named else None), first_kind)(b, paired)
        other = (a if side == "a" else b).map_values(doubled)
        getattr(inner, second_kind)(other, paired).to("out")
        return builder

    expected = [
        joining(second_kind, joining(first_kind, keeping(t["a"]), t["b"]), doubling(t[side]))
        for t in tables_after(given, "ab")
    ]
    first = None
    for size in SIZES:
        outputs, _ = run(build, given, size, restart=size == 7)
        # an update that reaches a join by two ways is stamped by the last, which may see the later of two times
        check_history(outputs, expected, times=False)
        first = first or outputs
        assert outputs == first


# -- groups ----------------------------------------------------------------------------------------------------------


def in_groups(rows: Rows) -> Rows:
    groups: dict[str, list[int]] = {}
    for value, _ in rows.values():
        if value["at"] != "z":
            groups.setdefault(value["at"], []).append(value["n"])
    return {g: sorted(ns) for g, ns in groups.items()}


def regrouped(key: str, value: Any) -> Any:
    return None if value["at"] == "z" else (value["at"], value)


def added(key: str, value: Any, aggregate: list[int]) -> Any:
    aggregate.append(value["n"])
    return sorted(aggregate)


def removed(key: str, value: Any, aggregate: list[int]) -> Any:
    aggregate.remove(value["n"])
    return aggregate or None


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("source", ["table", "filter", "join", "aggregate"])
def test_groups_lose_what_rows_were_and_gain_what_they_are(seed: int, source: str) -> None:
    rng = random.Random(seed)
    given = updates(rng, "ab", 120)

    def build() -> StreamsBuilder:
        builder = StreamsBuilder()
        a, b = builder.table("a"), builder.table("b")
        table = {
            "table": a,
            "filter": a.filter(odd),
            "join": a.outer_join(b, newer),
            "aggregate": a.group_by(lambda k, v: (k, v)).reduce(lambda x, v: v, lambda x, v: x),
        }[source]
        table.group_by(regrouped).aggregate(list, added, removed, value=list, name="groups").to("out")
        return builder

    def rows(tables: dict[str, Rows]) -> Rows:
        if source == "join":
            return {
                k: (newer(*v.values()), ts) for k, (v, ts) in joining("outer_join", tables["a"], tables["b"]).items()
            }
        return keeping(tables["a"]) if source == "filter" else tables["a"]

    if source == "aggregate":
        # a reduce keeps the last value: rows that were deleted stay
        given = [(t, r) for t, r in given if r.value is not None]
    expected = [{g: (ns, 0) for g, ns in in_groups(rows(t)).items()} for t in tables_after(given, "ab")]
    first = None
    for size in SIZES:
        outputs, driver = run(build, given, size, restart=size == 2)
        check_history(outputs, expected, times=False)
        assert values_of(store_rows(driver, "groups")) == values_of(expected[-1])
        first = first or outputs
        assert outputs == first
        # rows of one group come from several tasks in any order, and end alike
        _, driver = run(build, given, size, partitions=3, restart=size == 7, arrival_order=False)
        assert values_of(store_rows(driver, "groups")) == values_of(expected[-1])


def newer(left: Any, right: Any) -> Any:
    return right if left is None else left


@pytest.mark.parametrize("seed", SEEDS)
def test_counts_per_commit_end_where_every_update_would(seed: int) -> None:
    rng = random.Random(seed)
    given = updates(rng, "a", 80)

    def build() -> StreamsBuilder:
        builder = StreamsBuilder()
        builder.table("a").group_by(regrouped).count(emission="per_commit").to("out", value=int)
        return builder

    final = {g: len(ns) for g, ns in in_groups(tables_after(given, "a")[-1]["a"]).items()}
    for size in SIZES:
        outputs, _ = run(build, given, size, restart=size == 2)
        last = {r.key: r.value for _, r in outputs}
        assert {g: n for g, n in last.items() if n} == final


# -- streams as tables -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("rekeyed", [False, True])
def test_streams_become_tables(seed: int, rekeyed: bool) -> None:
    rng = random.Random(seed)
    given = updates(rng, "ab", 100)

    def build() -> StreamsBuilder:
        builder = StreamsBuilder()
        stream = builder.stream("a")
        if rekeyed:
            stream = stream.select_key(new_key)
        stream.to_table(name="rows").left_join(builder.table("b"), paired).to("out")
        return builder

    moved = [
        (t, Record(new_key(r.key, r.value), r.value, r.timestamp_ms)) if rekeyed and t == "a" else (t, r)
        for t, r in given
    ]
    history = tables_after(moved, "ab")
    expected = [joining("left_join", t["a"], t["b"]) for t in history]
    for size in SIZES:
        outputs, driver = run(build, given, size, partitions=1 if rekeyed else 3, restart=size == 7)
        check_history(outputs, expected, times=False)
        assert store_rows(driver, "rows") == history[-1]["a"]


def new_key(key: str | None, value: Any) -> str | None:
    if value is None:
        return "k0" if key == "k1" else None
    return f"k{value['n'] % 4}"
