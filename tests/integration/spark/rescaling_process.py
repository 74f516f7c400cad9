"""A rescaling, or a worker, of the test's topology in a process of its own, which may kill itself after a step."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

from penstock.streams.spark.handover import rescale
from penstock.streams.spark.handover.bootstrap import Predecessor
from penstock.streams.spark.session import SparkSettings
from penstock.streams.worker.settings import WorkerSettings
from penstock.streams.worker.worker import Worker
from tests.integration.spark.topologies import resized


def main(order: dict[str, Any]) -> None:
    """``settings``: of the workers. With ``replaces``, an application id, rescale, and die after the step ``kill_at``."""
    settings = WorkerSettings(**order["settings"])
    topology = resized(order["prefix"], order["suffix"])
    if "replaces" not in order:
        worker = Worker(topology(), settings)
        signal.signal(signal.SIGTERM, lambda *_: worker.request_stop())
        worker.run()
        return

    def die(step: str) -> None:
        if step == order["kill_at"]:
            os.kill(os.getpid(), signal.SIGKILL)

    rescale.on_step = die
    old = Predecessor(resized(order["prefix"]), order["replaces"])
    conf = {"spark.sql.shuffle.partitions": "2", "spark.sql.adaptive.enabled": "false"}
    session = SparkSettings(master="local[2]", conf=conf)
    rescale.rescale(topology, settings, replaces=old, partitions=order["partitions"], session=session)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
