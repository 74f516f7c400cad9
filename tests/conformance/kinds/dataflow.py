"""Kind ``dataflow``: nodes of Kafka Streams' operators, input records, and checks of sinks and stores."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.state.log import Windowed
from tests.conformance import checks
from tests.conformance.case_format import Case, CaseError
from tests.conformance.dataflow import Dataflow
from tests.conformance.marks import mark
from tests.conformance.scenario import Clock, Mark, Played, Put, Restart, Scenario, Setting, Step

DUMMY_KEY = "conform-dummy"
"""Key of the records that stand for watermarks; no case has it."""
_STATEFUL = ("table", "global_table", "changelog_table", "to_table", "aggregate", "cogroup", "join", "suppress")


def scenario(case: Case, setting: Setting) -> Scenario:
    """The case's topology and input."""
    flow = Dataflow(case.data["topology"]["nodes"], setting.prefix, watermarks=_by_watermarks(case))
    topology = flow.build()
    looks = [check for alternative in _alternatives(case) for check in alternative]
    return Scenario(
        topology=topology,
        steps=tuple(_steps(case, flow)),
        inputs=tuple(flow.inputs.values()),
        sinks=flow.sinks,
        stores=checks.stores_of(looks),
        counts=checks.counts_of(looks),
        splits=checks.splits_of(looks),
        window_end=flow.window_end,
    )


def verdict(case: Case, played: Played) -> list[str]:
    """Hold what came to each of the case's expectations; the best counts."""
    for sink, rows in played.outputs.items():
        played.outputs[sink] = [(index, row) for index, row in rows if row["k"] != DUMMY_KEY]
    found = [checks.judge(alternative, played) for alternative in _alternatives(case)]
    if "expected_final" in case.data:
        found.append(checks.judge_final(case.data["expected_final"], played))
    if not found:
        raise CaseError("the case expects nothing: it has none of expected, expected_ideal, expected_final")
    return [] if any(not wrong for wrong in found) else found[0]


def _alternatives(case: Case) -> list[list[dict[str, Any]]]:
    return [e for e in (case.expectations(), case.data.get("expected_ideal")) if e is not None]


def _by_watermarks(case: Case) -> bool:
    """Whether the case's watermarks are to be watermarks. They are for joins of two streams; other operators of these
    cases go by stream time, so that a watermark becomes a record of that time under a key of its own."""
    if not any(entry.get("event") == "watermark" for entry in case.input):
        return False
    stateful = [n for n in case.data["topology"]["nodes"] if n["op"] in _STATEFUL]
    return all(n["op"] == "join" and n["kind"] == "stream_stream" for n in stateful)


def _steps(case: Case, flow: Dataflow) -> Iterator[Step]:
    values: dict[str, Any] = {}
    time = _EventTime(case, flow)
    for index, entry in enumerate(case.input):
        event = entry.get("event")
        if event is None:
            topic, ts = entry["topic"], entry["ts"] or 0
            values[topic] = entry["v"]
            yield Put(index, flow.inputs.get(topic, topic), _key(entry, flow.windowed.get(topic)), entry["v"], ts)
        elif event == "watermark" and flow.watermarks:
            for topic in [entry["input"]] if "input" in entry else flow.streams:
                yield mark(index, flow.inputs[topic], entry["ts"])
        elif event == "watermark":
            yield from _dummies(index, flow, time.reached(entry), values)
        elif event == "processing_time":
            yield Clock(index, entry["ts"])
        elif event == "restart":
            yield Restart(index)
        else:
            raise CaseError(f"event {event!r} is unknown; the format has watermark, processing_time, restart")


def _dummies(index: int, flow: Dataflow, ts: int | None, values: dict[str, Any]) -> Iterator[Step]:
    """A record of the time that was reached in every stream; its value is the last one of the stream, which functions
    can take."""
    for topic in flow.streams if ts is not None else ():
        value = values.get(topic, next(iter(values.values()), ""))
        yield Mark(index, flow.inputs[topic], DUMMY_KEY, value, max(ts or 0, 0))


def _key(entry: dict[str, Any], windowed: str | None) -> Any:
    if windowed is None:
        return entry["k"]
    return Windowed(entry["k"], *entry["w"])


class _EventTime:
    """The case's watermark: the minimum over its inputs."""

    def __init__(self, case: Case, flow: Dataflow) -> None:
        self._inputs: dict[str, int | None] = dict.fromkeys(flow.streams)
        self._end_ms = _far_future(case)

    def reached(self, entry: dict[str, Any]) -> int | None:
        """Event time after a watermark; ``None`` while some input has none."""
        ts = self._end_ms if entry["ts"] == "max" else entry["ts"]
        for topic in [entry["input"]] if "input" in entry else list(self._inputs):
            self._inputs[topic] = ts
        stated = [t for t in self._inputs.values() if t is not None]
        return min(stated) if len(stated) == len(self._inputs) else None


def _far_future(case: Case) -> int:
    """A time at which every window and join of the case has ended."""
    latest = max((e["ts"] for e in case.input if isinstance(e.get("ts"), int)), default=0)
    return latest + 2 * sum(_durations(case.data["topology"])) + 1


def _durations(node: Any) -> Iterator[int]:
    if isinstance(node, dict):
        for name, value in node.items():
            if name.endswith("_ms") and isinstance(value, int):
                yield abs(value)
            else:
                yield from _durations(value)
    elif isinstance(node, list):
        for item in node:
            yield from _durations(item)
