"""What a kind of topology is, and the words that kinds are written in."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from random import Random
from typing import Any

Node = dict[str, Any]
Draw = Callable[[Random], list[Node]]

KINDS: dict[str, Kind] = {}
"""Every kind by name."""


@dataclasses.dataclass(frozen=True)
class Kind:
    """A family of topologies. ``draw`` makes one: its nodes are fixed, lengths of time may be drawn. ``keys``: of the
    records of each topic that is not listed in ``keys_of``. ``wall``: the wall clock moves between records, and
    (``wall_from_start``) is read before the first. ``null_keys``, ``null_values``, ``late``: some records have none, or
    come behind later ones. ``pieces``: values may be several, parted by points. ``records_max``: of one input. ``rocksdb``:
    every seed runs on RocksDB stores in Kafka Streams, whose stores in memory forget sooner. ``start_ms``: no record is
    earlier. ``ends``: the input ends with records so late in time that everything is due. ``nulls_ahead``: some records
    without key or value are far ahead of the others."""

    name: str
    draw: Draw
    keys: str = "pqr"
    keys_of: dict[str, str] = dataclasses.field(default_factory=dict)
    wall: bool = False
    null_keys: bool = True
    null_values: bool = True
    pieces: bool = False
    late: bool = True
    records_max: int = 40
    rocksdb: bool = False
    start_ms: int = 0
    ends: bool = False
    wall_from_start: bool = True
    nulls_ahead: bool = False


def kind(name: str, *nodes: Node, **options: Any) -> None:
    """Add a kind whose nodes are always the same, but for lengths of time that are drawn (see ``one_of``)."""
    drawn_kind(name, lambda rng: [_settled(node, rng) for node in nodes], **options)


def drawn_kind(name: str, draw: Draw, **options: Any) -> None:
    """Add a kind."""
    if name in KINDS:
        raise ValueError(f"kind {name!r} is there twice")
    KINDS[name] = Kind(name, draw, **options)


@dataclasses.dataclass(frozen=True)
class OneOf:
    """A number that is drawn for each topology."""

    choices: tuple[int, ...]


def one_of(*choices: int) -> OneOf:
    """One of these numbers."""
    return OneOf(choices)


def _settled(node: Any, rng: Random) -> Any:
    if isinstance(node, OneOf):
        return rng.choice(node.choices)
    if isinstance(node, dict):
        return {name: _settled(value, rng) for name, value in node.items()}
    return [_settled(n, rng) for n in node] if isinstance(node, list) else node


# -- nodes ---------------------------------------------------------------------------------------------------------


def stream(topic: str) -> Node:
    """A stream of a topic; its id is the topic's name, as a table's."""
    return {"op": "stream", "id": topic, "topic": topic}


def table(topic: str, **fields: Any) -> Node:
    """A table of a topic."""
    return {"op": "table", "id": topic, "topic": topic, **fields}


def global_table(topic: str) -> Node:
    """A global table of a topic."""
    return {"op": "global_table", "id": topic, "topic": topic}


def node(op: str, made: str, of: Any, **fields: Any) -> Node:
    """An operator with one input: ``made`` is its id."""
    return {"op": op, "id": made, "in": of, **fields}


def by_key(of: str) -> Node:
    """Records grouped by key; the id is the stream's with ``_by_key``."""
    return node("group_by_key", f"{of}_by_key", of)


def count(made: str, of: str, **fields: Any) -> Node:
    """A count."""
    return node("aggregate", made, of, fn="count", **fields)


def reduce(made: str, of: str, reducer: str = "chain", **fields: Any) -> Node:
    """A reduction."""
    return node("aggregate", made, of, fn="reduce", reducer=reducer, **fields)


def aggregate(made: str, of: str, adder: str = "append", init: str = "empty", **fields: Any) -> Node:
    """An aggregation."""
    return node("aggregate", made, of, fn="aggregate", init=init, adder=adder, **fields)


def join(made: str, how: str, type_: str, left: str, right: str, **fields: Any) -> Node:
    """A join of two nodes."""
    return {
        "op": "join",
        "id": made,
        "kind": how,
        "type": type_,
        "left": left,
        "right": right,
        "joiner": "pair",
        **fields,
    }


def sink(of: str, name: str = "out") -> Node:
    """An output."""
    return {"op": "sink", "in": of, "name": name}


# -- windows -------------------------------------------------------------------------------------------------------

GRACE = one_of(0, 3, 10, 40)

WINDOWS: dict[str, Node] = {
    "tumbling": {"type": "tumbling", "size_ms": one_of(5, 10, 30), "grace_ms": GRACE},
    "hopping": {"type": "hopping", "size_ms": 12, "advance_ms": one_of(3, 4, 5, 7), "grace_ms": GRACE},
    "sliding": {"type": "sliding", "diff_ms": one_of(3, 10, 25), "grace_ms": GRACE},
    "session": {"type": "session", "gap_ms": one_of(3, 7, 15), "grace_ms": GRACE},
}
"""By type."""
