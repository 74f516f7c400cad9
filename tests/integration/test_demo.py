"""The demo as a user runs it, small: every step on real Kafka and Spark, and nothing left behind on any way out."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration
SMALL = "20000"


@contextlib.contextmanager
def demo(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """``python -m demo`` with its progress in the file ``errors`` beside the folder; stopped if it is left running."""
    words = ["--events", SMALL, "--dir", str(folder), "--out", str(folder / "page.html")]
    env = {**os.environ, "TMPDIR": str(folder.parent), "COLUMNS": "200", "PYTHONPATH": os.pathsep.join(sys.path)}
    with (folder.parent / "errors").open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "demo", *words],
            stdout=subprocess.PIPE,
            stderr=errors,
            env=env,
            text=True,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
                process.communicate(timeout=120)


def left_running(folder: Path) -> list[str]:
    """Commands of processes that name the folder, or that the temporary cluster inside it belongs to."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if str(folder) in command:
            found.append(command)
    return found


@pytest.mark.timeout(1800)
def test_every_step_runs_and_every_check_passes(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    with demo(folder) as process:
        out, _ = process.communicate(timeout=1700)
    said = (tmp_path / "errors").read_text()
    assert process.returncode == 0, out + said
    passed = re.search(r"(\d+) of (\d+) checks passed; differences between stream and batch: none", out)
    assert passed is not None and passed[1] == passed[2] and int(passed[1]) >= 24, out
    for pipeline in ("Views per campaign", "Flights and weather"):
        for check in (
            "a worker killed halfway",
            "the other worker took over",
            "output equals the independent count after the kill",
            "every record accounted for after the restored worker went on",
            "state restored from snapshot and tail",
            "stream and batch are the same",
        ):
            assert f"{pipeline}: {check}" in out
    page = (folder / "page.html").read_text()
    assert "Every check passed" in page and page.count("<svg") == 9
    assert (folder / "page.html").as_uri() in out
    assert left_running(tmp_path) == []


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_whatever_ends_it_its_processes_end_too(number: signal.Signals, tmp_path: Path) -> None:
    """Interrupted while both workers run. After SIGKILL it is the guards that clean up."""
    folder = tmp_path / "demo"
    with demo(folder) as process:
        until = time.monotonic() + 300
        while len(list(folder.glob("logs/*worker*.log"))) < 2 and process.poll() is None and time.monotonic() < until:
            time.sleep(0.02)
        if number == signal.SIGKILL:
            time.sleep(2)  # no guard can know of a process whose maker is killed before it can say so
        assert process.poll() is None, (tmp_path / "errors").read_text()
        assert any("worker" in command for command in left_running(tmp_path))
        process.send_signal(number)
        process.communicate(timeout=120)
    status = -signal.SIGKILL if number == signal.SIGKILL else 130
    assert process.returncode == status, (tmp_path / "errors").read_text()
    until = time.monotonic() + 120
    while left_running(tmp_path) and time.monotonic() < until:
        time.sleep(0.1)
    assert left_running(tmp_path) == []
