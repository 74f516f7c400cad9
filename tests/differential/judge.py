"""Runs a kind's seeds on both sides and judges them."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any

from tests.differential.departures import Departure, Sides, explanation
from tests.differential.inputs import Entry, Run
from tests.differential.other_side import OtherSide
from tests.differential.outcomes import Outcome, same
from tests.differential.shrink import shrunk

SEEDS = 30
SHRUNK_MAX = 3
"""How many differences of one kind are shrunk: the rest is most often more of the same."""


@dataclasses.dataclass(frozen=True)
class System:
    """What Penstock is compared with, by the program of a folder (``project``). ``id``: its name in commands; by default the
    folder's. ``seeds``: how many are run by default. ``runs_of``: a kind's runs, by seed. ``question``: a run as the other
    side reads it. ``play``: Penstock's answer. ``read``: what the other side put out, as it is compared. ``case``: a run and
    its right answer in the conformance format. ``tail``: how many entries at the end of each input are needed whatever is
    left out."""

    name: str
    project: str
    kinds: tuple[str, ...]
    runs_of: Callable[[str, range], list[Run]]
    question: Callable[[Run], dict[str, Any]]
    play: Callable[[Run], Outcome]
    case: Callable[[Run, Outcome], dict[str, Any]]
    departures: tuple[Departure, ...]
    pending: dict[str, str]
    tail: int = 0
    read: Callable[[Run, Outcome], Outcome] = lambda run, outcome: outcome
    id: str = ""
    seeds: int = SEEDS

    def __post_init__(self) -> None:
        object.__setattr__(self, "id", self.id or self.project)


@dataclasses.dataclass(frozen=True)
class Difference:
    """What nothing explains, as small as it gets."""

    run: Run
    ours: Outcome
    theirs: Outcome


@dataclasses.dataclass
class Verdict:
    """Of one kind."""

    kind: str
    seeds: int = 0
    records: int = 0
    identical: int = 0
    departures: Counter[str] = dataclasses.field(default_factory=Counter)
    pending: int = 0
    unexplained: list[Difference] = dataclasses.field(default_factory=list)
    unexplained_count: int = 0


def judged(system: System, java: OtherSide, kind: str, runs: Sequence[Run]) -> Verdict:
    """Play all runs of a kind on both sides; shrink what nothing explains."""
    java.ask([system.question(run) for run in runs])
    ours = [system.play(run) for run in runs]
    theirs = [system.read(run, answer) for run, answer in zip(runs, java.answer(), strict=True)]
    verdict = Verdict(kind, seeds=len(runs))
    sides = sides_of(system, java)
    waits = any(fnmatchcase(kind, pattern) for pattern in system.pending)
    for run, mine, other in zip(runs, ours, theirs, strict=True):
        verdict.records += other.records
        if same(mine, other):
            verdict.identical += 1
        elif (why := explanation(system.departures, run, mine, other, sides)) is not None:
            verdict.departures[why] += 1
        elif waits:
            verdict.pending += 1
        else:
            verdict.unexplained_count += 1
            if len(verdict.unexplained) < SHRUNK_MAX:
                verdict.unexplained.append(_smallest(system, java, run))
    return verdict


def _smallest(system: System, java: OtherSide, run: Run) -> Difference:
    needed = len(run.input) - system.tail
    sides = sides_of(system, java)

    def differs(inputs: Sequence[list[Entry]]) -> list[bool]:
        some = [dataclasses.replace(run, input=entries + run.input[needed:]) for entries in inputs]
        return [unexplained(system, r, *pair, sides) for r, pair in zip(some, both(system, java, some), strict=True)]

    least = dataclasses.replace(run, input=shrunk(run.input[:needed], differs) + run.input[needed:])
    [(ours, theirs)] = both(system, java, [least])
    return Difference(least, ours, theirs)


def both(system: System, java: OtherSide, runs: Sequence[Run]) -> Iterable[tuple[Outcome, Outcome]]:
    """Penstock's outcome and the other side's, of each run."""
    java.ask([system.question(run) for run in runs])
    ours = [system.play(run) for run in runs]
    theirs = [system.read(run, answer) for run, answer in zip(runs, java.answer(), strict=True)]
    return zip(ours, theirs, strict=True)


def sides_of(system: System, java: OtherSide) -> Sides:
    """Both sides, to be asked about one run at a time."""

    def theirs(run: Run) -> Outcome:
        java.ask([system.question(run)])
        return system.read(run, java.answer()[0])

    return Sides(system.play, theirs)


def unexplained(system: System, run: Run, ours: Outcome, theirs: Outcome, sides: Sides) -> bool:
    """Whether the two differ, and no departure says why."""
    return not same(ours, theirs) and explanation(system.departures, run, ours, theirs, sides) is None
