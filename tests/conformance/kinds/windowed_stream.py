"""Kind ``windowed_stream``: Flink's window operator. Windows, a trigger, what is emitted, and what is late."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from penstock.topologies import triggers, windows
from penstock.topologies.dsl.builder import StreamsBuilder
from tests.conformance import checks
from tests.conformance.case_format import Case, CaseError
from tests.conformance.functions import aggregate, function
from tests.conformance.marks import mark, read_stream
from tests.conformance.scenario import KEY, VALUE, Clock, Played, Put, Restart, Scenario, Setting, Step

Spec = dict[str, Any]
OUT = "out"


def scenario(case: Case, setting: Setting) -> Scenario:
    """The operator over one topic, with a sink for its panes and one for late records."""
    spec = case.data["topology"]
    time = spec.get("time", "event")
    topic = f"{setting.prefix}{_topic(case)}"
    builder: Any = StreamsBuilder("conform", key=KEY, value=VALUE)
    grouped = read_stream(builder, topic, watermarks=time == "event").group_by_key()
    triggered = grouped.windowed_by(_window(spec["window"], time)).triggered(
        _trigger(spec.get("trigger"), time),
        allowed_lateness=spec.get("allowed_lateness_ms", 0),
        timestamp_combiner="end_of_window",
        closing="discard",  # Flink drops what no firing has shown
        tombstones=False,
    )
    sinks = {OUT: f"{setting.prefix}{OUT}"}
    fn = spec["fn"]
    panes = triggered.reduce(lambda a, b: a + b) if fn == "sum" else triggered.to_list(value=VALUE)
    shown = panes if fn == "sum" else panes.map_values(_results(fn))
    shown.to(sinks[OUT], value=VALUE)
    if (late := spec.get("late_sink")) is not None:
        sinks[late] = f"{setting.prefix}{late}"
        panes.late.to(sinks[late])
    return Scenario(topology=builder.build(), steps=tuple(_steps(case, topic)), inputs=(topic,), sinks=sinks)


def verdict(case: Case, played: Played) -> list[str]:
    """Hold what came to the case's checks."""
    return checks.judge(case.expectations(), played)


def _topic(case: Case) -> str:
    return next((entry["topic"] for entry in case.input if "topic" in entry), "in")


def _results(fn: str | dict[str, str]) -> Callable[[list[Any]], Any]:
    """What is emitted of a pane's values: one aggregate, or several by name."""
    if isinstance(fn, str):
        return aggregate(fn if "(" in fn else f"{fn}(v)")
    parts = {name: aggregate(text) for name, text in fn.items()}
    return lambda values: {name: part(values) for name, part in parts.items()}


def _window(spec: Spec, time: Any) -> windows.Windows:
    kind = spec["type"]
    if kind == "tumbling":
        return windows.tumbling(spec["size_ms"], grace=0, offset=spec.get("offset_ms", 0), time=time)
    if kind in ("hopping", "sliding"):
        size, advance, offset = spec["size_ms"], spec["advance_ms"], spec.get("offset_ms", 0)
        return windows.hopping(size, advance, grace=0, offset=offset, time=time, before_epoch=True)
    if kind == "global":
        return windows.global_window()
    if kind != "session":
        raise CaseError(f"window type {kind!r} is unknown; the format has tumbling, hopping, session, global")
    gap: Any = function(spec["gap_fn"]) if "gap_fn" in spec else spec["gap_ms"]
    if "point_if" in spec:
        gap = _with_points(gap, function(spec["point_if"]))
    return windows.session(gap, grace=0, bounds="gap", touching=spec.get("touching_merges", True), time=time)


def _with_points(gap: Any, is_point: Callable[[Any], Any]) -> Callable[[Any, Any], int]:
    """The gap, but none behind the elements whose window is a point."""
    return lambda key, value: 0 if is_point(value) else gap(key, value) if callable(gap) else gap


def _trigger(spec: Spec | None, time: str) -> triggers.Trigger:
    if spec is None:
        spec = {"type": f"{time}_time"}
    kind = spec["type"]
    if kind == "event_time" or (kind == "processing_time" and time == "processing"):
        made = triggers.event_time()
    elif kind == "processing_time":
        made = triggers.processing_time()
    elif kind == "count":
        made = triggers.count(spec["n"])
    elif kind == "continuous_event_time":
        made = triggers.continuous_event_time(spec["interval_ms"])
    else:
        raise CaseError(
            f"trigger {kind!r} is unknown; the format has event_time, processing_time, count, continuous_event_time"
        )
    return triggers.purging(made) if spec.get("purging") else made


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
