"""One random run: an application under faults for a while; then all heals, the output converges, and is judged."""

from __future__ import annotations

import dataclasses
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from tests.chaos.cluster import ChaosCluster
from tests.chaos.memory import Growth, MemorySamples
from tests.chaos.oracle import Verdict
from tests.chaos.random_faults import RandomFaults
from tests.chaos.restores import restores
from tests.chaos.scene import Scene
from tests.chaos.workers import SESSION_TIMEOUT_MS, facts_of

WORKERS = (("w0", "own0"), ("w1", "own1"), ("w2", "shared"), ("w3", "shared"))
"""Names and state folders: two workers have a folder of their own, two share one."""
SETTLE_S = SESSION_TIMEOUT_MS / 1000 + 2
"""So long workers that were woken last may write what they should not."""
STALLED_S = 180.0
"""An output that has not grown for so long behind the last fault will not converge."""


@dataclasses.dataclass
class RunResult:
    """What one run met and what came out of it."""

    seed: int
    guarantee: str
    faults: Counter[str]
    verdict: Verdict
    restores: Counter[str]
    needless: list[str]
    ended: list[str]
    statuses: dict[str, int]
    converged_s: float | None
    memory: Growth | None

    @property
    def right(self) -> bool:
        """Whether the guarantee held."""
        exactly = self.guarantee == "exactly_once"
        return self.converged_s is not None and (self.verdict.exact() if exactly else self.verdict.nothing_lost())

    def as_json(self) -> dict[str, Any]:
        """For a line of a file of results."""
        counters = {"faults": dict(self.faults), "restores": dict(self.restores)}
        return {**vars(self), **counters, "verdict": vars(self.verdict), "right": self.right}


def random_run(
    cluster: ChaosCluster,
    seed: int,
    guarantee: str,
    seconds: float,
    folder: Path,
    say: Callable[[str], None],
    weights: Mapping[str, int] | None = None,
    spared: Collection[str] = (),
    further: Mapping[str, Any] | None = None,
) -> RunResult:
    """Run once. The folder is removed if all was right.

    ``spared``: workers that are never killed. ``further``: settings of all workers, over those that the seed draws.
    """
    rng = random.Random(seed)
    settings = {
        "commit_interval_ms": rng.choice((50, 100, 200, 400)),
        "state_flush_interval_ms": rng.choice((100, 1_000, 3_000)),
        "batch_max_records": rng.choice((20, 200, 2_000)),
        **(further or {}),
    }
    with Scene(cluster, f"run{seed}", folder, guarantee, seed=seed, **settings) as scene:
        for name, state in WORKERS:
            scene.worker(name, state)
        scene.await_progress(120)
        faults = RandomFaults(scene, seed, say, weights, spared)
        with scene.writer, MemorySamples(scene.workers) as memory:
            faults.run(seconds)
        healed = time.monotonic()
        verdict = _converged(scene)
        converged_s = time.monotonic() - healed if verdict.nothing_lost() else None
        time.sleep(SETTLE_S)
        statuses = scene.stop()
        hidden = _await_no_open_transaction(scene)
        verdict = scene.verdict()
        for place, offsets in hidden.items():
            verdict.note(f"{place}: {offsets} offsets behind an open transaction")
        counts, needless = restores({state: _facts(scene, state) for state in {state for _, state in WORKERS}})
        result = RunResult(
            seed,
            guarantee,
            faults.happened,
            verdict,
            counts,
            needless,
            faults.ended,
            statuses,
            converged_s,
            memory.longest(),
        )
        if not result.right:
            (folder / "report.txt").write_text(scene.report(verdict))
    if result.right and not needless and not faults.ended:
        shutil.rmtree(folder, ignore_errors=True)
    return result


def _converged(scene: Scene) -> Verdict:
    """The first verdict in which nothing is missing, or the last one if nothing more has come out for ``STALLED_S``."""
    least, since = -1, time.monotonic()
    while True:
        verdict = scene.verdict()
        missing = verdict.lost + verdict.stale
        if missing != least:
            least, since = missing, time.monotonic()
        if verdict.nothing_lost() or time.monotonic() - since > STALLED_S:
            return verdict
        time.sleep(1.0)


def _await_no_open_transaction(scene: Scene) -> dict[tuple[str, int], int]:
    """What is still hidden from readers when no worker runs and every transaction has timed out."""
    deadline = time.monotonic() + 30
    while (hidden := scene.reader.hidden(scene.owned())) and time.monotonic() < deadline:
        time.sleep(1.0)
    return hidden


def _facts(scene: Scene, state: str) -> list[dict[str, Any]]:
    names = [name for name, of in WORKERS if of == state]
    return sorted((f for name in names for f in facts_of(scene.folder / f"{name}.log")), key=lambda f: str(f["time"]))
