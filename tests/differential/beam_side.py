"""Beam as the system that Penstock is compared with: its trigger driver, and pipelines in its direct runner."""

from __future__ import annotations

import dataclasses
from random import Random
from typing import Any

from penstock.topologies.operator_api.pane_info import pane_of
from penstock.topologies.windows import END_OF_TIME_MS
from tests.conformance.case_format import Case
from tests.conformance.compare import Row, plain
from tests.conformance.drive import DriverPlayer
from tests.conformance.kinds import trigger
from tests.conformance.scenario import Setting
from tests.differential.inputs import Entry, Run
from tests.differential.judge import System
from tests.differential.kinds.triggered import KINDS, drawn
from tests.differential.known_triggers import DEPARTURES, PENDING, RUNNER_DEPARTURES
from tests.differential.outcomes import Outcome, Step

ELEMENTS_MAX = 14
RUNNER_SEEDS = 2
"""A pipeline takes many times as long as its triggers alone: so many seeds of each kind run by default."""


def runs_of(kind: str, seeds: range) -> list[Run]:
    """The runs of a kind."""
    return [_random_run(kind, seed) for seed in seeds]


def _random_run(kind: str, seed: int) -> Run:
    rng = Random(f"{kind} {seed}")
    return Run(kind, seed, [drawn(kind, rng)], _random_input(rng))


def _random_input(rng: Random) -> list[Entry]:
    """Elements, some of them late, and watermarks; the end of time last."""
    entries: list[Entry] = []
    step, late_ms = rng.choice((1, 3, 6)), rng.choice((0, 4, 15))
    now = watermark = 0
    for number in range(rng.randint(2, ELEMENTS_MAX)):
        now += rng.randint(0, step)
        entries.append({"elements": [[max(now - rng.randint(0, late_ms), 0), number]]})
        if rng.random() < 0.3:
            watermark = max(watermark, now + rng.randint(-5, 3))
            entries.append({"watermark": watermark})
    return [*entries, {"watermark": "max"}]


def play(run: Run) -> Outcome:
    """Penstock's answer, in the test driver, one element at a time."""
    case = Case(run.kind, "differential", "trigger", "portable", _data(run))
    try:
        played = DriverPlayer(1)(trigger.scenario(case, Setting()))
    except Exception as exc:  # a pipeline that is refused is an answer, too
        return Outcome([], f"{type(exc).__name__}: {exc}")
    is_global = run.nodes[0]["window"]["type"] == "global"
    steps: list[Step] = [{} for _ in run.input]
    for (index, row), headers in zip(played.outputs["out"], played.headers["out"], strict=True):
        steps[index].setdefault("out", []).append(_row(row, headers, is_global))
    return Outcome(steps, None if played.error is None else played.error[1])


def _row(row: Row, headers: Any, is_global: bool) -> Row:
    """A pane as Beam's side writes it. The global window's ends are each system's own ends of time."""
    info = pane_of(headers)
    assert info is not None
    pane = {
        "values": sorted(row["v"] or []),
        "is_first": info.is_first,
        "is_last": info.is_last,
        "timing": info.timing,
        "index": info.index,
        "nonspeculative_index": info.nonspeculative_index,
    }
    ts = "end of time" if row["ts"] >= END_OF_TIME_MS else row["ts"]
    return {"w": None if is_global else plain(row["w"]), "v": pane, "ts": ts}


def _data(run: Run) -> dict[str, Any]:
    """The run in the conformance format, without what is expected."""
    return {
        "id": f"differential.{run.kind}.{run.seed}",
        "group": "differential",
        "kind": "trigger",
        "portability": "portable",
        "mode": "per_record",
        **run.nodes[0],
        "input": run.input,
    }


def case_of(run: Run, theirs: Outcome) -> dict[str, Any]:
    """A run as a conformance case that expects what Beam put out."""
    expected = [
        {"after": index + 1, "panes": [_pane(row) for rows in step.values() for row in rows]}
        for index, step in enumerate(theirs.steps)
    ]
    return {**_data(run), "expected": expected}


def _pane(row: Row) -> dict[str, Any]:
    pane = dict(row["v"])
    timing = pane.pop("timing")
    return {"window": row["w"], "ts": row["ts"], **pane, "early": timing == "EARLY", "late": timing == "LATE"}


BEAM = System(
    name="Beam",
    project="beam",
    kinds=tuple(KINDS),
    runs_of=runs_of,
    question=lambda run: {**run.nodes[0], "input": run.input},
    play=play,
    case=case_of,
    departures=DEPARTURES,
    pending=PENDING,
    tail=1,
)


def at_the_end(run: Run, outcome: Outcome) -> Outcome:
    """All panes as if the last entry had put them out, by their windows and numbers: a runner does not say at which entry
    a pane came."""
    panes = [row for _, row in outcome.flat()]
    panes.sort(key=lambda row: (repr(row["w"]), row["v"]["index"], repr(row)))
    last: Step = {"out": panes} if panes else {}
    return Outcome([*({} for _ in run.input[1:]), last], outcome.error)


BEAM_RUNNER = dataclasses.replace(
    BEAM,
    name="Beam's direct runner",
    id="beam_runner",
    seeds=RUNNER_SEEDS,
    question=lambda run: {**run.nodes[0], "input": run.input, "runner": True},
    play=lambda run: at_the_end(run, play(run)),
    read=at_the_end,
    departures=RUNNER_DEPARTURES,
)
