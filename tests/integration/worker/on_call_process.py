"""A worker process whose log is looked at. It refuses one commit when the file ``abort`` of its folder is there."""

from __future__ import annotations

import json
import logging
import signal
import sys
from pathlib import Path
from typing import Any

from penstock.streams.events.log_format import JsonFormatter, set_up
from penstock.streams.events.measurements import CommitStep
from penstock.streams.ports.log import AbortableError
from penstock.streams.worker.load_settings import load_settings
from penstock.streams.worker.worker import Worker
from penstock.topologies.examples import word_count


def main(order: dict[str, Any]) -> None:
    """Run until SIGTERM or an error; the log goes to standard error for people, and as JSON to a file."""
    set_up("debug", "human")
    as_json = logging.FileHandler(order["json_log"])
    as_json.setFormatter(JsonFormatter())
    logging.getLogger().addHandler(as_json)
    asked = Path(order["abort"])

    def on_step(step: CommitStep) -> None:
        if step == "flushed" and asked.exists():
            asked.unlink()
            raise AbortableError("the test refuses this commit")

    worker = Worker(
        word_count.build(order["source"], order["output"]), load_settings(env={}, **order["settings"]), on_step=on_step
    )
    signal.signal(signal.SIGTERM, lambda *_: worker.request_stop())
    worker.run()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
