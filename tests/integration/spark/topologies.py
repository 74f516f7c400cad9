"""Topologies of the tests. They are built in the executors too, so each is a function and the application's id."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

from penstock.streams.batch.handover import piece
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.graph.topology import Topology
from penstock.topologies.windows import TumblingWindows


def _joined(application_id: str) -> Topology:
    b = StreamsBuilder(key=bytes, value=bytes)
    table = b.table(f"{application_id}.t")
    stream = b.stream(f"{application_id}.a").left_join(table, lambda v, t: v + b"|" + (t or b"-"), value=bytes)
    seen = stream.group_by_key().aggregate(bytes, lambda k, v, agg: (agg + v)[-40:], value=bytes, name="seen")
    seen.to_stream().to(f"{application_id}.out")
    return b.build()


def joined(application_id: str) -> Any:
    """A stream joined with a table, then aggregated in the order of arrival."""
    return partial(_joined, application_id)


def _windowed(application_id: str, emission: Any) -> Topology:
    b = StreamsBuilder(key=bytes, value=bytes, emission=emission)
    stream = b.stream(f"{application_id}.a").select_key(lambda k, v: v[-1:])
    windows = TumblingWindows(1000, grace_ms=2000)
    counts = stream.group_by_key().windowed_by(windows).count(name="per-window")
    counts.to_stream().to(f"{application_id}.out")
    return b.build()


def windowed(application_id: str, emission: str = "every_update") -> Any:
    """Records by another key, through a repartition topic, counted per window."""
    return partial(_windowed, application_id, emission)


def _kept_halves(application_id: str, left_out: bytes) -> Topology:
    b = StreamsBuilder(key=bytes, value=bytes)
    stream = b.stream(f"{application_id}.a").filter(lambda k, v: v[-1] % 2 == 0 and v != left_out)
    stream.flat_map_values(lambda v: [v] * (v[-1] % 4)).to(f"{application_id}.out")
    return b.build()


def kept_halves(application_id: str, left_out: bytes = b"") -> Any:
    """Without state: values that end in an even digit but one, some twice."""
    return partial(_kept_halves, application_id, left_out)


def _last(application_id: str) -> Topology:
    b = StreamsBuilder(key=bytes, value=bytes)
    b.stream(f"{application_id}.in").group_by_key().aggregate(
        bytes, lambda key, value, old: None if value == b"x" else (old + value)[-20:], value=bytes, name="last"
    )
    return b.build()


def last(application_id: str) -> Any:
    """The last bytes per key; a value of ``x`` deletes the key."""
    return partial(_last, application_id)


def _of_all_kinds(application_id: str) -> Topology:
    b = StreamsBuilder(key=bytes, value=bytes)
    rows = b.global_table(f"{application_id}.rows")
    stream = b.stream(f"{application_id}.in")
    stream.join_global(rows, lambda k, v: v[-1:], lambda v, row: v + (row or b"-"), name="met").to(
        f"{application_id}.met"
    )
    even, odd = f"{application_id}.even", f"{application_id}.odd"
    stream.to(lambda k, v: odd if int(v) % 2 else even, topics=[even, odd])
    stream.repartition(by="shuffle").map_values(lambda v: v + b"!", value=bytes).to(f"{application_id}.spread")
    stream.group_by_key().count(name="counts")
    return b.build()


def of_all_kinds(application_id: str) -> Any:
    """A join with a global table, a sink that chooses among topics, a repartition that spreads keys, and a store."""
    return partial(_of_all_kinds, application_id)


def armed_at(flag: Path) -> str | None:
    """The step of a commit that the file ``flag`` names now."""
    return flag.read_text() if flag.exists() else None


def die_at(flag: Path, armed: str | None, step: str) -> None:
    """End this process as a crash would, once, at the step for which it was ``armed``; ``freeze`` before the step stops it
    instead. A process of an earlier job that is still at work leaves the flag of a later job alone."""
    if armed in (step, f"freeze {step}") and armed_at(flag) == armed:
        flag.unlink()
        os.kill(os.getpid(), signal.SIGKILL if armed == step else signal.SIGSTOP)


def _counted(application_id: str, flag: Path, old: bool, prefix: str) -> Topology:
    piece.on_step = partial(die_at, flag, armed_at(flag))
    b = StreamsBuilder(key=bytes, value=bytes)
    stream = b.stream(f"{prefix}.in")
    # What the changed version counts is not what the old one counts: the last byte, or the two last.
    by_end = stream.group_by(lambda k, v: v[-1:] if old else v[-2:])
    by_end.count(name="ends").to_stream().to(f"{prefix}.ends" if old else f"{prefix}.ends-new", value=int)
    stream.group_by_key().count(name="counts").to_stream().to(f"{prefix}.out", value=int)
    return b.build()


def counted(application_id: str, flag: Path, *, old: bool = True, prefix: str | None = None) -> Any:
    """Counts by key, and by the end of values through a repartition topic. A process dies where ``flag`` says."""
    return partial(_counted, application_id, flag, old, prefix or application_id)


def _resized(prefix: str, suffix: str) -> Topology:
    b = StreamsBuilder(key=bytes, value=bytes)
    users = b.table(f"{prefix}.users{suffix}", name="users")
    events = b.stream(f"{prefix}.events{suffix}", name="events")
    events.group_by_key().count(name="seen").to_stream().to(f"{prefix}.seen", value=int)
    named = events.left_join(users, lambda v, user: v + b"|" + (user or b"-"))
    named.to(f"{prefix}.named")
    by_user = named.group_by(lambda k, v: v.partition(b"|")[2]).windowed_by(TumblingWindows(1000, grace_ms=1000))
    views = by_user.count(name="views").to_stream(lambda w, n: b"%s@%d" % (w.key, w.start_ms), key=bytes)
    views.to(f"{prefix}.views", value=int)
    return b.build()


def resized(prefix: str, suffix: str = "") -> Any:
    """A count per key, a join with a table, and windows of what was joined behind a repartition topic; ``suffix``: of the
    input topics."""
    return partial(_resized, prefix, suffix)


def _sums(application_id: str, scale: float, copies: int) -> Topology:
    b = StreamsBuilder(key=bytes, value=float)
    scaled = b.stream(f"{application_id}.in").map_values(lambda v: v * scale, value=float)
    sums = scaled.group_by_key().reduce(lambda old, v: old + v, name="sums").to_stream()
    sums.flat_map_values(lambda v: [v] * copies, value=float).to(f"{application_id}.out")
    return b.build()


def sums(application_id: str, scale: float = 1.0, copies: int = 1) -> Any:
    """Sums of floating-point numbers, each update written ``copies`` times."""
    return partial(_sums, application_id, scale, copies)


def _visits(application_id: str, flag: Path) -> Topology:
    piece.on_step = partial(die_at, flag, armed_at(flag))
    b = StreamsBuilder(key=bytes, value=bytes)
    users = b.table(f"{application_id}.users")
    met = b.stream(f"{application_id}.in").join(users, lambda v, city: city + b"|" + v, value=bytes)
    met.to(f"{application_id}.met")
    by_city = met.group_by(lambda k, v: v.partition(b"|")[0])
    counts = by_city.windowed_by(TumblingWindows(1000, grace_ms=10**9)).count(name="per-city")
    named = counts.to_stream(lambda window, n: window.key + b"@%d" % window.start_ms, key=bytes)
    named.to(f"{application_id}.cities", value=int)
    return b.build()


def visits(application_id: str, flag: Path) -> Any:
    """Records joined with a table, and counted per window by what the table says, behind a repartition topic. A process
    dies where ``flag`` says."""
    return partial(_visits, application_id, flag)


def _by_clock(application_id: str) -> Topology:
    b = StreamsBuilder(key=bytes, value=bytes)
    windows = TumblingWindows(1000, time="processing")
    grouped = b.stream(f"{application_id}.in").group_by_key().windowed_by(windows)
    counts = grouped.count(name="per-second", emission="on_close")
    counts.to_stream(lambda window, n: window.key, key=bytes).to(f"{application_id}.out", value=int)
    return b.build()


def by_clock(application_id: str) -> Any:
    """Counts per second of the clock, each when its second is over."""
    return partial(_by_clock, application_id)
