"""Operators whose answer depends on more than their records, each in its own way."""

from __future__ import annotations

import datetime
import random
import time
import uuid
from typing import Any

import penstock as ps

_kept: list[str] = []


def keeps(key: str, value: str) -> int:
    """State outside of a store."""
    _kept.append(value)
    return len(_kept)


def build() -> ps.Topology:
    """One sink per operator."""
    builder = ps.StreamsBuilder("bad", value=str)
    stream = builder.stream("in")
    wrong: dict[str, Any] = {
        "clock": lambda v: f"{v} {time.time()}",
        "now": lambda v: str(datetime.datetime.now()),
        "dice": lambda v: f"{v} {random.random()}",
        "ids": lambda v: str(uuid.uuid4()),
        "file": lambda v: open(__file__).readline(),  # noqa: SIM115  # what the check is to find
        "unordered": lambda v: " ".join({f"x{v}", f"y{v}", f"z{v}", "w"}),
        "hashed": lambda v: str(hash(v)),
    }
    for name, fn in wrong.items():
        stream.map_values(fn, name=name).map_values(str.upper, name=f"after-{name}").to(f"out-{name}")
    stream.map_values_with_key(keeps, value=int, name="keeps").to("out-keeps")
    stream.map_values(str.upper, name="innocent").to("out-innocent")
    return builder.build()


def build_good() -> ps.Topology:
    """Windows, a repartition topic, random draws: nothing that a replay would not give again."""

    class Draws(ps.Processor):
        def process(self, record: ps.Record, ctx: ps.ProcessorContext) -> None:
            ctx.forward(record.value, f"{record.value} {ctx.draws.integer(10)}")

    builder = ps.StreamsBuilder("good", value=str)
    drawn = builder.stream("in").process(Draws)
    counts = drawn.group_by(lambda k, v: v).windowed_by(ps.tumbling("10ms", grace=0)).count()
    counts.to_stream(lambda window, count: window.key, key=str).to("out")
    return builder.build()
