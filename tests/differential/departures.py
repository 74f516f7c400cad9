"""Where another system and Penstock are known to answer differently, and why, as data.

A departure says for which kinds it holds and explains a difference in one of three ways: ``seen_as`` is what is left of
an outcome when the departure is looked past; ``where`` says for which inputs anything may differ; ``between`` says which
two outcomes may stand beside each other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from typing import Any, Literal

from tests.conformance.compare import Row
from tests.differential.inputs import WALL, Run
from tests.differential.outcomes import Outcome, Step, same

See = Callable[[Run, Outcome], Outcome]
Where = Callable[[Run], bool]
Between = Callable[[Run, Outcome, Outcome], bool]


@dataclasses.dataclass(frozen=True)
class Departure:
    """``cause``: the system whose fault it is, or ``choice``: both are right, and Penstock chose otherwise. ``whose``: the
    side that ``seen_as`` changes, where only one has what is looked past."""

    name: str
    kinds: tuple[str, ...]
    cause: str
    reason: str
    seen_as: See | None = None
    where: Where | None = None
    between: Between | None = None
    whose: Literal["both", "other", "Penstock"] = "both"

    def covers(self, kind: str) -> bool:
        """Whether it holds for a kind."""
        return any(fnmatchcase(kind, pattern) for pattern in self.kinds)

    def seen(self, run: Run, ours: Outcome, theirs: Outcome) -> tuple[Outcome, Outcome]:
        """Both outcomes without what is looked past."""
        if self.seen_as is None:
            return ours, theirs
        return (
            self.seen_as(run, ours) if self.whose != "other" else ours,
            self.seen_as(run, theirs) if self.whose != "Penstock" else theirs,
        )


def explanation(known: Iterable[Departure], run: Run, ours: Outcome, theirs: Outcome) -> str | None:
    """The names of the departures that explain the difference, the fewest first tried; ``None``: nothing does."""
    held = [d for d in known if d.covers(run.kind)]
    for departure in held:
        if departure.where is not None and departure.where(run):
            return departure.name
        if departure.between is not None and departure.between(run, ours, theirs):
            return departure.name
        if departure.seen_as is not None and same(*departure.seen(run, ours, theirs)):
            return departure.name
    for departure in held:
        ours, theirs = departure.seen(run, ours, theirs)
    if same(ours, theirs):
        return " + ".join(d.name for d in held if d.seen_as is not None)
    return None


# -- looking past ------------------------------------------------------------------------------------------------


def _mapped(outcome: Outcome, change: Callable[[list[Row]], list[Row]]) -> Outcome:
    steps = [{sink: made for sink, rows in step.items() if (made := change(rows))} for step in outcome.steps]
    return Outcome(steps, outcome.error)


def _text(row: Row) -> str:
    return repr([row.get("k"), row.get("w"), row["v"], row["ts"]])


def any_order_at_once(run: Run, outcome: Outcome) -> Outcome:
    """Without the order of what one record puts out."""
    return _mapped(outcome, lambda rows: sorted(rows, key=_text))


def any_order(run: Run, outcome: Outcome) -> Outcome:
    """Without the order of records, and without which record put them out."""
    rows: Step = {}
    for sink, row in outcome.flat():
        rows.setdefault(sink, []).append(row)
    return Outcome([{sink: sorted(rows[sink], key=_text) for sink in sorted(rows)}], outcome.error)


def without_idle_changes(run: Run, outcome: Outcome) -> Outcome:
    """Without tombstones of rows that are not there."""
    there: set[tuple[str, str]] = set()

    def telling(sink: str, row: Row) -> bool:
        key = (sink, repr([row["k"], row.get("w")]))
        was = key in there
        (there.discard if row["v"] is None else there.add)(key)
        return was or row["v"] is not None

    return _filtered(outcome, telling)


def _filtered(outcome: Outcome, keep: Callable[[str, Row], bool]) -> Outcome:
    steps = []
    for step in outcome.steps:
        left = {sink: [row for row in rows if keep(sink, row)] for sink, rows in step.items()}
        steps.append({sink: rows for sink, rows in left.items() if rows})
    return Outcome(steps, outcome.error)


def without_repeats(run: Run, outcome: Outcome) -> Outcome:
    """Without changes that tell what the row is already."""
    rows: dict[tuple[str, str], Any] = {}

    def telling(sink: str, row: Row) -> bool:
        key = (sink, repr([row["k"], row.get("w")]))
        was, rows[key] = rows.get(key), row["v"]
        return bool(was != row["v"])

    return _filtered(outcome, telling)


def last_at_once(run: Run, outcome: Outcome) -> Outcome:
    """Without what one record puts out of a row before the last."""
    return _mapped(outcome, lambda rows: list({repr([row["k"], row.get("w")]): row for row in rows}.values()))


def without_times(run: Run, outcome: Outcome) -> Outcome:
    """Without timestamps."""
    return _mapped(outcome, lambda rows: [{n: v for n, v in row.items() if n != "ts"} | {"ts": 0} for row in rows])


def without_outdated(run: Run, outcome: Outcome) -> Outcome:
    """Without changes that are older than what the key's row already is."""
    latest: dict[tuple[str, str], int] = {}

    def current(sink: str, row: Row) -> bool:
        key = (sink, repr(row["k"]))
        latest[key] = max(latest.get(key, 0), row["ts"])
        return bool(row["ts"] >= latest[key])

    return _filtered(outcome, current)


# -- inputs ------------------------------------------------------------------------------------------------------


def _records(run: Run) -> Iterable[dict[str, Any]]:
    return (entry for entry in run.input if entry.get("event") != WALL)


def has_null_key(run: Run) -> bool:
    """Some record has no key."""
    return any(entry["k"] is None for entry in _records(run))


def has_null_value(run: Run) -> bool:
    """Some record has no value."""
    return any(entry["v"] is None for entry in _records(run))


def is_late(run: Run) -> bool:
    """Some record comes behind a later one, by more than the least grace of the description."""
    graces = [node["grace_ms"] for node in run.nodes if "grace_ms" in node]
    graces += [node["window"]["grace_ms"] for node in run.nodes if "window" in node]
    now = 0
    for entry in _records(run):
        if entry["ts"] < now - min(graces, default=0):
            return True
        now = max(now, entry["ts"])
    return False


def is_as_late_as_grace(run: Run) -> bool:
    """The same, or behind it by exactly that; records without key or value do not move a join's time."""
    grace_ms = min(node["grace_ms"] for node in run.nodes if "grace_ms" in node)
    now = -1
    for entry in _records(run):
        if entry["k"] is None or entry["v"] is None:
            continue
        if now >= 0 and entry["ts"] < now and entry["ts"] <= now - grace_ms:
            return True
        now = max(now, entry["ts"])
    return False


def is_behind_a_record_without(run: Run) -> bool:
    """Some record comes behind one that has no key or no value and was ahead of all others."""
    now, ahead = -1, -1
    for entry in _records(run):
        if entry["k"] is None or entry["v"] is None:
            ahead = max(ahead, entry["ts"])
            continue
        if entry["ts"] < ahead and ahead > now:
            return True
        now = max(now, entry["ts"])
    return False


def deletes_at_the_time_of_the_row(run: Run) -> bool:
    """Some row is deleted with its own timestamp."""
    times: set[tuple[str, str, int]] = set()
    for entry in _records(run):
        place = (entry["topic"], repr(entry["k"]), entry["ts"])
        if entry["v"] is None and place in times:
            return True
        times.add(place)
    return False


def is_behind(run: Run) -> bool:
    """Some record comes behind a later one."""
    times = [entry["ts"] for entry in _records(run)]
    return times != sorted(times)


def changes_a_key_again(run: Run) -> bool:
    """Some key of some topic has two records."""
    keys = [(entry["topic"], repr(entry["k"])) for entry in _records(run)]
    return len(keys) > len(set(keys))


def deletes_a_key_again(run: Run) -> bool:
    """Some key of some topic is deleted twice."""
    keys = [(entry["topic"], repr(entry["k"])) for entry in _records(run) if entry["v"] is None]
    return len(keys) > len(set(keys))


def inside_a_session(run: Run) -> bool:
    """Some record lies between the first and the last of its key, so that a session may take it and stay as it is."""
    times: dict[str, list[int]] = {}
    for entry in _records(run):
        seen = times.setdefault(repr(entry["k"]), [])
        if seen and min(seen) <= entry["ts"] <= max(seen):
            return True
        seen.append(entry["ts"])
    return False


def always(run: Run) -> bool:
    """Every input."""
    return True
