"""Seeds one after the other, and what is found in them made small."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.simulation.swarm.faults import EVENTS, Fault, Plan
from tests.simulation.swarm.plans import plan_of
from tests.simulation.swarm.run import Swarm

SHRINK_RUNS_MAX = 120


@dataclasses.dataclass(frozen=True)
class Result:
    """``wrong``: the violation, or ``None``; ``trace``: the hash of all that was written and committed;
    ``kinds``: of faults that struck, and of facts that were reported."""

    seed: int
    events: int
    wrong: str | None
    trace: str = ""
    kinds: frozenset[str] = frozenset()


def run(plan: Plan) -> Result:
    """Any error that leaves the run is a finding."""
    state = random.getstate()
    with TemporaryDirectory(prefix="penstock-swarm-") as folder:
        swarm = Swarm(plan, Path(folder))
        try:
            trace = swarm.run()
        except Exception as exc:  # every error that comes out is one
            return Result(plan.seed, swarm.event, f"{type(exc).__name__}: {exc}")
        finally:
            random.setstate(state)
        kinds = {*swarm.facts.kinds, *(fault.kind for fault in swarm.struck)}
        return Result(plan.seed, swarm.event, None, trace, frozenset(kinds))


def run_seed(seed: int, events: int = EVENTS) -> Result:
    """The run of a seed."""
    return run(plan_of(seed, events))


def shrink(plan: Plan, fails: Callable[[Plan], bool] | None = None) -> Plan:
    """Delta debugging over the list of faults: as few as still fail."""
    still = fails or (lambda p: run(p).wrong is not None)
    faults, parts, runs = list(plan.faults), 2, 0
    while len(faults) > 1 and runs < SHRINK_RUNS_MAX:
        size = max(len(faults) // parts, 1)
        for start in range(0, len(faults), size):
            left = [*faults[:start], *faults[start + size :]]
            runs += 1
            if still(plan.without_most(tuple(left))):
                faults, parts = left, max(parts - 1, 2)
                break
        else:
            if size == 1:
                break
            parts = min(parts * 2, len(faults))
    return plan.without_most(tuple(faults))


def told(fault: Fault) -> str:
    """One fault in a line."""
    return ", ".join(f"{f.name}={v!r}" for f in dataclasses.fields(fault) if (v := getattr(fault, f.name)) != f.default)


def report(result: Result) -> list[str]:
    """A failing seed: what is wrong, how to run it again, and the faults that it takes."""
    plan = plan_of(result.seed)
    small = shrink(plan)
    return [
        f"seed {result.seed}: {result.wrong}",
        f"  again: python -m tests.simulation.swarm --one {result.seed}",
        f"  {plan.program}, {plan.guarantee}, {plan.workers} workers ({plan.form}), {plan.partitions} partitions",
        f"  {len(small.faults)} of {len(plan.faults)} faults are enough:",
        *(f"    {told(fault)}" for fault in small.faults),
    ]
