"""Brokers that are away for long, for real: ``python -m tests.integration.worker.absence [--minutes N]``.

Supervised workers count words; the broker is killed, and started again after that time. One of the workers is killed and
started again into the silence. Prints what the workers logged, and ends with an error unless they went on by themselves,
with exact answers. The short form is in ``test_outages.py``.
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import time
from collections import Counter
from pathlib import Path

from penstock.streams.kafka.admin import KafkaAdmin
from penstock.streams.kafka.client_config import admin_config
from penstock.streams.kafka.embedded import EmbeddedKafka
from tests.integration.worker.application import LIMIT_S, Application, until
from tests.integration.worker.test_worker import children_of, supervised


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="absence-") as name, EmbeddedKafka() as cluster:
        folder = Path(name)
        app = Application(cluster.bootstrap_servers, "absence", folder)
        said = folder / "said"
        supervisor = supervised(app, said)
        try:
            app.add_lines(300)
            app.wait()
            until("both are members", lambda: app.admin.group_members(app.name) == 2)
            print(f"{time.strftime('%H:%M:%S')} the broker is killed", flush=True)
            cluster.kill_broker(0)
            time.sleep(20)
            os.kill(children_of(supervisor.pid)[0], signal.SIGKILL)
            time.sleep(options.minutes * 60 - 20)
            assert supervisor.poll() is None, said.read_text()
            cluster.start_broker(0)
            back_s = time.monotonic()
            print(f"{time.strftime('%H:%M:%S')} the broker is back", flush=True)
            app.admin = KafkaAdmin(admin_config(cluster.bootstrap_servers, {}))  # the old one has lost its coordinator
            app.add_lines(300)
            app.wait()
            print(f"all is counted {time.monotonic() - back_s:.1f} s later", flush=True)
            until("both are members again", lambda: app.admin.group_members(app.name) == 2)
            supervisor.send_signal(signal.SIGTERM)
            print(f"stopped with {supervisor.wait(LIMIT_S)}", flush=True)
        finally:
            text = said.read_text()
            print(text)
            if supervisor.poll() is None:
                supervisor.terminate()
                supervisor.wait()
        levels = Counter(line.split()[2] for line in text.splitlines() if len(line.split()) > 2)
        print(f"{len(text.splitlines())} lines: {dict(levels)}")
        assert "Traceback" not in text
        app.assert_exact()
        print("exact")


if __name__ == "__main__":
    main()
