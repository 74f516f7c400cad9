"""Random updates of tables, what plain dictionaries make of them, and runs of a topology over them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

from penstock.state.log import Record
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.dsl.builder import StreamsBuilder

SIZES = (1, 2, 7, 10_000)
Update = tuple[str, Record]
Rows = dict[str, Any]


def updates(rng: random.Random, topics: Iterable[str], count: int, *, keys: int = 5) -> list[Update]:
    """Updates with deletions, null keys, and times that wander."""
    out, now = [], 50
    for _ in range(count):
        now += rng.choice((0, 1, 2, 5))
        key = None if rng.random() < 0.03 else f"k{rng.randrange(keys)}"
        value = None if rng.random() < 0.25 else {"n": rng.randrange(12), "at": rng.choice("xyz")}
        out.append((rng.choice(list(topics)), Record(key, value, max(now - rng.choice((0, 0, 3, 30)), 0))))
    return out


def tables_after(given: list[Update], topics: Iterable[str]) -> list[dict[str, Rows]]:
    """The rows of each topic's table after each update: value and timestamp."""
    tables: dict[str, Rows] = {t: {} for t in topics}
    out = []
    for topic, r in given:
        if r.key is not None:
            if r.value is None:
                tables[topic].pop(r.key, None)
            else:
                tables[topic][r.key] = (r.value, r.timestamp_ms)
        out.append({t: dict(rows) for t, rows in tables.items()})
    return out


def run(
    build: Callable[[], StreamsBuilder],
    given: list[Update],
    size: int,
    *,
    partitions: int = 1,
    restart: bool = False,
    arrival_order: bool = True,
) -> tuple[list[tuple[int, Record]], TopologyTestDriver]:
    """The outputs with the update that caused each, and the driver. In order of the causes with ``arrival_order``, which
    has each update carried to the end before the next comes; else as they were written. ``restart``: half way, with stores
    made anew of their changelogs."""
    driver = TopologyTestDriver(
        build(), options=TaskOptions(batch_max_records=size), partitions=partitions, arrival_order=arrival_order
    )
    half = len(given) // 2 if restart else 0
    if half:
        driver.pipe_sequence(given[:half], labels=range(half))
        driver.restart(restore=True)
    driver.pipe_sequence(given[half:], labels=range(half, len(given)))
    outputs = driver.read_caused("out")
    return sorted(outputs, key=lambda pair: pair[0]) if arrival_order else outputs, driver


def check_history(outputs: list[tuple[int, Record]], expected: list[Rows], *, times: bool = True) -> None:
    """After each update, the outputs so far must make the expected rows."""
    rows: Rows = {}
    at = 0
    for label, want in enumerate(expected):
        while at < len(outputs) and outputs[at][0] <= label:
            r = outputs[at][1]
            if r.value is None:
                rows.pop(r.key, None)
            else:
                rows[r.key] = (r.value, r.timestamp_ms)
            at += 1
        if times:
            assert rows == want, label
        else:
            assert values_of(rows) == values_of(want), label
    assert at == len(outputs)


def store_rows(driver: TopologyTestDriver, name: str) -> Rows:
    """What a store holds in all its tasks: value and timestamp."""
    found: Rows = {}
    for task in driver.tasks.values():
        if name in task.stores:
            state = task.stores[name]
            read = state.spec.key_serde.deserialize
            found.update({read(k): (v, ts) for k, v, ts in state.range()})
    return found


def values_of(rows: Rows) -> Rows:
    return {k: v for k, (v, _) in rows.items()}


# -- naive forms of what tables can do


def odd(key: str, value: Any) -> bool:
    return bool(value["n"] % 2)


def doubled(value: Any) -> Any:
    return None if value["n"] == 7 else {"n": value["n"] * 2, "at": value["at"]}


def paired(left: Any, right: Any) -> Any:
    return {"l": left, "r": right}


def keeping(rows: Rows) -> Rows:
    return {k: (v, ts) for k, (v, ts) in rows.items() if odd(k, v)}


def doubling(rows: Rows) -> Rows:
    return {k: (doubled(v), ts) for k, (v, ts) in rows.items() if doubled(v) is not None}
