"""Windows of every clock in live runs with crashes: the journal lets a replay repeat outputs and stores."""

from __future__ import annotations

import random
from typing import Any

import pytest

from penstock.streams.task import journal
from penstock.topologies import windows as w
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operator_api.watermark_strategies import bounded_out_of_orderness
from penstock.topologies.windows import policies
from tests.properties.live import LiveRun, Rows, Saved, replayed, with_gaps
from tests.properties.running import random_inputs

SEEDS = 60


def random_topology(rng: random.Random) -> Topology:
    """Two topics merged, some windows over them, in each of the times."""
    time: dict[str, Any] = rng.choice(({"time": "processing"}, {"grace": 3}))
    by_time = {"time": "processing"} if "time" in time else {}
    size = rng.choice((20, 60)) if by_time else 12
    policy = policies.time(size)
    windows = rng.choice(
        (
            w.tumbling(size, **time),
            w.hopping(size, size // 3, **time),
            w.custom(lambda key, value, ts: [(ts - value["n"], ts + size)], max_size=size + 50, **time),
            w.evicting(policies.count(3), trigger=policy, **by_time),
            w.evicting(policy, **by_time),
            w.evicting(policy, trigger=policy, **by_time),
        )
    )
    strategy = bounded_out_of_orderness(4, idle=100) if rng.random() < 0.4 else None
    builder = StreamsBuilder("t", key=str, value=dict)
    both = builder.stream("a", watermark=strategy).merge(builder.stream("b", watermark=strategy))
    grouped = both.group_by_key().windowed_by(windows)
    emission: Any = rng.choice(("on_close", "on_close", "every_update"))
    how: dict[str, Any] = rng.choice(({}, {"inverse": lambda a, b: a - b}))
    numbers = grouped.aggregate(
        int, lambda key, value, acc: acc + value["n"], value=int, emission=emission, merge=lambda a, b: a + b, **how
    )
    numbers.to("out")
    return builder.build()


@pytest.mark.parametrize("block", range(3))
def test_replay_repeats_live_windows(block: int) -> None:
    firings = outputs = 0
    for seed in range(block, SEEDS, 3):
        rng = random.Random(f"windows {seed}")
        topology = random_topology(rng)
        log: Rows = {t: with_gaps(rng, random_inputs(rng, t, rng.randint(5, 50), bad_bytes=False)) for t in ("a", "b")}
        live = LiveRun(rng, topology, 0, log)
        beginning = Saved(dict(live.runner.committed), {}, 0, {})
        live.run()
        entries = live.runner.journal
        result = live.runner.finish()
        for at in (beginning, rng.choice(live.saved)):
            again, stores = replayed(rng, topology, 0, log, entries, rng.choice((1, 2, 7, 10_000)), at)
            expected = {t: rows[at.written.get(t, 0) :] for t, rows in result.outputs.items()}
            assert again == {t: rows for t, rows in expected.items() if rows}, f"seed {seed}"
            assert stores == result.stores, f"seed {seed}"
        firings += sum(isinstance(e, journal.ClockFiring) for e in entries)
        outputs += sum(map(len, result.outputs.values()))
    assert min(firings, outputs) > 10, "the runs were too tame to show anything"
