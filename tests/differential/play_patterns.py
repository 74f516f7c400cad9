"""Penstock's side of patterns: a described pattern on the test driver, one event at a time."""

from __future__ import annotations

import dataclasses
import functools
import json
from typing import Any

from tests.conformance.case_format import Case
from tests.conformance.compare import plain
from tests.conformance.drive import DriverPlayer
from tests.conformance.kinds import cep
from tests.conformance.scenario import Scenario, Setting
from tests.differential.inputs import Run
from tests.differential.kinds.patterns import CONDITIONS
from tests.differential.outcomes import Outcome, Step
from tests.differential.penstock_side import TOPOLOGIES_KEPT

MARK = "watermark"


def play(run: Run) -> Outcome:
    """Penstock's answer, in the test driver, one record at a time."""
    try:
        played = DriverPlayer(1)(_scenario(run))
    except Exception as exc:  # a pattern that is refused is an answer, too
        return Outcome([], f"{type(exc).__name__}: {exc}")
    steps: list[Step] = [{} for _ in run.input]
    for sink, rows in played.outputs.items():
        for index, row in rows:
            steps[index].setdefault(sink, []).append({"v": plain(row["v"]), "ts": row["ts"]})
    return Outcome(steps, None if played.error is None else played.error[1])


def _scenario(run: Run) -> Scenario:
    data = case_data(run)
    by_time = any(entry["event"] == MARK for entry in run.input)
    built = _built(
        json.dumps({**data, "id": "differential", "input": [{"event": MARK, "ts": "max"}] if by_time else []})
    )
    return dataclasses.replace(built, steps=cep.steps(_case(data), *built.inputs))


@functools.lru_cache(TOPOLOGIES_KEPT)
def _built(data: str) -> Scenario:
    """A pattern's topology, without an input."""
    return cep.scenario(_case(json.loads(data)), Setting())


def _case(data: dict[str, Any]) -> Case:
    return Case(data["id"], data["group"], data["kind"], data["portability"], data)


def case_data(run: Run) -> dict[str, Any]:
    """The run in the conformance format, without what is expected."""
    return {
        "id": f"differential.{run.kind}.{run.seed}",
        "group": "differential",
        "kind": "cep",
        "portability": "portable",
        "mode": "final",
        "pattern": _in_words(run.nodes[0]["pattern"]),
        "input": run.input,
    }


def _in_words(spec: Any) -> Any:
    if isinstance(spec, list):
        return [_in_words(s) for s in spec]
    if not isinstance(spec, dict):
        return spec
    return {n: CONDITIONS[v] if n in ("where", "until") else _in_words(v) for n, v in spec.items()}
