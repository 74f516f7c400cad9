"""A real schema registry with Confluent's API: Apicurio Registry, fetched from Maven Central, which keeps all in memory."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import tarfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from penstock.streams.kafka.embedded.java import find_java
from tests.integration.worker.application import LIMIT_S, ROOT, free_port

VERSION = "3.0.9"
FOLDER = ROOT / "var" / f"apicurio-registry-{VERSION}"
RUNNER = FOLDER / f"apicurio-registry-app-{VERSION}-runner.jar"


def fetched() -> Path:
    """Its jar, fetched once. Raises ``CalledProcessError`` with Maven's output if it cannot be."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (FOLDER / "fetched").exists():
            artifact = f"io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"
            command = ["mvn", "--batch-mode", "--quiet", "dependency:copy", f"-Dartifact={artifact}"]
            subprocess.run([*command, f"-DoutputDirectory={FOLDER}"], check=True, cwd=FOLDER)
            (archive,) = FOLDER.glob("*.tar.gz")
            with tarfile.open(archive) as packed:
                packed.extractall(FOLDER, filter="data")
            archive.unlink()
            (FOLDER / "fetched").touch()
    return RUNNER


@contextlib.contextmanager
def running(folder: Path) -> Iterator[str]:
    """The URL of a registry without any schema, of the rule BACKWARD."""
    port = free_port()
    options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dquarkus.http.host=127.0.0.1"]
    options += [f"-Dquarkus.http.port={port}", "-Dapicurio.rules.global.compatibility=BACKWARD"]
    command = [str(find_java().path), *options, "-jar", str(fetched())]
    log = folder / "registry.log"
    with log.open("wb") as out:
        process = subprocess.Popen(command, cwd=folder, stdout=out, stderr=subprocess.STDOUT, env={**os.environ})
    url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
    try:
        deadline = time.monotonic() + LIMIT_S
        while not _answers(url):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
        yield url
    finally:
        process.kill()
        process.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/subjects", timeout=10) as answer:
            return bool(answer.status == 200)
    except (TimeoutError, OSError):
        return False
