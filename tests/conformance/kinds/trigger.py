"""Kind ``trigger``: transcripts of Beam's trigger driver. Every element is a bundle of its own here.

Beam writes watermarks and ends of windows one higher: its watermark T says that nothing below T is expected, ours that
nothing up to T - 1 is. Its Python driver counts lateness from a window's end, we (as Flink and Beam's Java) from its last
instant, and it emits nothing when a window closes.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from penstock.topologies import triggers, windows
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.operator_api.pane_info import PaneInfo, pane_of
from tests.conformance.case_format import Case, CaseError
from tests.conformance.compare import Row, assignable, plain
from tests.conformance.marks import FOREVER, mark, read_stream
from tests.conformance.scenario import KEY, VALUE, Clock, Played, Put, Restart, Scenario, Setting, Step, hashable

Spec = dict[str, Any]
OUT = "out"
ONLY_KEY = "all"
UNLIMITED = "unlimited"
_FIELDS = ("values", "ts", "is_first", "is_last", "early", "late", "index", "nonspeculative_index", "key")
"""Of a pane, beside its window."""


def scenario(case: Case, setting: Setting) -> Scenario:
    """Lists of the elements, in panes."""
    topic, out = f"{setting.prefix}elements", f"{setting.prefix}{OUT}"
    lateness = case.data.get("allowed_lateness", 0)
    builder: Any = StreamsBuilder("conform", key=KEY, value=VALUE)
    read_stream(builder, topic, watermarks=True).group_by_key().windowed_by(_window(case.data["window"])).triggered(
        dsl_trigger(case.data["trigger"]),
        accumulation=case.data["accumulation"],
        allowed_lateness=UNLIMITED if lateness == UNLIMITED else lateness + 1,
        timestamp_combiner=case.data.get("timestamp_combiner", "end_of_window"),
        closing="discard",
        late_by="record",
        tombstones=False,
    ).to_list(value=VALUE).to(out, retractions=True)
    steps = tuple(_steps(case, topic))
    return Scenario(topology=builder.build(), steps=steps, inputs=(topic,), sinks={OUT: out})


def _window(spec: Spec) -> windows.Windows:
    kind = spec["type"]
    if kind == "fixed":
        return windows.tumbling(spec["size"], grace=0, offset=spec.get("offset", 0))
    if kind == "sliding":
        return windows.hopping(spec["size"], spec["period"], grace=0, before_epoch=True)
    if kind == "session":
        return windows.session(spec["gap"], grace=0, bounds="gap", touching=False)
    if kind == "global":
        return windows.global_window()
    raise CaseError(f"window type {kind!r} is unknown; the format has fixed and session")


def dsl_trigger(spec: Spec) -> triggers.Trigger:
    """The trigger of a case."""
    kind = spec["type"]
    parts = [dsl_trigger(part) for part in spec.get("triggers", [])]
    if kind == "default":
        return triggers.default_trigger()
    if kind == "after_watermark":
        early, late = (None if spec.get(n) is None else dsl_trigger(spec[n]) for n in ("early", "late"))
        return triggers.after_watermark(early=early, late=late)
    if kind == "after_count":
        return triggers.after_count(spec["n"])
    if kind == "after_processing_time":
        return triggers.after_processing_time(spec["delay"] if "delay" in spec else spec.get("delay_ms", 0))
    if kind == "repeatedly":
        return triggers.repeatedly(dsl_trigger(spec["trigger"]))
    if kind == "or_finally":
        return triggers.or_finally(*parts)
    makers = {"after_any": triggers.after_any, "after_all": triggers.after_all, "after_each": triggers.after_each}
    if kind not in makers:
        raise CaseError(
            f"trigger {kind!r} is unknown; the format has default, after_watermark, after_count, after_any, after_all, "
            "after_each, repeatedly, after_processing_time"
        )
    return makers[kind](*parts)


def _steps(case: Case, topic: str) -> Iterator[Step]:
    now = 0
    for index, entry in enumerate(case.input):
        if "elements" in entry:
            for ts, value, *key in entry["elements"]:
                yield Put(index, topic, hashable(key[0]) if key else ONLY_KEY, value, ts)
        elif "watermark" in entry:
            stated = entry["watermark"]
            yield mark(index, topic, stated if stated == FOREVER else stated - 1)
        elif "advance_processing_time" in entry:
            now += entry["advance_processing_time"]
            yield Clock(index, now)
        elif entry.get("event") == "restart":
            yield Restart(index)
        else:
            raise CaseError(
                f"entry {entry!r:.60} is unknown; the format has elements, watermark, advance_processing_time"
            )


def verdict(case: Case, played: Played) -> list[str]:
    """The panes of each step, or those of each window over the whole run."""
    if played.error is not None:
        return [f"failed at entry {played.error[0]}: {played.error[1]}"]
    panes = [
        (index, _pane(row, pane_of(headers)))
        for (index, row), headers in zip(played.outputs[OUT], played.headers[OUT], strict=True)
    ]
    wrong = []
    by_window = case.expectations("expected_panes")
    if by_window is not None:
        wrong += _compare_windows(by_window, [pane for _, pane in panes])
    steps = case.expectations()
    if steps is not None:
        since = 0
        for step in steps:
            wrong += _compare_step(step, [pane for index, pane in panes if since <= index < step["after"]])
            since = step["after"]
    return wrong


def _pane(row: Row, info: PaneInfo | None) -> dict[str, Any]:
    assert info is not None
    return {
        "key": row["k"],
        "window": row["w"],
        "values": sorted(row["v"] or [], key=repr),
        "ts": row["ts"],
        "is_first": info.is_first,
        "is_last": info.is_last,
        "early": info.timing == "EARLY",
        "late": info.timing == "LATE",
        "index": info.index,
        "nonspeculative_index": info.nonspeculative_index,
    }


def _agrees(expected: Spec, actual: Spec) -> bool:
    """Whether a pane has what is listed of it; its values in any order."""
    listed = {**expected, "values": sorted(expected["values"], key=repr)} if "values" in expected else expected
    fields = [f for f in ("window", *_FIELDS) if f in listed]
    return all(plain(listed[f]) == plain(actual[f]) for f in fields)


def _compare_step(step: Spec, actual: list[Spec]) -> list[str]:
    expected = step["panes"]
    if len(expected) == len(actual) and assignable(expected, actual, _agrees):
        return []
    return [f"after {step['after']}: the panes differ", *_listed("expected", expected), *_listed("actual  ", actual)]


def _compare_windows(expected: list[Spec], actual: list[Spec]) -> list[str]:
    found: dict[tuple[int, int], list[list[Any]]] = defaultdict(list)
    for pane in actual:
        found[pane["window"][0], pane["window"][1]].append(sorted(set(map(repr, pane["values"]))))
    wanted = {
        (e["window"][0], e["window"][1]): [sorted(set(map(repr, values))) for values in e["panes"]] for e in expected
    }
    return [
        f"window {list(window)}: expected {wanted.get(window, [])}, actual {found.get(window, [])}"
        for window in sorted(wanted.keys() | found.keys())
        if wanted.get(window, []) != found.get(window, [])
    ]


def _listed(what: str, panes: list[Spec]) -> list[str]:
    return [f"    {what} {json.dumps(plain(pane))}" for pane in panes] or [f"    {what} nothing"]
