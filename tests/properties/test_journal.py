"""Live runs under random arrival, with clock, commits and crashes: the journal lets replay and oracle repeat them."""

from __future__ import annotations

import random

import pytest

from penstock.streams.task import journal
from tests.properties import programs as p
from tests.properties.live import LiveRun, Rows, Saved, replayed, told_by_the_journal, with_gaps
from tests.properties.oracle import Oracle
from tests.properties.running import LETTERS, random_inputs
from tests.properties.test_engine import check_letters, split_by_connection, stored

SEEDS = 350
BLOCKS = 5


@pytest.mark.parametrize("block", range(BLOCKS))
def test_replay_by_the_journal_repeats_the_live_run(block: int) -> None:
    cuts = firings = crashes = 0
    for seed in range(block, SEEDS, BLOCKS):
        live = check_seed(seed)
        cuts += sum(isinstance(e, journal.Cut) for e in live.runner.journal)
        firings += sum(isinstance(e, journal.ClockFiring) for e in live.runner.journal)
        crashes += live.crashes
    assert min(cuts, firings, crashes) > 10, "the runs were too tame to show anything"


def check_seed(seed: int) -> LiveRun:
    """One program, its largest part, live, replayed from the start and from a commit, and told to the oracle."""
    rng = random.Random(f"live {seed}")
    program = split_by_connection(p.random_program(rng, wall=True, parts=1))
    part = max(range(program.parts), key=lambda at: sum(n.part == at for n in program.nodes))
    topology = p.topology_of(program)
    topics = [n.args["topic"] for n in program.nodes if n.part == part and n.kind in ("stream", "table")]
    log: Rows = {t: with_gaps(rng, random_inputs(rng, t, rng.randint(0, 50), bad_bytes=True)) for t in topics}
    number = next(
        s.number for s in topology.subtopologies if topics[0] in [topology.source(n).topic for n in s.sources]
    )
    live = LiveRun(rng, topology, number, log)
    try:
        beginning = Saved(dict(live.runner.committed), {}, 0, {})
        live.run()
        entries = live.runner.journal
        result = live.runner.finish()
        for at in (beginning, rng.choice(live.saved)):
            outputs, stores = replayed(rng, topology, number, log, entries, rng.choice((1, 2, 7, 10_000)), at)
            expected = {t: rows[at.written.get(t, 0) :] for t, rows in result.outputs.items()}
            assert outputs == {t: rows for t, rows in expected.items() if rows}
            assert stores == result.stores
        oracle = Oracle(program, part)
        told_by_the_journal(oracle, log, entries)
        assert {t: rows for t, rows in result.outputs.items() if t != LETTERS} == oracle.written
        check_letters(result, oracle)
        assert {n: stored(n, s) for n, s in result.stores.items()} == {
            n: {k: s.get(k) for k in s.rows} for n, s in oracle.stores.items()
        }
    except BaseException as exc:
        exc.add_note(f"seed {seed}\n{program}\njournal {live.runner.journal}")
        raise
    return live
