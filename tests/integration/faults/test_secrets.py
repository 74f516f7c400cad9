"""A marker in every setting that holds a credential, through every failure that can be brought about here: it is nowhere in
what the processes print, serve or leave behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from penstock.state.errors import SettingsError
from penstock.state.snapshots.repository import StoredSnapshots
from tests.integration.worker.application import LIMIT_S, ROOT, Application, until

MARKER = "canary-5d1c77"
USER = "alice"
PLAIN = {
    "sasl.password": MARKER,
    "sasl.username": USER,
    "sasl.oauthbearer.client.secret": MARKER,
    "sasl.oauthbearer.config": f"principal={MARKER}",
    "ssl.key.password": MARKER,
    "ssl.keystore.password": MARKER,
}
"""What librdkafka takes whatever the protocol is."""
MISSPELT = "PENSTOCK" + "_COMON__SASL_PASSWORD"
NOWHERE = "127.0.0.1:1"
AT_ONCE = 4


class Ran:
    """A command that runs or has ended, in a folder of its own. ``settings``: the text of its file."""

    def __init__(
        self, folder: Path, args: list[str], *, settings: str | None = None, env: Mapping[str, str] | None = None
    ) -> None:
        self.folder = folder
        self.config = folder / "settings.toml"
        command = [sys.executable, "-m", "penstock.streams.cli.main", *args]
        if settings is not None:
            self.config.write_text(settings)
            command += ["--config", str(self.config)]
        given = {**os.environ, "PYTHONPATH": str(ROOT / ".package"), "PYTHONFAULTHANDLER": "1", **(env or {})}
        self._log = folder / "said"
        with self._log.open("wb") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=given, cwd=folder)
        self.served = ""

    @property
    def said(self) -> str:
        return self._log.read_text(errors="replace")

    def until_said(self, text: str) -> None:
        until(f"it says {text!r}; it said {self.said}", lambda: text in self.said or self.process.poll() is not None)
        assert text in self.said, self.said

    def fetch(self, port: int) -> None:
        """What it serves."""
        for path in ("/metrics", "/health", "/ready", "/nothing"):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=LIMIT_S) as answer:
                    self.served += f"{answer.headers}{answer.read()!r}"
            except urllib.error.HTTPError as error:
                self.served += f"{error.headers}{error.read()!r}"

    def end(self, number: int | None = signal.SIGTERM) -> None:
        """Have it end, if it has not."""
        if number is not None and self.process.poll() is None:
            self.process.send_signal(number)
        try:
            self.process.wait(LIMIT_S)
        finally:
            self.process.kill()

    def leaks(self) -> list[str]:
        """Where the marker is: what it said, served, and left in files."""
        found = ["what it served"] if MARKER in self.served else []
        for path in self.folder.rglob("*"):
            if path.is_file() and path != self.config and MARKER.encode() in path.read_bytes():
                found.append(f"{path.name}: {[line for line in self.said.splitlines() if MARKER in line]}")
        return found


def toml(common: Mapping[str, Any], servers: str = NOWHERE, **more: Any) -> str:
    """A settings file."""
    head = {"application_id": "canary", "bootstrap_servers": servers, "state_dir": "state", **more}
    lines = [f"{name} = {value!r}" for name, value in head.items()]
    lines += ["[penstock.common]", *(f'"{name}" = {value!r}' for name, value in common.items())]
    return "\n".join(["[penstock]", *lines, ""])


def worker(folder: Path, settings: str, *args: str, topology: str | None = None, **env: str) -> Ran:
    module = folder / "job.py"
    module.write_text(
        topology or "from penstock.topologies.examples import word_count\ntopology = word_count.build('in', 'out')\n"
    )
    return Ran(folder, ["worker", f"{module}:topology", *args], settings=settings, env=env)


def refused(folder: Path, settings: str, **env: str) -> Ran:
    """A worker that ends by itself."""
    ran = worker(folder, settings, **env)
    ran.end(None)
    assert ran.process.returncode != 0, ran.said
    assert ran.said
    return ran


def no_broker(kafka: str, folder: Path, **more: str) -> Ran:
    ran = worker(folder, toml({**PLAIN, **more}))
    ran.until_said("No broker answers")
    ran.end()
    return ran


def wrong_protocol(kafka: str, folder: Path) -> Ran:
    """The client shows its password to a broker that wants none."""
    login = {**PLAIN, "security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN"}
    ran = worker(folder, toml(login, kafka))
    ran.until_said("refuses the connection")
    ran.end()
    return ran


def client_options(kafka: str, folder: Path) -> Ran:
    ran = Ran(folder, ["topics", "list", "--bootstrap-server", NOWHERE, "--client-config", f"sasl.password={MARKER}"])
    ran.end(None)
    assert ran.process.returncode != 0
    return ran


def client_option_without_a_key(kafka: str, folder: Path) -> Ran:
    ran = Ran(folder, ["topics", "list", "--bootstrap-server", NOWHERE, "--client-config", MARKER])
    ran.end(None)
    assert ran.process.returncode == 2
    return ran


def working(kafka: str, folder: Path, topology: str = "", *args: str) -> tuple[Ran, Application, int]:
    """A worker that counts, and its port."""
    app = Application(kafka, "canary", folder)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    text = (
        topology or "from penstock.topologies.examples import word_count\ntopology = word_count.build({0!r}, {1!r})\n"
    )
    settings = toml(PLAIN, kafka, application_id=app.name, guarantee="exactly_once", metrics_port=port)
    return (
        worker(folder, settings, "--log-level", "debug", *args, topology=text.format(app.source, app.output)),
        app,
        port,
    )


def at_work(kafka: str, folder: Path) -> Ran:
    ran, app, port = working(kafka, folder)
    app.add_lines(50)
    app.wait()
    ran.fetch(port)
    assert "penstock_records_consumed_total" in ran.served
    ran.end()
    assert ran.process.returncode == 0, ran.said
    return ran


def aborted(kafka: str, folder: Path) -> Ran:
    """As a fault in a library would end it; Python's fault handler shows all stacks."""
    ran, app, _ = working(kafka, folder)
    app.add_lines(50)
    app.wait()
    ran.end(signal.SIGABRT)
    assert "Fatal Python error" in ran.said
    return ran


POISON = (
    "import penstock as ps\nbuilder = ps.StreamsBuilder('t', value=int)\n"
    "builder.stream({0!r}).to({1!r})\ntopology = builder.build()\n"
)
RAISING = (
    "import penstock as ps\nbuilder = ps.StreamsBuilder('t', value=str)\n"
    "builder.stream({0!r}).map_values(lambda value: value / 0, value=str).to({1!r})\ntopology = builder.build()\n"
)


def failing_record(kafka: str, folder: Path, topology: str) -> Ran:
    ran, app, _ = working(kafka, folder, topology, "--log-records")
    app.add_lines(3)
    ran.end(None)
    assert ran.process.returncode != 0
    assert "Record failed" in ran.said
    return ran


SSL = {"security.protocol": "ssl"}
CASES: dict[str, Callable[[str, Path], Ran]] = {
    "no broker": no_broker,
    "no broker, everything logged": lambda kafka, folder: no_broker(kafka, folder, debug="all"),
    "a login where none is wanted": wrong_protocol,
    "at work": at_work,
    "aborted": aborted,
    "poison record": lambda kafka, folder: failing_record(kafka, folder, POISON),
    "function that raises": lambda kafka, folder: failing_record(kafka, folder, RAISING),
    "unreadable key file": lambda _, folder: refused(folder, toml({**PLAIN, **SSL, "ssl.key.location": "/none/key"})),
    "unreadable CA file": lambda _, folder: refused(folder, toml({**PLAIN, **SSL, "ssl.ca.location": "/none/ca"})),
    "key that is none": lambda _, folder: refused(folder, toml({**PLAIN, **SSL, "ssl.key.pem": MARKER})),
    "certificate that is none": lambda _, folder: refused(
        folder, toml({**PLAIN, **SSL, "ssl.certificate.pem": MARKER})
    ),
    "misspelt secret": lambda _, folder: refused(folder, toml({**PLAIN, "sasl.pasword": MARKER})),
    "another key's bad value": lambda _, folder: refused(folder, toml({**PLAIN, "socket.timeout.ms": "soon"})),
    "a key that is Penstock's": lambda _, folder: refused(folder, toml({**PLAIN, "group.id": "g"})),
    "a file that is cut off": lambda _, folder: refused(folder, toml(PLAIN) + f'"ssl.crl.pem" = "{MARKER}'),
    "a secret without quotes": lambda _, folder: refused(folder, toml({}) + f"sasl.password = {MARKER}"),
    "a table that is a text": lambda _, folder: refused(
        folder, toml({}).replace("[penstock.common]", f"common = 'sasl.password={MARKER}'")
    ),
    "a secret in the wrong place": lambda _, folder: refused(folder, toml({}, sasl_password=MARKER)),
    "a secret in a number's place": lambda _, folder: refused(folder, toml({}, sasl={"password": MARKER})),
    "a variable with a wrong name": lambda _, folder: refused(folder, toml({}), **{MISSPELT: MARKER}),
    "client options": client_options,
    "client option without a key": client_option_without_a_key,
}


@pytest.fixture(scope="module")
def running(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[Ran]]]:
    """Every case, a few at once."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {name: pool.submit(CASES[name], kafka, tmp_path_factory.mktemp("canary")) for name in CASES}


@pytest.mark.parametrize("case", CASES)
def test_no_secret_is_shown(case: str, running: dict[str, Future[Ran]]) -> None:
    ran = running[case].result()
    assert not ran.leaks()
    assert "Traceback" not in ran.said, ran.said


def test_a_repository_that_nobody_knows_is_named_without_its_password() -> None:
    with pytest.raises(SettingsError) as refused:
        StoredSnapshots(f"nosuch://{USER}:{MARKER}@127.0.0.1:1/bucket")
    assert "nosuch" in str(refused.value)
    assert MARKER not in str(refused.value)


def test_a_secret_that_is_shown_is_found(tmp_path: Path) -> None:
    """The search itself: a topology that prints what it can see of its environment."""
    shows = "import os\nprint(os.environ['PENSTOCK_COMMON__SASL_PASSWORD'])\n"
    ran = worker(tmp_path, toml({}), topology=shows, PENSTOCK_COMMON__SASL_PASSWORD=MARKER)
    ran.end(None)
    assert ran.leaks()
