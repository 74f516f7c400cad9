"""The command on executors of its own: an executor is killed, all of a job is frozen and wakes up, a driver is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from pyspark.sql import SparkSession

from penstock.spark import stream
from tests.integration.spark.live import Live
from tests.integration.spark.test_stream import PARTITIONS, Answer, seen, settings_of, users
from tests.integration.spark.topologies import visits
from tests.integration.worker.application import until

ROOT = Path(__file__).parents[3]
EXECUTORS = ["--master", "local-cluster[2,1,512]", "--spark-conf", "spark.executor.memory=512m"]


class Job:
    """A job's driver, and what it has started."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self._log = log

    def said(self) -> str:
        return self._log.read_text()

    def descendants(self) -> list[int]:
        """The processes that it has started, and they."""
        found: list[int] = []
        left = [self.process.pid]
        while left:
            pid = left.pop()
            with suppress(OSError):  # it may have ended
                for children in Path(f"/proc/{pid}/task").glob("*/children"):
                    mine = [int(text) for text in children.read_text().split()]
                    found += mine
                    left += mine
        return found

    def executors(self) -> list[int]:
        return [pid for pid in self.descendants() if b"CoarseGrainedExecutorBackend" in _command(pid)]

    def signal_all(self, number: int) -> None:
        """To it and everything that it has started."""
        for pid in [self.process.pid, *self.descendants()]:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def frozen(self) -> bool:
        """Whether one of its processes has stopped itself."""
        return any(_state(pid) == "T" for pid in self.descendants())


def _command(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def _state(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return ""


@contextmanager
def job(live: Live, folder: Path, name: str, spark: Sequence[str]) -> Iterator[Job]:
    """The command, with a topology that dies or freezes where the file ``die`` says."""
    shop = f"""
        from pathlib import Path
        from tests.integration.spark.topologies import visits
        topology = visits({live.application_id!r}, Path({str(folder / "die")!r}))
        """
    (folder / "shop.py").write_text(textwrap.dedent(shop))
    log = folder / f"{name}.log"
    command = [
        sys.executable,
        "-m",
        "penstock.streams.cli.main",
        "stream",
        "shop:topology",
        *spark,
        "--every",
        "1s",
    ]
    command += ["--application-id", live.application_id, "--bootstrap-server", live.bootstrap_servers]
    command += ["--guarantee", "exactly_once", "--state-dir", str(folder / "state")]
    path = os.pathsep.join([str(ROOT / ".package"), str(ROOT), str(folder)])
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, cwd=folder, env={**os.environ, "PYTHONPATH": path}, stdout=out, stderr=subprocess.STDOUT
        )
    running = Job(process, log)
    try:
        yield running
    finally:
        running.signal_all(signal.SIGKILL)
        process.wait(60)


def alive(running: Job, condition: Callable[[], bool]) -> Callable[[], bool]:
    """The condition, while the job lives."""

    def asked() -> bool:
        assert running.process.poll() is None, running.said()
        return condition()

    return asked


def test_what_is_killed_or_frozen_doubles_nothing(spark: SparkSession, live: Live, tmp_path: Path) -> None:
    flag = tmp_path / "die"
    live.create(PARTITIONS, *map(live.topic, ("users", "in", "met", "cities")))
    answer = Answer(live)
    answer.tell("users", users("abc", 1))
    answer.tell("in", seen(0, 1_000))
    with job(live, tmp_path, "first", EXECUTORS) as first:
        until("it has begun", alive(first, answer.whole), every_s=1.0)
        # One of two executors is killed, and its partition moves.
        os.kill(first.executors()[0], signal.SIGKILL)
        answer.tell("in", seen(1_000, 4_000))
        until("the other one has done it", alive(first, answer.whole), every_s=1.0)
        answer.check()
        # An executor freezes with its outputs in an open transaction, and then everything else of the job.
        flag.write_text("freeze offsets_added")
        answer.tell("in", seen(4_000, 6_000))
        until("it has frozen", alive(first, lambda: not flag.exists() and first.frozen()))
        first.signal_all(signal.SIGSTOP)
        # Another job takes over, without waiting for anything but the session of the first.
        build, settings = visits(live.application_id, flag), settings_of(live, tmp_path)
        assert stream(build, settings, available_now=True).records > 0
        until("all is done", answer.whole, every_s=1.0)
        answer.check()
        # The frozen one wakes up, ends by itself, and nothing of it is ever seen.
        first.signal_all(signal.SIGCONT)
        until("it has ended", lambda: first.process.poll() is not None)
        assert first.process.returncode not in (0, None) and "start it again" in first.said()
        answer.check()
    with job(live, tmp_path, "second", ["--master", "local[2]"]) as second:
        answer.tell("in", seen(6_000, 8_000))
        until("it is at work", alive(second, lambda: len(live.read(live.topic("met"))) > 6_000), every_s=0.2)
        second.signal_all(signal.SIGKILL)
        second.process.wait(60)
    answer.tell("in", seen(8_000, 8_500))
    assert stream(build, settings, available_now=True).records > 0
    until("all is done", answer.whole, every_s=1.0)
    answer.check()
