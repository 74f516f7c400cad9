"""A program that runs ``penstock`` commands: each line of its input is one, as JSON. Given a folder, it is held there (see
``holding``) at failpoints, and before steps that change what a job leaves behind; its executors are too, where they write
for a rescaling (``write-opened``, ``write-written``), if their Python holds them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

from penstock.state.failpoints import arm
from penstock.state.snapshots.repository import StoredSnapshots
from penstock.streams.batch.savepoint import SavepointRepository
from penstock.streams.cli.main import main as run
from penstock.streams.spark import replay_job
from penstock.streams.spark.handover import rescale
from penstock.streams.spark.lake import tables
from tests.integration.spark.holding import held

PLACES: dict[str, tuple[Any, str]] = {
    "table-writing": (tables, "_writer"),
    "table-appended": (tables, "_check_alone"),
    "table-expiring": (tables, "_expire"),
    "snapshot-publishing": (StoredSnapshots, "publish"),
    "savepoint-publishing": (SavepointRepository, "publish"),
    "savepoint-published": (SavepointRepository, "prune"),
    "replay-publishing": (replay_job, "publish"),
    "replay-published": (replay_job, "prune_replays"),
}


def hold_before(step: Callable[..., Any], arrive: Callable[[], None]) -> Callable[..., Any]:
    """The step, once ``arrive`` has returned."""

    @wraps(step)
    def waiting(*args: Any, **kwargs: Any) -> Any:
        arrive()
        return step(*args, **kwargs)

    return waiting


def held_writer(folder: str) -> Callable[[str], None]:
    """A function that is sent to executors with its code, and holds those whose Python can be held."""

    def arrive(step: str) -> None:
        hold = getattr(sys.modules.get("sitecustomize"), "held", None)
        if hold is not None:
            hold(folder, f"write-{step}")

    return arrive


def main() -> None:
    """See the module."""
    for folder in sys.argv[1:]:
        arm(partial(held, folder))
        vars(rescale)["on_write"] = held_writer(folder)
        for place, (owner, name) in PLACES.items():
            setattr(owner, name, hold_before(getattr(owner, name), partial(held, folder, place)))
    for line in sys.stdin:
        code = run(json.loads(line))
        print(f"the command ended with {code}", flush=True)


if __name__ == "__main__":
    main()
