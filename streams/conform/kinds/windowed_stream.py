"""Kind ``windowed_stream``: Flink's window operator, with its triggers, allowed lateness and late output."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from penstock.streams.conform import checks
from penstock.streams.conform.cases import Case, CaseError
from penstock.streams.conform.functions import aggregate, function
from penstock.streams.conform.marks import mark, read_stream
from penstock.streams.conform.scenario import KEY, VALUE, Clock, Played, Put, Restart, Scenario, Setting, Step
from penstock.streams.conform.triggers import flink_trigger
from penstock.topologies import windows
from penstock.topologies.dsl.builder import StreamsBuilder

OUT = "out"
Spec = dict[str, Any]


def scenario(case: Case, setting: Setting) -> Scenario:
    """The values of each window, folded when it is emitted."""
    topology: Spec = case.data["topology"]
    topics = {e["topic"]: f"{setting.prefix}{e['topic']}" for e in case.input if "topic" in e}
    (topic,) = topics.values()
    builder: Any = StreamsBuilder(case.id, key=KEY, value=VALUE)
    time: windows.Time = "processing" if topology.get("time") == "processing" else "event"
    grouped = read_stream(builder, topic, watermarks=True).group_by_key().windowed_by(_window(topology["window"], time))
    lateness = topology.get("allowed_lateness_ms", 0)
    panes = grouped.triggered(
        flink_trigger(topology["trigger"]),
        allowed_lateness=lateness if time == "event" else None,
        timestamp_combiner="end_of_window",
        closing="discard",
        tombstones=False,
    ).to_list(value=VALUE)
    sinks = {OUT: f"{setting.prefix}{checks.SINK}{OUT}"}
    fold = _fold(topology["fn"])
    panes.map_values(fold, value=VALUE).to(sinks[OUT])
    if topology.get("late_sink"):
        name = topology["late_sink"]
        sinks[name] = f"{setting.prefix}{checks.SINK}{name}"
        panes.late.to(sinks[name])
    looks = case.expectations()
    return Scenario(
        topology=builder.build(),
        steps=tuple(_steps(case, topic)),
        inputs=(topic,),
        sinks=sinks,
        counts=checks.counts_of(looks),
        splits=checks.splits_of(looks),
    )


def _window(spec: Spec, time: windows.Time) -> windows.Windows:
    grace = 0 if time == "event" else None
    kind = spec["type"]
    if kind == "tumbling":
        return windows.tumbling(spec["size_ms"], grace=grace, offset=spec.get("offset_ms", 0), time=time)
    if kind == "hopping":
        size, advance, offset = spec["size_ms"], spec["advance_ms"], spec.get("offset_ms", 0)
        return windows.hopping(size, advance, grace=grace, offset=offset, time=time, before_epoch=True)
    if kind == "session":
        touching = bool(spec.get("touching_merges", True))
        return windows.session(_gap(spec), grace=grace, bounds="gap", touching=touching, time=time)
    if kind == "global":
        return windows.global_window()
    raise CaseError(f"window type {kind!r} is unknown; the format has tumbling, hopping, session, global here")


def _gap(spec: Spec) -> Any:
    """The gap, or a function of the element where elements have gaps of their own; ``point_if`` elements have none."""
    gap: Callable[[Any, Any], int] | None = None
    if "gap_fn" in spec:
        gap = function(spec["gap_fn"])
    if "point_if" in spec:
        point, other = function(spec["point_if"]), gap
        return lambda key, value: 0 if point(value) else other(key, value) if other is not None else spec["gap_ms"]
    return spec["gap_ms"] if gap is None else gap


def _fold(fn: str | dict[str, str]) -> Callable[[list[Any]], Any]:
    """What becomes of a window's values: their sum, or several aggregates by name."""
    if isinstance(fn, str):
        return aggregate("sum(v)" if fn == "sum" else fn)
    parts = {name: aggregate(text) for name, text in fn.items()}
    return lambda values: {name: part(values) for name, part in parts.items()}


def _steps(case: Case, topic: str) -> Iterator[Step]:
    for index, entry in enumerate(case.input):
        event = entry.get("event")
        if event is None:
            yield Put(index, topic, entry["k"], entry["v"], entry["ts"] or 0)
        elif event == "watermark":
            yield mark(index, topic, entry["ts"])
        elif event == "processing_time":
            yield Clock(index, entry["ts"])
        elif event == "restart":
            yield Restart(index)
        else:
            raise CaseError(f"event {event!r} is unknown; the format has watermark, processing_time, restart")


def verdict(case: Case, played: Played) -> list[str]:
    """The checks."""
    return checks.judge(case.expectations(), played)
