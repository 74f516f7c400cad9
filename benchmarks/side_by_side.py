"""Two checkouts at the same time, over the same records: what the machine does to one, it does to the other.

Both programs run on one processor, so that the scheduler takes turns between them every few milliseconds; the broker and
the benchmark run on the others. Where a machine's host makes one run a third dearer than the next, the ratios of such
pairs spread by about 4 %, and runs one after the other by 20. Each program gets half of a processor, so rates say nothing
here; costs per record, and memory, do.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks import data
from benchmarks.bench import Bench
from benchmarks.drain import Run, drain
from benchmarks.restore import NEW_CLICKS, RESTORE_SIZES, drained
from benchmarks.steady import cost_after
from benchmarks.systems import PENSTOCK, System
from benchmarks.workloads import WORKLOADS

GUARANTEE = "ALO"
Pair = dict[str, tuple[float, float]]
"""Figures by name, here and there."""


class VoidError(Exception):
    """A run gave no figure; the message says why."""


def of_checkout(folder: Path) -> System:
    """Penstock as it is in another checkout."""
    root = folder.resolve()
    command = ["env", f"PYTHONPATH={root / '.package'}{os.pathsep}{root}", str(root / ".venv" / "bin" / "python")]
    return dataclasses.replace(
        PENSTOCK, name="penstock-there", make_ready=lambda work, peers: [*command, "-m", "benchmarks.penstock_app"]
    )


def share_out_processors() -> list[int]:
    """Keep this process, and what it starts from now on, off the last processor; that one is for the two programs. With
    one processor all run on it. Call it before the broker starts."""
    processors = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, processors[:-1] or processors)
    return processors[-1:]


def on(processors: list[int], system: System) -> System:
    """The system, bound to these processors."""
    made, listed = system.make_ready, ",".join(map(str, processors))
    return dataclasses.replace(
        system, make_ready=lambda work, peers: ["taskset", "--cpu-list", listed, *made(work, peers)]
    )


def pairs(bench: Bench, workload: str, systems: tuple[System, System], part: float) -> Generator[Pair]:
    """Pair after pair, as long as they are asked for. What the first one fills (caches, expected answers) the others find,
    so count from the second. Raises ``VoidError``."""
    if workload == "restore":
        yield from _restores(bench, systems, int(RESTORE_SIZES[-1] * part))
        return
    records = int(WORKLOADS[workload].records["penstock"] * part)
    with ThreadPoolExecutor(len(systems)) as pool:
        runs = [drain(bench, system, workload, GUARANTEE, records) for system in systems]
        while True:
            yield _figures(workload, runs)
            both = [pool.submit(drain, bench, system, workload, GUARANTEE, records) for system in systems]
            runs = [one.result() for one in both]


def _figures(workload: str, runs: list[Run]) -> Pair:
    if void := "; ".join(f"{run.system}: {run.void}" for run in runs if run.void):
        raise VoidError(f"{workload}: {void}")
    here, there = runs
    return {
        "CPU s/M": (cost_after(here.samples, here.records), cost_after(there.samples, there.records)),
        "peak MB": (here.peak_bytes / 1e6, there.peak_bytes / 1e6),
        "MB at rest": (here.rest_bytes / 1e6, there.rest_bytes / 1e6),
    }


@dataclasses.dataclass
class _Restored:
    """An application whose changelog is full; each restore adds a few clicks, and waits for their commit."""

    bench: Bench
    system: System
    records: int
    application: str = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.application = self.bench.new_application(self.system, "keyed-count")

    def fill(self) -> None:
        """Run it over all clicks."""
        self.bench.log.create(f"{self.application}-out")
        self.bench.log.load("clicks", self.records, f"{self.application}-in")
        self._drain()

    def restore(self) -> float:
        """Lose the state, and come back: CPU-seconds per million clicks of the whole process, its start among them."""
        shutil.rmtree(self.bench.state_folder(self.application), ignore_errors=True)
        at_ms = self.bench.log.base_ms + self.records // data.RECORDS_PER_MS
        self.bench.log.append(f"{self.application}-in", map(data.user_key, range(NEW_CLICKS)), at_ms)
        self.records += NEW_CLICKS
        return self._drain() / self.records * 1e6

    def _drain(self) -> float:
        why, _seconds, cpu_s = drained(self.bench, self.system, GUARANTEE, self.application, self.records)
        if why is not None:
            raise VoidError(f"restore: {self.system.name}: {why}")
        return cpu_s


def _restores(bench: Bench, systems: tuple[System, System], records: int) -> Generator[Pair]:
    both = [_Restored(bench, system, records) for system in systems]
    try:
        for one in both:
            one.fill()
        with ThreadPoolExecutor(len(both)) as pool:
            while True:
                here, there = (made.result() for made in [pool.submit(one.restore) for one in both])
                yield {"CPU s/M": (here, there)}
    finally:
        for one in both:
            bench.clean(one.application)
