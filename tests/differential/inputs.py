"""Random input of a kind's topologies: nulls, late records, equal times, jumps, and moves of the wall clock.

Entries are those of the conformance format: ``{"topic", "k", "v", "ts"}`` and ``{"event": "processing_time", "ts"}``.
"""

from __future__ import annotations

import dataclasses
from random import Random
from typing import Any

from tests.differential.kinds.kind import Kind, Node

Entry = dict[str, Any]
LETTERS = "abcden"
WALL = "processing_time"
MEMORY, ROCKSDB = "memory", "rocksdb"
ROCKSDB_EVERY = 10
"""One seed in so many has Kafka Streams' stores on disk, as they are by default: that takes several times as long."""


@dataclasses.dataclass(frozen=True)
class Run:
    """One topology with one input."""

    kind: str
    seed: int
    nodes: list[Node]
    input: list[Entry]
    stores: str = MEMORY
    """Where Kafka Streams keeps what it remembers."""


@dataclasses.dataclass(frozen=True)
class _Taste:
    """What a seed's input is like: chances and lengths of time."""

    step_ms: int
    late: float
    late_ms: int
    jump: float
    null_key: float
    null_value: float
    same_value: float
    wall: float


def random_run(kind: Kind, seed: int) -> Run:
    """The run of a seed: the same on every machine."""
    rng = Random(f"{kind.name} {seed}")
    nodes = kind.draw(rng)
    stores = ROCKSDB if kind.rocksdb or seed % ROCKSDB_EVERY == 0 else MEMORY
    return Run(kind.name, seed, nodes, random_input(kind, topics_of(nodes), rng), stores)


def topics_of(nodes: list[Node]) -> list[str]:
    """The topics that a description reads, in its order."""
    return list(dict.fromkeys(node["topic"] for node in nodes if "topic" in node))


def random_input(kind: Kind, topics: list[str], rng: Random) -> list[Entry]:
    """Entries in the order in which they come."""
    taste = _taste(kind, rng)
    entries: list[Entry] = []
    now_ms, wall_ms, serial = kind.start_ms + rng.choice((0, 0, 3, 25)), 0, 0
    if kind.wall and kind.wall_from_start:
        entries.append({"event": WALL, "ts": 0})
    for _ in range(rng.randint(4, kind.records_max)):
        if rng.random() < taste.wall:
            wall_ms += rng.choice((1, 4, 10, 25))
            entries.append({"event": WALL, "ts": wall_ms})
            continue
        now_ms += rng.randint(0, taste.step_ms)
        if rng.random() < taste.jump:
            now_ms += rng.randint(20, 120)
        ts = max(now_ms - rng.randint(0, taste.late_ms), kind.start_ms) if rng.random() < taste.late else now_ms
        topic = rng.choice(topics)
        serial += 1
        key, value = _key(kind, topic, taste, rng), _value(kind, taste, rng, serial)
        if kind.nulls_ahead and (key is None or value is None) and rng.random() < 0.5:
            ts += rng.randint(10, 100)
        entries.append({"topic": topic, "k": key, "v": value, "ts": ts})
    return entries + (_end(topics, now_ms) if kind.ends else [])


def _end(topics: list[str], now_ms: int) -> list[Entry]:
    """Records behind which nothing waits any more: of each topic, twice."""
    return [{"topic": t, "k": "end", "v": "end", "ts": now_ms + 1000 * n} for n in (1, 2) for t in topics]


def _taste(kind: Kind, rng: Random) -> _Taste:
    return _Taste(
        step_ms=rng.choice((0, 1, 3, 8)),
        late=rng.choice((0.0, 0.2, 0.5)) if kind.late else 0.0,
        late_ms=rng.choice((2, 10, 50)),
        jump=rng.choice((0.0, 0.05)),
        null_key=rng.choice((0.0, 0.0, 0.1)) if kind.null_keys else 0.0,
        null_value=rng.choice((0.0, 0.1, 0.25)) if kind.null_values else 0.0,
        same_value=rng.choice((0.0, 0.3)),
        wall=0.25 if kind.wall else 0.0,
    )


def _key(kind: Kind, topic: str, taste: _Taste, rng: Random) -> str | None:
    if rng.random() < taste.null_key:
        return None
    return rng.choice(kind.keys_of.get(topic, kind.keys))


def _value(kind: Kind, taste: _Taste, rng: Random, serial: int) -> str | None:
    if rng.random() < taste.null_value:
        return None
    if rng.random() < taste.same_value:
        return rng.choice(LETTERS)
    if kind.pieces:
        return ".".join(f"{rng.choice(LETTERS)}{serial}{n}" for n in range(rng.randint(1, 3)))
    return f"{rng.choice(LETTERS)}{serial}"
