"""Where another system and Penstock are known to answer differently, and why, as data.

A departure says for which kinds it holds, and excuses the one difference that it names: ``seen_as`` is what is left of an
outcome when that is looked past; ``replay`` works out from both outcomes, and from answers to other inputs, what both would
put out if the two agreed on it; ``between`` says which two outcomes may stand beside each other.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from itertools import combinations
from typing import Any, Literal

from tests.conformance.compare import Row
from tests.differential.inputs import Run
from tests.differential.outcomes import Outcome, same

TOGETHER_MAX = 3
"""How many departures may explain one difference together."""

Play = Callable[[Run], Outcome]


@dataclasses.dataclass(frozen=True)
class Sides:
    """How each side answers another run."""

    ours: Play
    theirs: Play


See = Callable[[Run, Outcome], Outcome]
Replay = Callable[[Run, Outcome, Outcome, Sides], tuple[Outcome, Outcome]]
Between = Callable[[Run, Outcome, Outcome], bool]


@dataclasses.dataclass(frozen=True)
class Departure:
    """``entry``: its heading in ``DEPARTURES.md``. ``cause``: the system whose fault it is, or ``choice``: both are right,
    and Penstock chose otherwise. ``whose``: the side that ``seen_as`` changes, where only one has what is looked past."""

    name: str
    entry: str
    kinds: tuple[str, ...]
    cause: str
    reason: str
    seen_as: See | None = None
    replay: Replay | None = None
    between: Between | None = None
    whose: Literal["both", "other", "Penstock"] = "both"

    def covers(self, kind: str) -> bool:
        """Whether it holds for a kind."""
        return any(fnmatchcase(kind, pattern) for pattern in self.kinds)

    def seen(self, run: Run, ours: Outcome, theirs: Outcome, sides: Sides) -> tuple[Outcome, Outcome]:
        """Both outcomes as they would be without the departure."""
        if self.replay is not None:
            ours, theirs = self.replay(run, ours, theirs, sides)
        if self.seen_as is None:
            return ours, theirs
        return (
            self.seen_as(run, ours) if self.whose != "other" else ours,
            self.seen_as(run, theirs) if self.whose != "Penstock" else theirs,
        )


def explanation(known: Iterable[Departure], run: Run, ours: Outcome, theirs: Outcome, sides: Sides) -> str | None:
    """The names of the fewest departures that explain the difference; ``None``: nothing does. Those that replay come
    first: what they work out is an outcome like any other."""
    held = sorted((d for d in known if d.covers(run.kind)), key=lambda d: d.replay is None)
    for departure in held:
        if departure.between is not None and departure.between(run, ours, theirs):
            return departure.name
    for size in range(1, TOGETHER_MAX + 1):
        for some in combinations([d for d in held if d.between is None], size):
            mine, other = ours, theirs
            for departure in some:
                mine, other = departure.seen(run, mine, other, sides)
            if same(mine, other):
                return " + ".join(d.name for d in some)
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


def without_tombstones(run: Run, outcome: Outcome) -> Outcome:
    """Without deletions."""
    return _filtered(outcome, lambda sink, row: row["v"] is not None)


def without_null_keys(run: Run, outcome: Outcome) -> Outcome:
    """Without records that have no key."""
    return _filtered(outcome, lambda sink, row: row["k"] is not None)


def without_group_of_zero(run: Run, outcome: Outcome) -> Outcome:
    """Without the group that the initial value of an aggregate names."""
    return _filtered(outcome, lambda sink, row: row["k"] != "0")


def without_subtractions(run: Run, outcome: Outcome) -> Outcome:
    """Without what chains of additions and subtractions have taken out, and without the rows that told of that alone."""
    rows: dict[tuple[str, str], str] = {}

    def added(sink: str, row: Row) -> bool:
        was = rows.get((sink, repr(row["k"])), "")
        rows[sink, repr(row["k"])] = row["v"]
        return bool(row["v"] != was)

    chains = _mapped(
        outcome,
        lambda rows: [{**row, "v": re.sub(r"-[^+-]*", "", "" if row["v"] is None else str(row["v"]))} for row in rows],
    )
    return without_times(run, _filtered(chains, added))
