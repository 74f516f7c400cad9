"""Foreign-key joins against naive recomputation, also where the two sides' tasks run far ahead of each other."""

from __future__ import annotations

import random
from typing import Any

import pytest

from penstock.topologies.dsl.builder import StreamsBuilder
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

SEEDS = range(10)


# -- foreign keys ----------------------------------------------------------------------------------------------------


def place_of(key: str, value: Any) -> str | None:
    """Names a row of ``b``; at times none, or one that is never there."""
    return None if value["at"] == "z" and value["n"] % 2 else f"k{value['n'] % 6}"


def joining_foreign(left: bool, rows: Rows, others: Rows) -> Rows:
    out = {}
    for key, (value, _) in rows.items():
        other = others.get(place_of(key, value) or "")
        if other is not None:
            out[key] = (paired(value, other[0]), 0)
        elif left:
            out[key] = (paired(value, None), 0)
    return out


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_foreign_keys_find_their_rows(left: bool, seed: int) -> None:
    rng = random.Random(seed)
    given = updates(rng, "ab", 120)
    derived, named = rng.random() < 0.5, rng.random() < 0.5

    def build() -> StreamsBuilder:
        builder = StreamsBuilder()
        a, b = builder.table("a"), builder.table("b")
        rows, others = (a.filter(odd), b.map_values(doubled)) if derived else (a, b)
        join = rows.left_join_foreign if left else rows.join_foreign
        join(others, place_of, paired, name="joined" if named else None).to("out")
        return builder

    expected = [
        joining_foreign(left, keeping(t["a"]) if derived else t["a"], doubling(t["b"]) if derived else t["b"])
        for t in tables_after(given, "ab")
    ]
    final = values_of(expected[-1])
    for size in SIZES:
        outputs, driver = run(build, given, size, restart=size == 2)
        check_history(outputs, expected, times=False)
        if named:
            assert values_of(store_rows(driver, "joined")) == final
        # tasks that run far ahead of each other meet answers that are out of date, and end alike
        for partitions in (1, 3):
            outputs, _ = run(build, given, size, partitions=partitions, restart=size == 7, arrival_order=False)
            last = {r.key: r.value for _, r in outputs}
            assert {k: v for k, v in last.items() if v is not None} == final
