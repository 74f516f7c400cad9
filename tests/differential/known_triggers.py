"""The known departures of Penstock's triggers from Beam's, and what is not decided yet."""

from __future__ import annotations

from collections.abc import Iterator

from tests.conformance.compare import Row
from tests.differential.departures import Departure, Sides, any_order_at_once
from tests.differential.inputs import Entry, Run
from tests.differential.outcomes import Outcome
from tests.differential.replays import without

TIMING = ("timing", "nonspeculative_index")


def both_without_late_elements(run: Run, ours: Outcome, theirs: Outcome, sides: Sides) -> tuple[Outcome, Outcome]:
    """Neither side is given elements that come behind the watermark, where lateness has a limit."""
    if run.nodes[0]["allowed_lateness"] == "unlimited":
        return ours, theirs
    late = {id(entry) for entry in _late(run)}
    return without(run, sides.ours, lambda e: id(e) in late), without(run, sides.theirs, lambda e: id(e) in late)


def _late(run: Run) -> Iterator[Entry]:
    """The entries that come behind the watermark."""
    watermark = 0
    for entry in run.input:
        if "watermark" in entry:
            watermark = entry["watermark"]
        elif any(ts < watermark for ts, _ in entry["elements"]):
            yield entry


def without_timing(run: Run, outcome: Outcome) -> Outcome:
    """Without what a pane says of its timing: early, on time or late, and its number among those that are not early."""

    def seen(row: Row) -> Row:
        return {**row, "v": {name: value for name, value in row["v"].items() if name not in TIMING}}

    steps = [{sink: [seen(row) for row in rows] for sink, rows in step.items()} for step in outcome.steps]
    return Outcome(steps, outcome.error)


def without_times_of_late_panes(run: Run, outcome: Outcome) -> Outcome:
    """Without the timestamps of a window's panes from the first on that has an element that came behind the watermark: one
    without elements repeats the timestamp before it."""
    late = {value for entry in _late(run) for _, value in entry["elements"]}
    windows: set[str] = set()

    def seen(row: Row) -> Row:
        if late & set(row["v"]["values"]):
            windows.add(repr(row["w"]))
        return {**row, "ts": 0} if repr(row["w"]) in windows else row

    steps = [{sink: [seen(row) for row in rows] for sink, rows in step.items()} for step in outcome.steps]
    return Outcome(steps, outcome.error)


DEPARTURES: tuple[Departure, ...] = (
    Departure(
        "order among windows",
        "Order among windows",
        ("sliding_*", "session_*", "fixed_*"),
        "choice",
        "Windows that fire together come in order of their start. Beam promises no order.",
        seen_as=any_order_at_once,
    ),
    Departure(
        "expired sessions merged",
        "Expired sessions",
        ("session_*",),
        "Beam",
        "A session that is older than the allowed lateness is gone, as in Beam's model. Beam's Python driver never "
        "forgets one, so that late elements still merge with it.",
        replay=both_without_late_elements,
    ),
)
"""Where the two differ for good."""

RUNNER_DEPARTURES: tuple[Departure, ...] = (
    *DEPARTURES,
    Departure(
        "timing while output is held back",
        "Timing while output is held back",
        ("*",),
        "choice",
        "A pane is early until the watermark has passed its window. Beam asks for the watermark of its output, which the "
        "runner holds back for elements that wait in panes.",
        seen_as=without_timing,
    ),
    Departure(
        "times of late elements while output is held back",
        "Timestamps of panes with late elements",
        ("*",),
        "choice",
        "An element behind the watermark does not count for the timestamp of its pane. In Beam's runner it does, as long as "
        "the watermark of the output is held back behind it.",
        seen_as=without_times_of_late_panes,
    ),
)
"""Where the direct runner differs. Its panes are those of the driver, but for what it says of their timing."""

PENDING: dict[str, str] = {}
"""As in ``known.py``."""
