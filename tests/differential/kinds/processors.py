"""Kinds with processors: key-value, window and session stores, timers in stream time and by the wall clock."""

from __future__ import annotations

from tests.differential.kinds.kind import (
    WINDOWS,
    Node,
    aggregate,
    by_key,
    count,
    kind,
    node,
    reduce,
    sink,
    stream,
    table,
)


def _process(name: str, made: str = "made", of: str = "s", **fields: object) -> Node:
    return node("process", made, of, processor=name, **fields)


for _name in ("counting", "reporting", "windowing", "sessioning", "stream_timed", "retiming"):
    kind(f"processor_{_name}", stream("s"), _process(_name), sink("made"))
kind("processor_first_stream_time", stream("s"), _process("stream_timed_from_the_first"), sink("made"))
kind("processor_first_wall_time", stream("s"), _process("wall_timed"), sink("made"), wall=True, wall_from_start=False)
kind("processor_wall_timed", stream("s"), _process("wall_timed"), sink("made"), wall=True)
kind(
    "processor_looking_up",
    stream("s"),
    table("t", store="rows"),
    _process("looking_up", reads="rows", table="t"),
    sink("made"),
)
kind(
    "processor_looking_up_counts",
    stream("s"),
    stream("t"),
    by_key("t"),
    count("n", "t_by_key", store="rows"),
    _process("looking_up", reads="rows", table="n"),
    sink("made"),
)
kind(
    "processor_then_windows",
    stream("s"),
    _process("retiming"),
    by_key("made"),
    reduce("last", "made_by_key", window=WINDOWS["tumbling"]),
    sink("last"),
    null_values=False,
)
kind(
    "processor_of_a_count",
    stream("s"),
    by_key("s"),
    count("n", "s_by_key"),
    node("to_stream", "told", "n"),
    _process("counting", of="told"),
    sink("made"),
)
kind(
    "processor_two_timed",
    stream("s"),
    _process("stream_timed", "first"),
    _process("wall_timed", of="first"),
    sink("first", "between"),
    sink("made"),
    wall=True,
)
kind(
    "processor_timed_then_aggregate",
    stream("s"),
    _process("stream_timed"),
    by_key("made"),
    aggregate("last", "made_by_key"),
    sink("last"),
)
