"""The workloads on Penstock: ``python -m benchmarks.penstock_app WORKLOAD``; orders come from the environment.

``THREADS`` is the number of worker processes; they share the state folder. ``EMISSION`` is ``per_commit`` unless told
otherwise, as Kafka Streams with its record cache; ``FUNCTIONS`` is ``expressions`` unless it says ``rows``.
``PROFILE`` names a file for a profile of the run loop.
"""

from __future__ import annotations

import cProfile
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import cast

from benchmarks import data
from benchmarks.workloads import WORKLOADS, Functions, Orders
from penstock.streams.worker.load_settings import load_settings
from penstock.streams.worker.settings import WorkerSettings
from penstock.streams.worker.worker import Worker
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operator_api.operator import Emission

_CHILD = "PENSTOCK_BENCHMARK_CHILD"


def topology(workload: str) -> Topology:
    """The workload's topology, reading and writing the benchmark's topics."""
    if workload not in WORKLOADS:
        raise SystemExit(f"no such workload: {workload}")
    source, table, out = (os.environ[name] for name in ("TOPIC_IN", "TOPIC_TABLE", "TOPIC_OUT"))
    emission = cast(Emission, os.environ.get("EMISSION", "per_commit"))
    window_ms = int(os.environ.get("WINDOW_MS", data.WINDOW_MS))
    functions = cast(Functions, os.environ.get("FUNCTIONS", "expressions"))
    return WORKLOADS[workload].topology(Orders(source, table, out, emission, window_ms, functions))


def settings() -> WorkerSettings:
    """Defaults and what ``PENSTOCK_…`` variables say, with the benchmark's guarantee, commit interval and codec."""
    exactly_once = os.environ["GUARANTEE"] == "exactly_once_v2"
    return load_settings(
        application_id=os.environ["APP_ID"],
        bootstrap_servers=os.environ["BOOTSTRAP"],
        state_dir=os.environ["STATE_DIR"],
        guarantee="exactly_once" if exactly_once else "at_least_once",
        commit_interval_ms=int(os.environ["COMMIT_MS"]),
        producer={"compression.type": "lz4"},
    )


def work(workload: str) -> None:
    """Run one worker in this process until SIGTERM."""
    run_until_stopped(Worker(topology(workload), settings()))


def run_until_stopped(worker: Worker) -> None:
    """Run a worker until SIGTERM, under a profiler if ``PROFILE`` names a file for it."""
    signal.signal(signal.SIGTERM, lambda *_: worker.request_stop())
    if path := os.environ.get("PROFILE"):
        profile = cProfile.Profile()
        profile.runcall(worker.run)
        profile.dump_stats(path)
    else:
        worker.run()


def in_processes(work: Callable[[], None]) -> None:
    """Do the work here, or in ``THREADS`` processes below this one, started as this one was; the first that fails ends them
    all."""
    processes = int(os.environ["THREADS"])
    if processes == 1 or _CHILD in os.environ:
        work()
        return
    command = [sys.executable, *sys.orig_argv[1:]]
    children = [subprocess.Popen(command, env={**os.environ, _CHILD: "1"}) for _ in range(processes)]

    def stop(*_: object) -> None:
        for child in children:
            child.terminate()

    signal.signal(signal.SIGTERM, stop)
    sys.exit(max(abs(child.wait()) for child in children))


if __name__ == "__main__":
    in_processes(lambda: work(sys.argv[1]))
