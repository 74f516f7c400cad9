"""The known departures of Penstock's patterns from FlinkCEP's, and what is not decided yet."""

from __future__ import annotations

import dataclasses
from collections import Counter
from itertools import groupby
from typing import Any

from tests.conformance.compare import Row
from tests.differential.departures import Departure, any_order_at_once, without_times
from tests.differential.inputs import Run
from tests.differential.outcomes import Outcome
from tests.differential.play_patterns import play


def key_by_key(run: Run, outcome: Outcome) -> Outcome:
    """Without the order among keys of what one watermark puts out."""
    steps = [{sink: sorted(rows, key=_key) for sink, rows in step.items()} for step in outcome.steps]
    return Outcome(steps, outcome.error)


def event_by_event(run: Run, outcome: Outcome) -> Outcome:
    """Without the order among the matches that one event completes: rows that stand together, of one key and time."""
    steps = []
    for step in outcome.steps:
        together = {
            sink: [sorted(some, key=repr) for _, some in groupby(rows, key=lambda row: (_key(row), row["ts"]))]
            for sink, rows in step.items()
        }
        steps.append({sink: [row for some in runs for row in some] for sink, runs in together.items()})
    return Outcome(steps, outcome.error)


def _key(row: Row) -> str:
    """The key that each event carries."""
    return str(row["v"]["key"] if "id" in row["v"] else _events(row)[0]["key"])


def _events(row: Row) -> list[dict[str, Any]]:
    return [event for events in row["v"].values() for event in events]


def without_times_in_any_order(run: Run, outcome: Outcome) -> Outcome:
    """Without timestamps, and without the order of what one watermark puts out."""
    return any_order_at_once(run, without_times(run, outcome))


def takes_another_of_several(run: Run, ours: Outcome, theirs: Outcome) -> bool:
    """The first match in which the two differ is one of several with one first event that one event completes, and all that
    the other side puts out is what Penstock finds without a skip strategy."""
    if ours.error is not None or theirs.error is not None:
        return False
    pattern = {**run.nodes[0]["pattern"], "skip": {"strategy": "no_skip"}}
    unskipped = play(dataclasses.replace(run, nodes=[{"pattern": pattern}]))
    if not _put_out(theirs) <= _put_out(unskipped):
        return False
    several = Counter(_first_and_last(row) for sink, row in unskipped.flat() if sink == "matches")
    mine, other = Counter(map(_row, ours.flat())), Counter(map(_row, theirs.flat()))
    differing = [
        _first_and_last(row)
        for outcome, more in ((ours, mine - other), (theirs, other - mine))
        for sink, row in outcome.flat()
        if sink == "matches" and more[_row((sink, row))]
    ]
    return bool(differing) and several[min(differing, key=lambda ends: (ends[1], ends[0]))] > 1


def _row(of: tuple[str, Row]) -> str:
    return repr((of[0], of[1]["v"]))


def _put_out(outcome: Outcome) -> set[str]:
    return set(map(_row, outcome.flat()))


def _first_and_last(row: Row) -> tuple[int, int]:
    """The numbers of a match's first and last event."""
    events = _events(row)
    return events[0]["id"], events[-1]["id"]


def has_all_of_ours(run: Run, ours: Outcome, theirs: Outcome) -> bool:
    """Neither side failed, and the other side has all that Penstock has, and more."""
    if ours.error is not None or theirs.error is not None:
        return False
    pairs = zip(ours.steps, theirs.steps, strict=True)
    return all(_counted(mine) <= _counted(other) for mine, other in pairs)


def _counted(step: dict[str, list[Row]]) -> Counter[str]:
    return Counter(repr((sink, row["v"], row["ts"])) for sink, rows in step.items() for row in rows)


DEPARTURES: tuple[Departure, ...] = (
    Departure(
        "order among keys",
        "Order of matches",
        ("*",),
        "choice",
        "What one watermark completes comes in order of time, whatever the key. Flink goes key by key, in the "
        "order in which its timers happen to stand.",
        seen_as=key_by_key,
    ),
    Departure(
        "order among the matches of one event",
        "Order of matches",
        ("*",),
        "choice",
        "Matches that one event completes come in a fixed order. Flink keeps partial matches in a heap, which "
        "orders those of one start in no particular way.",
        seen_as=event_by_event,
    ),
    Departure(
        "times of matches that no event completes",
        "Matches that no event completes",
        ("not_*_at_end", "not_at_end_*", "skip_*", "random*"),
        "choice",
        "A match that ends with what did not come, or waits for an earlier one, has a time that follows from its "
        "events. Flink gives it the watermark's or the next event's, and the end of time at the end.",
        seen_as=without_times_in_any_order,
    ),
    Departure(
        "which of several matches is the first",
        "Which of several matches is kept",
        ("skip_*", "random*"),
        "choice",
        "Of several matches with one first event that one event completes, the skip strategy takes the first and "
        "drops others. Which is first is fixed here, and an accident of Flink's heap.",
        between=takes_another_of_several,
    ),
    Departure(
        "repeated groups",
        "Repeated groups",
        ("group_at_begin", "group_of_loops"),
        "Flink",
        "A repeated group of one stage is that stage repeated. Flink gives the same match twice, and takes a later "
        "event than the next one behind a group, where it does neither behind a repeated stage.",
        between=has_all_of_ours,
    ),
)
"""Where the two differ for good."""

PENDING: dict[str, str] = {}
"""As in ``known.py``."""
