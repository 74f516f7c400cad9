"""Brokers that are away for a while: whatever began meanwhile waits, says so in a line, and goes on by itself."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from penstock.state.errors import RetriableError
from penstock.streams.kafka.embedded import EmbeddedKafka
from tests.integration.worker.application import LIMIT_S, Application, until
from tests.integration.worker.test_worker import children_of, supervised

AWAY_S = 15.0
"""Longer than a worker that starts used to wait for a first answer."""


def waits(said: Path) -> int:
    """How often workers have said that they wait for their brokers when they started."""
    return said.read_text().count("no broker answers")


def test_supervised_workers_outlive_their_brokers_absence(tmp_path: Path) -> None:
    """One is killed meanwhile and started again into the silence; the other was at work."""
    with EmbeddedKafka() as cluster:
        app = Application(cluster.bootstrap_servers, "outage", tmp_path)
        said = tmp_path / "said"
        supervisor = supervised(app, said)
        try:
            app.add_lines(300)
            app.wait()
            until("both are members", lambda: app.admin.group_members(app.name) == 2)
            at_first = waits(said)
            os.kill(cluster.pid(0), signal.SIGSTOP)
            os.kill(children_of(supervisor.pid)[0], signal.SIGKILL)
            until("it waits", lambda: waits(said) > at_first)
            time.sleep(AWAY_S)
            assert supervisor.poll() is None, said.read_text()
            os.kill(cluster.pid(0), signal.SIGCONT)
            app.add_lines(300)
            app.wait()
            until("both are members again", lambda: app.admin.group_members(app.name) == 2)
            before = waits(said)
            os.kill(cluster.pid(0), signal.SIGSTOP)
            os.kill(children_of(supervisor.pid)[0], signal.SIGKILL)
            until("it waits again", lambda: waits(said) > before)
            supervisor.send_signal(signal.SIGTERM)
            supervisor.wait(LIMIT_S)
        finally:
            os.kill(cluster.pid(0), signal.SIGCONT)
            if supervisor.poll() is None:
                supervisor.terminate()
                supervisor.wait()
        text = said.read_text()
        assert "Traceback" not in text, text
        grave = [line for line in text.splitlines() if " INFO " not in line]
        assert len(grave) <= 30, text

        def exact() -> bool:
            """Whether the answers are right; a broker that was frozen may not know its topics at once."""
            try:
                app.assert_exact()
            except RetriableError:
                return False
            return True

        until("the brokers answer the reader", exact)
