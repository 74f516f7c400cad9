"""Answers JSON lines with the panes of Beam's trigger driver, which its Python runners share, or of a pipeline in Beam's
direct runner. Beam's own Python runs it: nothing of Penstock is imported.

A line is ``{"runs": [{"window", "trigger", "accumulation", "timestamp_combiner", "allowed_lateness", "input", "runner"}]}``
in the conformance format; the answer is ``{"runs": [{"steps", "error"}]}``. Each element is a bundle of its own. With
``runner``, all panes are in one step, the last.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

from apache_beam.transforms import WindowInto, trigger, window
from apache_beam.transforms.core import Windowing
from apache_beam.utils.timestamp import MAX_TIMESTAMP, MIN_TIMESTAMP
from apache_beam.utils.windowed_value import PaneInfoTiming, WindowedValue
from pipeline import panes_of

FOREVER_S = 10**9


class StoppedClock:
    """Processing time, which stands still."""

    def time(self) -> int:
        """The time in seconds."""
        return 0


def window_of(spec: dict[str, Any]) -> Any:
    """The window of a description."""
    kind = spec["type"]
    if kind == "fixed":
        return window.FixedWindows(spec["size"])
    if kind == "sliding":
        return window.SlidingWindows(spec["size"], spec["period"])
    if kind == "session":
        return window.Sessions(spec["gap"])
    return window.GlobalWindows()


def trigger_of(spec: dict[str, Any]) -> Any:
    """The trigger of a description."""
    kind = spec["type"]
    if kind == "default":
        return trigger.DefaultTrigger()
    if kind == "after_watermark":
        parts = {name: trigger_of(spec[name]) for name in ("early", "late") if spec.get(name) is not None}
        return trigger.AfterWatermark(**parts)
    if kind == "after_count":
        return trigger.AfterCount(spec["n"])
    if kind == "repeatedly":
        return trigger.Repeatedly(trigger_of(spec["trigger"]))
    made = {"after_any": trigger.AfterAny, "after_all": trigger.AfterAll, "after_each": trigger.AfterEach}[kind]
    return made(*map(trigger_of, spec["triggers"]))


def panes_of_the_runner(run: dict[str, Any]) -> list[dict[str, Any]]:
    """What the direct runner puts out from a ``TestStream``, all at the end."""
    lateness = FOREVER_S if run["allowed_lateness"] == "unlimited" else run["allowed_lateness"]

    def windowed() -> WindowInto:
        return WindowInto(
            window_of(run["window"]),
            trigger=trigger_of(run["trigger"]),
            accumulation_mode=getattr(trigger.AccumulationMode, run["accumulation"].upper()),
            timestamp_combiner=getattr(window.TimestampCombiner, "OUTPUT_AT_" + COMBINERS[run["timestamp_combiner"]]),
            allowed_lateness=lateness,
        )

    return [row_of(pane) for pane in panes_of(run["input"], windowed)]


def steps_of(run: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What each entry of the input put out."""
    windows = window_of(run["window"])
    lateness = FOREVER_S if run["allowed_lateness"] == "unlimited" else run["allowed_lateness"]
    driver = trigger.GeneralTriggerDriver(
        Windowing(
            windows,
            trigger_of(run["trigger"]),
            getattr(trigger.AccumulationMode, run["accumulation"].upper()),
            getattr(window.TimestampCombiner, "OUTPUT_AT_" + COMBINERS[run["timestamp_combiner"]]),
            lateness,
        ),
        StoppedClock(),
    )
    state, watermark = trigger.InMemoryUnmergedState(), MIN_TIMESTAMP
    for entry in run["input"]:
        panes = []
        if "elements" in entry:
            for ts, value in entry["elements"]:
                assigned = windows.assign(window.WindowFn.AssignContext(ts, value))
                panes += driver.process_elements(state, [WindowedValue(value, ts, assigned)], watermark, watermark)
        else:
            stated = entry["watermark"]
            watermark = MAX_TIMESTAMP if stated == "max" else stated
        panes += fired(driver, state, watermark)
        yield {"out": [row_of(pane) for pane in panes]} if panes else {}


COMBINERS = {"earliest": "EARLIEST", "latest": "LATEST", "end_of_window": "EOW"}


def fired(driver: Any, state: Any, watermark: Any) -> Iterator[Any]:
    """The panes of the timers that are due, and of those that they set."""
    while due := state.get_and_clear_timers(watermark):
        for of, (name, domain, ts, _) in due:
            yield from driver.process_timer(of, name, domain, ts, state)


def row_of(pane: Any) -> dict[str, Any]:
    """A pane as the comparison reads it."""
    [of] = pane.windows
    info = pane.pane_info
    return {
        "w": None if of == window.GlobalWindow() else [int(of.start), int(of.end)],
        "v": {
            "values": sorted(pane.value),
            "is_first": info.is_first,
            "is_last": info.is_last,
            "timing": PaneInfoTiming.to_string(info.timing),
            "index": info.index,
            "nonspeculative_index": info.nonspeculative_index,
        },
        "ts": "end of time" if pane.timestamp >= window.GlobalWindow().max_timestamp() else int(pane.timestamp),
    }


def outcome(run: dict[str, Any]) -> dict[str, Any]:
    """What a run put out, and the error that ended it."""
    steps: list[dict[str, Any]] = []
    try:
        if run.get("runner"):
            panes = panes_of_the_runner(run)
            return {"steps": [*({} for _ in run["input"][1:]), {"out": panes} if panes else {}]}
        for step in steps_of(run):
            steps.append(step)
    except Exception as exc:  # whatever it is, it is the answer
        return {"steps": steps, "error": f"{type(exc).__name__}: {exc}"}
    return {"steps": steps}


def main() -> None:
    """Say that it is ready, then answer until there are no more questions."""
    # Each pipeline asks for the translation of its options' texts, and for IPython: half of its time, if they are looked
    # for in every folder.
    os.environ["LANGUAGE"] = "C"
    sys.modules.setdefault("IPython", None)  # type: ignore[arg-type]  # it is not there
    print(json.dumps({"triggers": sorted(KINDS)}), flush=True)
    for line in sys.stdin:
        print(json.dumps({"runs": [outcome(run) for run in json.loads(line)["runs"]]}), flush=True)


KINDS = ("default", "after_watermark", "after_count", "repeatedly", "after_any", "after_all", "after_each")

if __name__ == "__main__":
    main()
