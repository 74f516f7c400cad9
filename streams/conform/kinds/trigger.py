"""Kind ``trigger``: panes of windows, as Beam's triggers make them.

Every element is a bundle of its own here, so that cases which depend on bundles are judged by what they expect then.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.streams.conform.cases import Case, CaseError
from penstock.streams.conform.compare import Row, assignable, plain
from penstock.streams.conform.marks import mark, read_stream
from penstock.streams.conform.scenario import KEY, VALUE, Clock, Played, Put, Restart, Scenario, Setting, Step, hashable
from penstock.streams.conform.triggers import beam_trigger
from penstock.streams.conform.windows import plain_window
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.panes import PaneInfo, pane_of

ONLY_KEY = "all"
OUT = "panes"


def scenario(case: Case, setting: Setting) -> Scenario:
    """The values of each window as a list, emitted by the trigger."""
    topic, out = f"{setting.prefix}elements", f"{setting.prefix}{OUT}"
    builder: Any = StreamsBuilder(case.id, key=KEY, value=VALUE)
    windows = plain_window(case.data["window"], before_epoch=True)
    grouped = read_stream(builder, topic, watermarks=True).group_by_key().windowed_by(windows)
    panes = grouped.triggered(
        beam_trigger(case.data["trigger"]),
        accumulation=case.data["accumulation"],
        allowed_lateness=case.data.get("allowed_lateness", 0),
        timestamp_combiner=case.data.get("timestamp_combiner", "end_of_window"),
        closing="discard",
        late_by="record",
        tombstones=False,
    )
    panes.to_list(value=VALUE).to(out)
    return Scenario(topology=builder.build(), steps=tuple(_steps(case, topic)), inputs=(topic,), sinks={OUT: out})


def _steps(case: Case, topic: str) -> Iterator[Step]:
    clock_ms = 0
    for index, entry in enumerate(case.input):
        if "elements" in entry:
            for ts, value, *key in entry["elements"]:
                yield Put(index, topic, hashable(key[0]) if key else ONLY_KEY, value, ts)
        elif "watermark" in entry:
            yield mark(index, topic, entry["watermark"])
        elif "advance_processing_time" in entry:
            clock_ms += entry["advance_processing_time"]
            yield Clock(index, clock_ms)
        elif entry.get("event") == "restart":
            yield Restart(index)
        else:
            raise CaseError(
                f"input {entry!r:.100} is unknown; the format has elements, watermark, advance_processing_time"
            )


def verdict(case: Case, played: Played) -> list[str]:
    """Panes per step, or per window over the whole run."""
    if played.error is not None:
        return [f"failed at entry {played.error[0]}: {played.error[1]}"]
    panes = [
        (index, _pane(row, pane_of(headers)))
        for (index, row), headers in zip(played.outputs[OUT], played.headers[OUT], strict=True)
    ]
    wrong: list[str] = []
    steps = case.expectations()
    if steps is not None:
        wrong += _per_step(steps, panes)
    by_window = case.expectations("expected_panes")
    if by_window is not None:
        wrong += _per_window(by_window, [pane for _, pane in panes])
    return wrong


def _pane(row: Row, info: PaneInfo | None) -> dict[str, Any]:
    """What was emitted, by a case's names."""
    pane = {"window": row["w"], "values": row["v"], "ts": row["ts"], "key": row["k"]}
    if info is not None:
        pane |= {
            "index": info.index,
            "nonspeculative_index": info.nonspeculative_index,
            "is_first": info.is_first,
            "is_last": info.is_last,
            "early": info.timing == "EARLY",
            "late": info.timing == "LATE",
            "on_time": info.timing == "ON_TIME",
            "timing": info.timing,
        }
    return pane


def _agrees(expected: dict[str, Any], found: dict[str, Any]) -> bool:
    """Whether the attributes that are listed are equal; values in any order."""
    for name, value in expected.items():
        if name == "values":
            if _unordered(value) != _unordered(found["values"]):
                return False
        elif plain(found.get(name)) != plain(value):
            return False
    return True


def _unordered(values: list[Any]) -> list[str]:
    return sorted(repr(plain(v)) for v in values)


def _per_step(steps: list[dict[str, Any]], panes: list[tuple[int, dict[str, Any]]]) -> list[str]:
    wrong = []
    before = 0
    for step in steps:
        found = [pane for index, pane in panes if before <= index < step["after"]]
        before = step["after"]
        if len(found) != len(step["panes"]) or not assignable(step["panes"], found, _agrees):
            wrong += [f"after {step['after']}: {len(step['panes'])} panes expected, {len(found)} found"]
            wrong += [f"    expected {pane}" for pane in step["panes"]]
            wrong += [f"    actual   {pane}" for pane in found]
    return wrong


def _per_window(expected: list[dict[str, Any]], panes: list[dict[str, Any]]) -> list[str]:
    keyed = any("key" in e for e in expected)

    def name(of: dict[str, Any]) -> str:
        return f"{of.get('key')} {of['window']}" if keyed else f"{of['window']}"

    theirs = {name(e): [_unordered(values) for values in e["panes"]] for e in expected}
    ours: dict[str, list[list[str]]] = {}
    for pane in panes:
        ours.setdefault(name(pane), []).append(_unordered(pane["values"]))
    wrong = []
    for window in {**theirs, **ours}:
        if theirs.get(window, []) != ours.get(window, []):
            wrong += [f"window {window}:", f"    expected {theirs.get(window, [])}"]
            wrong += [f"    actual   {ours.get(window, [])}"]
    return wrong
