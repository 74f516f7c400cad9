"""Tables that keep the log's bytes: the same rows, outputs and counters as record by record, however batches are cut, with
nulls, records that cannot be read, reads between, commits and restarts anywhere."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import msgspec
import orjson
import pytest

from penstock.state.errors import ProcessingError
from penstock.state.log import Record
from penstock.state.native import compiled
from penstock.state.stores.logged_rows import LoggedStoreView
from penstock.streams.task.error_policies import Policies
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.expressions.functions import left, right, struct

BATCHES = (1, 3, 17, 10_000)
SEEDS = range(60)


class Frozen(msgspec.Struct, frozen=True):
    """A row that cannot be changed, so that entries are objects."""

    n: int
    text: str = "none"


class Changeable(msgspec.Struct):
    """A row whose entries are bytes."""

    n: int
    text: str = "none"


TYPES: tuple[Any, ...] = (Frozen, Changeable, dict, bytes, str, int)


def program(rng: random.Random) -> tuple[StreamsBuilder, Any]:
    """A table that is read in one of several ways, or by nobody, and the type of its rows."""
    kind = rng.choice(TYPES)
    builder = StreamsBuilder("p", key=rng.choice((bytes, str)), value=bytes)
    table = builder.table("table", value=kind, name="rows")
    ways = rng.sample(("stream", "join", "rows", "texts", "filter", "nobody"), rng.randint(1, 3))
    if "stream" in ways:
        table.to_stream().to("out")
    clicks = builder.stream("in", value=Frozen) if {"join", "rows", "texts"} & {*ways} else None
    if "join" in ways and kind in (Frozen, Changeable):
        clicks.left_join(table, struct(n=left("n"), of_row=right("n"), text=right("text"))).to("joined")
    if "rows" in ways:
        clicks.left_join(table, lambda click, row: f"{click!r} {row!r}", value=str).to("pairs")
    if "texts" in ways:
        clicks.join(table, right(), value=kind).to("texts")
    if "filter" in ways and kind in (Frozen, Changeable):
        table.filter(lambda key, row: row.n > 4).to_stream().to("filtered")
    return builder, kind


def value_of(rng: random.Random, kind: Any, *, readable: bool) -> bytes | None:
    """A value of the type, a null, or one that cannot be read."""
    chance = rng.random()
    if chance < 0.15:
        return None
    if chance < 0.2 and kind is not bytes and not readable:
        return rng.choice((b"\xff", b"{", b'{"n":"x"}', b"1234567"))
    n = rng.randint(0, 9)
    if kind is int:
        return n.to_bytes(8, "big")
    if kind in (bytes, str):
        return b"text" * n
    spaced = b'{ "text" : "\\u0061", "n" :%d }' % n
    return rng.choice((orjson.dumps({"n": n}), orjson.dumps({"n": n, "text": "é" * n, "more": [n]}), spaced))


def outcome(seed: int, batch: int, *, columns: bool) -> dict[str, Any]:
    """Everything that the program of a seed did with the seed's input, or where and why it stopped."""
    try:
        return _outcome(seed, batch, columns=columns)
    except ProcessingError as exc:
        return {"stopped": str(exc), "written": {}}


def _outcome(seed: int, batch: int, *, columns: bool) -> dict[str, Any]:
    rng = random.Random(seed)
    builder, kind = program(rng)
    topology = builder.build()
    topics = [t for t in ("table", "in") if t in topology.source_topics("test")]
    options = TaskOptions(batch_max_records=batch, policies=Policies(processing="skip"))
    out: dict[str, Any] = {"rows": []}
    nulls, readable = rng.random() < 0.6, rng.random() < 0.8
    with TopologyTestDriver(topology, options=options, auto_commit=False, columns=columns) as driver:
        now = 0
        for _ in range(rng.randint(2, 6)):
            records: dict[str, list[Record]] = {t: [] for t in topics}
            loading = rng.random() < 0.4
            for _ in range(rng.choice((2, 20, 80))):
                now += rng.choice((0, 1, 7))
                topic = "table" if loading else rng.choice(topics)
                keys = (b"a", b"b", b"", "é".encode(), b"%d" % (now % 40), *((b"\xfe",) if not readable else ()))
                key = None if rng.random() < 0.05 else rng.choice(keys)
                value = value_of(rng, kind, readable=readable) if topic == "table" else orjson.dumps({"n": now})
                if nulls or value is not None:
                    records[topic].append(Record(key, value, max(now - rng.choice((0, 9)), 0), ()))
            driver.pipe_raw({t: rows for t, rows in records.items() if rows})
            if rng.random() < 0.3:
                out["rows"].append(rows_of(driver))
            if rng.random() < 0.6:
                driver.commit()
            if rng.random() < 0.3:
                driver.restart(restore=rng.random() < 0.5)
        driver.commit()
        out["rows"].append(rows_of(driver))
        driver.restart(restore=rng.random() < 0.5)
        out["rows"].append(rows_of(driver))
        out["written"] = {t: driver.read_raw(t) for t in ("out", "joined", "pairs", "texts", "filtered")}
        out["changelogs"] = driver.changelogs
        out["dropped"] = +driver.dropped_records
    return out


def rows_of(driver: TopologyTestDriver) -> list[Any]:
    """What every store holds, uncommitted changes included."""
    return [(name, list(state.range())) for task in driver.tasks.values() for name, state in task.stores.items()]


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many batches were held as bytes, refused, and moved into entries."""
    seen: Counter[str] = Counter()
    keep, settle = LoggedStoreView.keep, LoggedStoreView._settle

    def keeps(self: Any, keys: Any, values: Any, times: Any) -> bool:
        done = keep(self, keys, values, times)
        seen["kept" if done else "refused"] += 1
        seen["deleting"] += done and values.nulls is not None
        return done

    def settles(self: Any) -> None:
        seen["settled"] += 1
        settle(self)

    monkeypatch.setattr(LoggedStoreView, "keep", keeps)
    monkeypatch.setattr(LoggedStoreView, "_settle", settles)
    return seen


def test_rows_are_what_they_are_record_by_record(kept: Counter[str]) -> None:
    written = stopped = 0
    for seed in SEEDS:
        before = kept.copy()
        expected = outcome(seed, 10_000, columns=False)
        assert kept == before, "records as objects are not held"
        for batch in BATCHES:
            assert outcome(seed, batch, columns=True) == expected, f"seed {seed}, batches of {batch}"
        written += sum(map(len, expected["written"].values()))
        stopped += "stopped" in expected
    assert written > 1_000
    assert 3 < stopped < len(SEEDS) // 2
    if compiled() is not None:  # without it nothing is held
        assert min(kept[name] for name in ("kept", "refused", "settled", "deleting")) > 50, kept
