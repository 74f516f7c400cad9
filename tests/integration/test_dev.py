"""``penstock dev`` as a user runs it: from a new project to its outputs, a change of the code, and Ctrl-C."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer

from penstock.streams.cli.client_options import BOOTSTRAP_ENV
from penstock.streams.cli.new import make_project
from penstock.streams.kafka.embedded.paths import cache_dir
from tests.integration.worker.application import until

LIMIT_S = 180.0


def without_clusters(folder: Path) -> Path:
    """A cache folder with what was downloaded, that knows no cluster which the user runs: ``dev`` would take that one."""
    folder.mkdir()
    for kept in cache_dir().iterdir():
        if kept.name != "clusters":
            (folder / kept.name).symlink_to(kept)
    return folder


def test_new_project_runs_at_once_follows_its_code_and_stops_whole(tmp_path: Path, interruptible: None) -> None:
    project = make_project(tmp_path, "shop")
    environment = {name: value for name, value in os.environ.items() if name != BOOTSTRAP_ENV}
    environment["PENSTOCK_CACHE"] = str(without_clusters(tmp_path / "cache"))
    command = [sys.executable, "-m", "penstock.streams.cli.main", "dev", "shop:topology", "--config", "penstock.toml"]
    shown, said = tmp_path / "outputs.txt", tmp_path / "said.txt"
    with shown.open("w") as out, said.open("w") as err:
        process = subprocess.Popen(command, cwd=project, env=environment, stdout=out, stderr=err)
        try:
            until(
                "Kafka and topics",
                lambda: "application shop reads shop-events; writes shop-counts" in said.read_text(),
                LIMIT_S,
            )
            servers = re.findall(r"Kafka answers at (\S+);", said.read_text())[0]
            producer = Producer({"bootstrap.servers": servers, "log_level": 0})
            write(producer, "view")
            until("an output", lambda: "shop-counts ann 1\n" in shown.read_text(), LIMIT_S)
            module = project / "shop.py"
            more = 'events.group_by_key().count(name="all").to_stream().to("shop-all", value=int)\ntopology = '
            text = module.read_text().replace('!= "test"', '!= "view"')
            rewrite(module, text.replace("topology = ", more))
            until("the change", lambda: said.read_text().count("reads shop-events") >= 2, LIMIT_S)
            assert "shop.py changed; starting the worker again" in said.read_text()
            write(producer, "test")
            until("what the new code counts", lambda: "shop-counts ann 2\n" in shown.read_text(), LIMIT_S)
            until("what the new store counts", lambda: "shop-all ann 1\n" in shown.read_text(), LIMIT_S)
            rewrite(module, "def (")
            until("the mistake", lambda: "ended with status 2" in said.read_text(), LIMIT_S)
            assert "SyntaxError" in said.read_text()
            process.send_signal(signal.SIGINT)
            assert process.wait(LIMIT_S) == 0
        finally:
            process.kill()
            process.wait()
    assert said.read_text().splitlines()[-1] == "penstock dev: everything is stopped"
    host, port = servers.split(":")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), 5)


def rewrite(module: Path, text: str) -> None:
    """Change a file at once: nobody reads it half written."""
    new = module.with_suffix(".new")
    new.write_text(text)
    new.replace(module)


def write(producer: Producer, kind: str) -> None:
    """One event of Ann's."""
    producer.produce("shop-events", f'{{"type":"{kind}"}}'.encode(), b"ann")
    assert producer.flush(60) == 0
