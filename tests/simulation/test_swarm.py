"""Hundreds of seeds of the swarm, and that a seed always stands for the same run."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.mutants import MUTANTS, PAGE, Mutant
from tests.simulation.swarm.hunt import report, run_seed, shrink
from tests.simulation.swarm.losses import BY_KIND
from tests.simulation.swarm.plans import plan_of

SEEDS = 500
SHARDS = 2
REACHED = (
    "SnapshotUsed",
    "SnapshotRefused",
    "StoreQuarantined",
    "RestoreStarted",
    "snapshot",
    "compact",
    "twin",
    "static_twin",
    "make_again",
    "elect",
)
"""Faults that must strike, and facts that workers must report, in at least ``SEEDS_EACH`` seeds of a shard."""
SEEDS_EACH = 8


@pytest.mark.parametrize("shard", range(SHARDS))
def test_no_seed_breaks_an_invariant(shard: int) -> None:
    reached = Counter[str]()
    for seed in range(shard, SEEDS, SHARDS):
        result = run_seed(seed)
        assert result.wrong is None, "\n".join(report(result))
        assert result.events >= plan_of(seed).events or result.kinds & BY_KIND.keys()
        reached.update(result.kinds)
    assert not {kind: reached[kind] for kind in REACHED if reached[kind] < SEEDS_EACH}, "seeds that reach a feature"


def test_a_seed_gives_the_same_trace_each_time() -> None:
    traces = [run_seed(seed).trace for seed in range(20)]
    assert [run_seed(seed).trace for seed in range(20)] == traces
    assert len(set(traces)) == 20


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name)
def test_each_mutant_can_be_planted_and_taken_out(mutant: Mutant) -> None:
    """The product's lines that they change must still be there."""
    before = vars(mutant.owner)[mutant.function]
    take_out = mutant.plant()
    assert vars(mutant.owner)[mutant.function] is not before
    take_out()
    assert vars(mutant.owner)[mutant.function] is before


def test_the_page_has_a_row_for_each_mutant() -> None:
    rows = [line.split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| ")][2:]
    assert [row[0].removeprefix("| ") for row in rows] == [m.name for m in MUTANTS]


def test_faults_that_do_not_matter_are_left_out_of_a_report() -> None:
    plan = next(p for p in map(plan_of, range(100)) if len(p.faults) > 15)
    needed = {plan.faults[3], plan.faults[11]}
    assert set(shrink(plan, lambda p: needed <= set(p.faults)).faults) == needed
