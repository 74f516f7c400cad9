"""The worker process of the tests: as ``penstock worker``, but it sends itself a signal at the nth of a commit's steps."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

from penstock.state.recovery.restore_decision import RestoreProgress
from penstock.streams.worker.load_settings import load_settings
from penstock.streams.worker.worker import Worker
from penstock.topologies.examples import word_count
from penstock.topologies.graph.topology import Topology


def main(order: dict[str, Any], topology: Topology) -> None:
    """Run until SIGTERM or an error."""
    at = order["signal_at"]
    left = at[1] if at else 0

    def on_step(step: str) -> None:
        nonlocal left
        if at and step == at[0]:
            left -= 1
            if left == 0:
                print(f"signal at {step}", flush=True)
                os.kill(os.getpid(), at[2])

    def on_progress(task: Any, store: str, progress: RestoreProgress) -> None:
        if progress.done:
            print(f"restored {store} of {task}: {progress.records} records", flush=True)

    worker = Worker(
        topology,
        load_settings(env={}, **order["settings"]),
        partitions=order["partitions"],
        on_step=on_step,
        on_progress=on_progress,
    )
    signal.signal(signal.SIGTERM, lambda *_: worker.request_stop())
    print("ready", flush=True)
    worker.run()


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    main(given, word_count.build(given["source"], given["output"]))
