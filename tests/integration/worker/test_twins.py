"""Two processes that pass for one: the older ends at once with the reason, or both live under names of their own."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from penstock.state.errors import UserError
from penstock.streams.worker.worker import Worker
from tests.integration.worker.application import UNDISTURBED, Application, until


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_a_twin_of_a_static_member_ends_the_older_one_with_the_reason(
    kafka: str, tmp_path: Path, guarantee: str
) -> None:
    app = Application(kafka, "static-twins", tmp_path, guarantee)  # type: ignore[arg-type]  # one of the guarantees
    first = Worker(app.topology, app.settings("one", group_instance_id="same")).start()
    app.add_lines(100)
    app.wait()
    second = Worker(app.topology, app.settings("two", group_instance_id="same")).start()
    until("the older one has ended", lambda: not first.running)
    with pytest.raises(UserError, match="another process has the same group_instance_id"):
        first.stop()
    app.add_lines(100)
    app.wait()
    assert second.running
    second.stop()
    if guarantee == "exactly_once":
        app.assert_exact()


def test_a_copied_state_folder_is_another_workers(kafka: str, tmp_path: Path) -> None:
    """As of a volume that was cloned: neither fences the other."""
    app = Application(kafka, "copied", tmp_path)
    first = Worker(app.topology, app.settings("one", **UNDISTURBED)).start()
    app.add_lines(100)
    app.wait()
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    second = Worker(app.topology, app.settings("two", **UNDISTURBED)).start()
    workers = (first, second)
    until("both have tasks", lambda: all(w.runtime is not None and w.runtime.tasks for w in workers))
    until_s = time.monotonic() + 5.0
    while time.monotonic() < until_s:
        app.add_lines(10)
        time.sleep(0.1)
    app.wait()
    fences = [(w.runtime.rejoining.losses, w.runtime.tasks) for w in workers if w.runtime is not None]
    assert [losses for losses, _ in fences] == [0, 0]
    for worker in workers:
        worker.stop()
    app.assert_exact()
