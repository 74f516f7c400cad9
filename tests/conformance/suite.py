"""A run over case files: every case at every batch size, and what is reported of it."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Iterable, Iterator, Sequence
from types import ModuleType

from penstock.state.errors import PenstockError
from tests.conformance.case_format import BUNDLE_DEPENDENT, PORTABLE, Case, CaseError
from tests.conformance.scenario import Played, Player, Scenario, Setting
from tests.conformance.shift import shift_towards, shifted

_KINDS = "tests.conformance.kinds"
KINDS = {
    "dataflow": f"{_KINDS}.dataflow",
    "windowed_stream": f"{_KINDS}.windowed_stream",
    "cep": f"{_KINDS}.cep",
    "trigger": f"{_KINDS}.trigger",
    "assign_windows": f"{_KINDS}.window_words",
    "merge_sessions": f"{_KINDS}.window_words",
    "merge_windows": f"{_KINDS}.window_words",
    "window_group": f"{_KINDS}.window_group",
    "murmur2": f"{_KINDS}.hashing",
    "partition": f"{_KINDS}.hashing",
    "nexmark": f"{_KINDS}.nexmark",
}
"""The module of each kind."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """One case under all players. ``wrong``: lines by player; empty when it passed."""

    case: Case
    wrong: dict[str, list[str]]

    @property
    def passed(self) -> bool:
        """Whether every player got it right."""
        return not self.wrong


def run_case(case: Case, players: dict[str, Player]) -> Outcome:
    """Play one case with each of the players."""
    wrong = {}
    for name, play in players.items():
        lines = judge(case, play)
        if lines:
            wrong[name] = lines
    return Outcome(case, wrong)


def judge(case: Case, play: Player) -> list[str]:
    """What is wrong with one case under one player, as lines; none when it passes."""
    try:
        kind = kind_of(case)
        lines: list[str] = kind.verdict(case, _played(case, play)) if hasattr(kind, "verdict") else kind.judge(case)
        return lines
    except Exception as exc:  # not hidden: a case that cannot be run has failed, for the reason that is shown
        return [f"{type(exc).__name__}: {exc}"]


def _played(case: Case, play: Player) -> Played:
    setting = play.setting(case)
    try:
        scenario = scenario_of(case, setting)
    except CaseError:
        raise
    except PenstockError as exc:  # a refusal when the topology is built may be what the case expects
        return Played(error=(0, f"the topology cannot be built: {type(exc).__name__}: {exc}"))
    return play(scenario)


def scenario_of(case: Case, setting: Setting) -> Scenario:
    """What a runner is to play in its setting. Raises ``CaseError``, and what building the topology raises."""
    shift_ms = shift_towards(case, setting.around_ms) if setting.around_ms else 0
    scenario: Scenario = kind_of(case).scenario(shifted(case, shift_ms), setting)
    return dataclasses.replace(scenario, shift_ms=shift_ms)


def kind_of(case: Case) -> ModuleType:
    """The module that plays the case. Raises ``CaseError`` for an unknown kind."""
    if case.kind not in KINDS:
        raise CaseError(f"kind {case.kind!r} is unknown; the format has {', '.join(KINDS)}")
    return importlib.import_module(KINDS[case.kind])


def run(cases: Iterable[Case], players: dict[str, Player]) -> Iterator[Outcome]:
    """Play the cases one after the other."""
    for case in cases:
        yield run_case(case, players)


class Report:
    """What is printed of a run, as it goes: failures with expected and actual, then the cases that need not pass apart,
    and the sum last."""

    def __init__(self, *, verbose: bool) -> None:
        self._verbose = verbose
        self._bound: list[Outcome] = []
        self._apart: list[Outcome] = []

    @property
    def passed(self) -> bool:
        """Whether every case passed that an engine is bound to pass."""
        return all(o.passed for o in self._bound)

    def add(self, outcome: Outcome) -> Iterator[str]:
        """The lines to print at once."""
        if outcome.case.judged:
            self._bound.append(outcome)
            yield from _of_one(outcome, self._verbose)
        else:
            self._apart.append(outcome)

    def end(self) -> Iterator[str]:
        """The lines to print when all is done."""
        if self._apart:
            yield "not portable, reported apart:"
            for outcome in self._apart:
                yield from _of_one(outcome, True)
            yield f"not portable: {_sum(self._apart)}"
        yield _sum(self._bound)


def _of_one(outcome: Outcome, verbose: bool) -> Iterator[str]:
    case = outcome.case
    about = case.id if case.portability in (PORTABLE, BUNDLE_DEPENDENT) else f"{case.id} ({case.portability})"
    if outcome.passed:
        if verbose:
            yield f"passed {about}"
        return
    yield f"FAILED {about} [{case.group}]"
    for player, lines in outcome.wrong.items():
        yield f"  {player}:"
        yield from (f"    {line}" for line in lines)


def _sum(outcomes: Sequence[Outcome]) -> str:
    passed = sum(o.passed for o in outcomes)
    return f"{passed} passed, {len(outcomes) - passed} failed"
