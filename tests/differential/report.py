"""What a comparison prints: a line for each kind, the sums, and every unexplained difference as a case."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from tests.conformance.compare import Row, shown
from tests.differential.judge import Difference, System, Verdict
from tests.differential.outcomes import Outcome, Step

COLUMNS = ("seeds", "records", "identical", "departures", "pending", "unexplained")


def lines(system: System, verdicts: Sequence[Verdict], *, every_kind: bool) -> Iterator[str]:
    """The report, differences last."""
    width = max([len(v.kind) for v in verdicts] + [len("all kinds (000)")])
    yield f"Penstock against {system.name}"
    yield f"{'kind':{width}}" + "".join(f"{name:>13}" for name in COLUMNS)
    for verdict in verdicts:
        if every_kind or verdict.identical < verdict.seeds:
            yield f"{verdict.kind:{width}}" + "".join(f"{n:>13,}" for n in _numbers(verdict))
    sums = [sum(column) for column in zip(*map(_numbers, verdicts), strict=True)]
    yield f"{f'all kinds ({len(verdicts)})':{width}}" + "".join(f"{n:>13,}" for n in sums)
    yield from _departures(system, verdicts)
    for verdict in verdicts:
        for difference in verdict.unexplained:
            yield from difference_lines(system, difference)


def _numbers(verdict: Verdict) -> tuple[int, ...]:
    departures = sum(verdict.departures.values())
    return (
        verdict.seeds,
        verdict.records,
        verdict.identical,
        departures,
        verdict.pending,
        verdict.unexplained_count,
    )


def _departures(system: System, verdicts: Sequence[Verdict]) -> Iterator[str]:
    met = sum((v.departures for v in verdicts), Counter())
    if met:
        yield "departures:"
    for name, runs in met.most_common():
        causes = {d.cause for d in system.departures if d.name in name.split(" + ")}
        yield f"  {runs:>6,}  {name} ({', '.join(sorted(causes))})"


def difference_lines(system: System, difference: Difference) -> Iterator[str]:
    """A difference: the input, what both sides put out, and the case."""
    run = difference.run
    yield f"\nunexplained: {run.kind}, seed {run.seed}, smallest input:"
    for index, entry in enumerate(run.input):
        yield f"  {json.dumps(entry)}"
        yield f"      {system.name:14} {_step(difference.theirs, index)}"
        yield f"      {'Penstock':14} {_step(difference.ours, index)}"
    yield json.dumps(system.case(run, difference.theirs))


def _step(outcome: Outcome, index: int) -> str:
    if index >= len(outcome.steps):
        return f"failed: {outcome.error}" if index == len(outcome.steps) else ""
    step: Step = outcome.steps[index]
    return "; ".join(f"{sink}: {', '.join(map(_shown, rows))}" for sink, rows in step.items()) or "nothing"


def _shown(row: Row) -> str:
    return shown({**row, "v": _brief(row["v"])})


def _brief(value: Any) -> Any:
    """A match by the numbers of its events."""
    if isinstance(value, dict) and value and all(isinstance(v, list) for v in value.values()):
        return {stage: [event["id"] for event in events] for stage, events in value.items()}
    return value


def unseen(system: System, verdicts: Sequence[Verdict]) -> list[str]:
    """Departures that no run showed: what nobody has seen is not known."""
    met = {part for v in verdicts for name in v.departures for part in name.split(" + ")}
    return [d.name for d in system.departures if d.name not in met]
