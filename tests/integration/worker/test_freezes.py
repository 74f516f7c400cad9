"""Workers that are stopped (SIGSTOP) for longer than their session and transaction, replaced, and woken up again."""

from __future__ import annotations

import signal
import time
from pathlib import Path

from tests.integration.worker.application import Application, until

FROZEN_S = 14.0
"""Longer than a session and a transaction time-out."""


def test_woken_worker_restores_what_another_one_did_meanwhile(kafka: str, tmp_path: Path) -> None:
    """Its transaction is over, so it aborts before the group tells it that it has lost its tasks."""
    app = Application(kafka, "frozen", tmp_path)
    app.add_lines(300)
    swift = {"state_flush_interval_ms": 100}
    with app.process("first", signal_at=("sent", 3, signal.SIGSTOP), settings=swift) as first:
        app.feed("the first worker is frozen", lambda: "signal at" in first.said)
        started = time.monotonic()
        with app.process("second", settings=swift) as second:
            app.add_lines(300)
            app.wait()
            time.sleep(max(FROZEN_S - (time.monotonic() - started), 0))
            first.signal(signal.SIGCONT)
            until("the zombie is a member again", lambda: not first.alive or app.admin.group_members(app.name) == 2)
            second.stop()
        app.add_lines(300)
        app.wait()
        first.stop()
    app.assert_exact()
