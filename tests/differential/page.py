"""The page of departures, run on Kafka Streams: each entry's input is read off the page, and put into the topology that it
tells of."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tests.differential.inputs import MEMORY, WALL, Entry, Run
from tests.differential.kinds.kind import (
    Node,
    aggregate,
    by_key,
    count,
    join,
    node,
    reduce,
    sink,
    stream,
    table,
)
from tests.differential.outcomes import Outcome

PAGE = Path(__file__).parents[2] / "DEPARTURES.md"
RECORD = re.compile(r"`(\w+) (\w+)=(\S+)@(\d+)`")
NOT_RUN = {
    "Cogroups on close": "Kafka Streams has none",
    "When unmatched records leave a join": "the comparison takes the pause of a second of the clock from Kafka Streams",
}
"""Entries whose other answer no test shows, and why."""


def entries_of_page(section: str = "Kafka Streams") -> dict[str, str]:
    """The text of each entry of a section, by its heading."""
    text = PAGE.read_text().split(f"\n## {section}\n")[1].split("\n## ")[0]
    parts = re.split(r"^### (.*)$", text, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def run_of(heading: str, text: str) -> Run:
    """An entry's topology with its input."""
    nodes = [*TOPOLOGIES[heading], sink("made")]
    entries: list[Entry] = [
        {"topic": topic, "k": _word(key), "v": _word(value), "ts": int(ts)}
        for topic, key, value, ts in RECORD.findall(text)
    ]
    if heading == "First timer by the clock":
        entries += [{"event": WALL, "ts": 15}, {"event": WALL, "ts": 20}]
    return Run(heading, 0, nodes, entries, MEMORY)


def _word(text: str) -> str | None:
    return None if text == "null" else text


def rows_of(outcome: Outcome) -> list[str]:
    """Every record that was put out, as ``key[start, end] value@timestamp``, and the error at the end."""
    rows = [f"{row['k']}{row.get('w') or ''} {row['v']}@{row['ts']}" for _, row in outcome.flat()]
    return rows if outcome.error is None else [*rows, outcome.error]


def _windowed(window: Node, fn: str = "count", **fields: Any) -> list[Node]:
    made = (
        count("made", "in_by_key", window=window, **fields)
        if fn == "count"
        else reduce("made", "in_by_key", window=window, **fields)
    )
    return [stream("in"), by_key("in"), made]


def _streams(type_: str, before_ms: int, after_ms: int, grace_ms: int) -> list[Node]:
    bounds = {"before_ms": before_ms, "after_ms": after_ms, "grace_ms": grace_ms}
    return [stream("l"), stream("r"), join("made", "stream_stream", type_, "l", "r", **bounds)]


def _versions(**fields: Any) -> list[Node]:
    return [
        stream("in"),
        table("rows", versioned_history_ms=1000),
        join("made", "stream_table", "left", "in", "rows", **fields),
    ]


def _tumbling(size_ms: int) -> Node:
    return {"type": "tumbling", "size_ms": size_ms, "grace_ms": 0}


def _sliding(diff_ms: int, grace_ms: int = 0) -> Node:
    return {"type": "sliding", "diff_ms": diff_ms, "grace_ms": grace_ms}


def _session(gap_ms: int, grace_ms: int = 0) -> Node:
    return {"type": "session", "gap_ms": gap_ms, "grace_ms": grace_ms}


def _suppressed(made: str, of: str) -> Node:
    return node("suppress", made, of, until="time_limit", limit_ms=5)


def _closing(topic: str) -> list[Node]:
    return [
        stream(topic),
        by_key(topic),
        count(f"{topic}_n", f"{topic}_by_key", window=_tumbling(10_000), emit="on_close"),
    ]


_FOREIGN = [table("l"), table("r"), join("made", "table_table_fk", "inner", "l", "r", fk_extractor="always_x")]
_HELD_LEFT = [table("l"), table("r"), _suppressed("held", "l"), join("made", "table_table", "left", "held", "r")]


def _chained(of: str, groups: str) -> list[Node]:
    return [node("group_by", "groups", of, fn=groups), aggregate("made", "groups", subtractor="take_out")]


def _per_commit() -> list[Node]:
    pieces = node("flat_map_values", "all", "in", fn="parts")
    return [stream("in"), pieces, by_key("all"), reduce("made", "all_by_key", "to_null", emit="per_commit")]


TOPOLOGIES: dict[str, list[Node]] = {
    "Null values in windows": _windowed(_tumbling(10)),
    "Timestamps of foreign-key joins": _FOREIGN,
    "Negative join bounds near time 0": _streams("inner", 4, -1, 0),
    "Order of sliding windows": _windowed(_sliding(5, 10)),
    "A null key in a left join with grace": _versions(grace_ms=10),
    "Equal timestamps in a grace buffer": _versions(grace_ms=10),
    "Windows on close when time jumps": _windowed(_tumbling(10_000), emit="on_close"),
    "How long sliding windows are kept": _windowed(_sliding(3)),
    "Sliding windows behind late records": _windowed(_sliding(10)),
    "How long sessions are kept": _windowed(_session(3)),
    "How long joined windows are kept": [
        *_closing("l"),
        *_closing("r"),
        join("made", "table_table", "inner", "l_n", "r_n"),
    ],
    "Sliding windows of one instant": _windowed(_sliding(0)),
    "A tombstone of its row's time": _versions(),
    "Sliding windows in suppress": [
        stream("in"),
        by_key("in"),
        reduce("n", "in_by_key", window=_sliding(10)),
        _suppressed("made", "n"),
    ],
    "Timestamps behind suppress": _HELD_LEFT,
    "Initial aggregates": [
        stream("in"),
        by_key("in"),
        count("n", "in_by_key"),
        node("group_by", "by_number", "n", fn="row_by_text"),
        count("made", "by_number"),
    ],
    "A table joined with itself": [
        table("in"),
        node("map_values", "mapped", "in", fn="tagged"),
        join("made", "table_table", "inner", "in", "mapped"),
    ],
    "How far a stream of a cogroup may lag": [
        *(stream(topic) for topic in "ab"),
        *(by_key(topic) for topic in "ab"),
        {
            "op": "cogroup",
            "id": "made",
            "init": "empty",
            "groups": [{"in": "a_by_key", "adder": "append_left"}, {"in": "b_by_key", "adder": "append_right"}],
            "window": _tumbling(10),
        },
    ],
    "Records without a key or value that run ahead": _streams("left", 5, 5, 5),
    "How late a record may meet another": _streams("inner", 8, 8, 2),
    "Late records and the time of the other side": _streams("left", 100, 100, 0),
    "How long unmatched records wait": _streams("left", 8, 2, 0),
    "Versioned tables as streams": [table("rows", versioned_history_ms=100), node("to_stream", "made", "rows")],
    "Rows that were never there": _FOREIGN,
    "Old values behind suppress": [table("rows"), _suppressed("held", "rows"), *_chained("held", "row_by_all")],
    "Deletions behind suppress": _HELD_LEFT,
    "Aggregates that become null": [
        stream("in"),
        by_key("in"),
        reduce("made", "in_by_key", "to_null", emit="per_commit"),
    ],
    "Sliding windows that are two records' at once": _windowed(_sliding(10)),
    "Sessions that keep their bounds": [
        stream("in"),
        by_key("in"),
        reduce("n", "in_by_key", window=_session(5)),
        *_chained("n", "row_by_window_key"),
    ],
    "Old values of transformed tables": [
        table("rows"),
        node("transform_values", "numbered", "rows"),
        *_chained("numbered", "row_by_letter"),
    ],
    "Sessions that were closed": _windowed(_session(3, 3), "reduce", emit="on_close", kafka_retention_ms=100_000),
    "Rows that did not change": [
        table("l"),
        table("r"),
        node("map_values", "mapped", "r", fn="upper"),
        join("made", "table_table", "outer", "l", "mapped"),
    ],
    "Aggregates that become null within a commit": _per_commit(),
    "Null keys in repartition": [stream("in"), node("repartition", "made", "in")],
    "First timer in stream time": [
        stream("in"),
        node("process", "made", "in", processor="stream_timed_from_the_first"),
    ],
    "First timer by the clock": [stream("in"), node("process", "made", "in", processor="wall_timed")],
}
