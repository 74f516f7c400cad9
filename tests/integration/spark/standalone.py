"""A standalone Spark cluster of local processes.

Its executors have a Python of their own, with everything that is installed here except Penstock.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import platformdirs
import pyspark

from penstock.streams.spark.session import KAFKA_CONNECTOR, check_java
from tests.integration.spark import holding
from tests.integration.spark.driver import ROOT, Driver

LIMIT_S = 300.0
QUICK_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xss2m"
T = TypeVar("T")


def until(what: str, look: Callable[[], T | None]) -> T:
    """Wait until ``look`` finds something."""
    until_s = time.monotonic() + LIMIT_S
    while (found := look()) is None:
        assert time.monotonic() < until_s, what
        time.sleep(0.1)
    return found


def parent_of(pid: int) -> int:
    """The process that started this one."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def executor_of(python: int) -> int:
    """The JVM of an executor, from one of its Python workers, which its daemon has forked."""
    return parent_of(parent_of(python))


def bare_python(folder: Path, holds: Path) -> Path:
    """An environment's Python that lacks Penstock, and is held where ``holds`` says."""
    venv.create(folder, symlinks=True)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    links = folder / "links"
    links.mkdir()
    for item in Path(sysconfig.get_path("purelib")).iterdir():
        if item.suffix != ".pth" and "penstock" not in item.name:
            (links / item.name).symlink_to(item)
    (site / "links.pth").write_text(f"{links}\n")
    (site / "sitecustomize.py").write_text(f"{Path(holding.__file__).read_text()}\n\nhold_executors({str(holds)!r})\n")
    return folder / "bin" / "python"


class Standalone:
    """A master and two workers of one core each, below ``folder``. ``holds``: the folder of a test's ``Hold``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.holds = folder / "holds"
        self.holds.mkdir()
        self.url = ""
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Standalone:
        check_java()
        self._python = bare_python(self.folder / "python", self.holds)
        for name in ("local", "tmp"):
            (self.folder / name).mkdir()
        try:
            found = self._start("master.Master", [], r"Starting Spark master at (spark://\S+)")
            self.url = found
            for number in range(2):
                work = ["--cores", "1", "--memory", "700m", "--work-dir", str(self.folder / f"work-{number}"), self.url]
                self._start("worker.Worker", work, r"(Successfully registered) with master", f"worker-{number}")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        left = self.executors()
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            process.wait(LIMIT_S)
        for pid in left:
            if Path(f"/proc/{pid}").exists():
                os.kill(pid, signal.SIGKILL)

    def _start(self, daemon: str, more: Sequence[str], ready: str, name: str = "master") -> str:
        home = Path(pyspark.__file__).parent
        env = {
            **os.environ,
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(self.folder / "local"),
            "SPARK_DAEMON_MEMORY": "192m",
            "SPARK_DAEMON_JAVA_OPTS": QUICK_JVM,
            "TMPDIR": str(self.folder / "tmp"),
        }
        at = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        log = self.folder / f"{name}.log"
        with log.open("wb") as out:
            command = [home / "bin" / "spark-class", f"org.apache.spark.deploy.{daemon}", *at, *more]
            self._processes.append(subprocess.Popen(command, env=env, stdout=out, stderr=subprocess.STDOUT))

        def look() -> str | None:
            assert self._processes[-1].poll() is None, log.read_text()
            found = re.search(ready, log.read_text())
            return None if found is None else found[1]

        return until(f"{daemon} did not start", look)

    def executors(self) -> list[int]:
        """The processes of the executors that run."""
        workers = {process.pid for process in self._processes[1:]}
        found: list[int] = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdecimal():
                try:
                    ours = parent_of(int(folder.name)) in workers
                    if ours and b"CoarseGrainedExecutorBackend" in (folder / "cmdline").read_bytes():
                        found.append(int(folder.name))
                except (FileNotFoundError, ProcessLookupError):
                    continue
        return found

    @property
    def conf(self) -> dict[str, str]:
        """Spark's settings for small executors."""
        conf = {
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": QUICK_JVM,
            "spark.driver.extraJavaOptions": QUICK_JVM,
            "spark.driver.host": "127.0.0.1",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.adaptive.enabled": "false",
        }
        return conf

    @property
    def options(self) -> list[str]:
        """Options of a command that runs here."""
        return ["--master", self.url, *(x for k, v in self.conf.items() for x in ("--spark-conf", f"{k}={v}"))]

    def driver(self, cwd: Path) -> Driver:
        """A process that runs commands, in ``cwd``."""
        return Driver(cwd, env=self._env, holds=self.holds)

    def submitted(self, cwd: Path, *argv: str) -> subprocess.Popen[str]:
        """``spark-submit`` of a program, in ``cwd``."""
        home = Path(pyspark.__file__).parent
        conf = [x for k, v in self.conf.items() for x in ("--conf", f"{k}={v}")]
        cache = f"spark.jars.ivy={platformdirs.user_cache_path('penstock') / 'ivy'}"
        submit = [str(home / "bin" / "spark-submit"), "--master", self.url, "--packages", KAFKA_CONNECTOR]
        env = {**os.environ, **self._env, "SPARK_HOME": str(home), "PYSPARK_DRIVER_PYTHON": sys.executable}
        return subprocess.Popen(
            [*submit, *conf, "--conf", cache, *argv],
            cwd=cwd,
            env={**env, "PYTHONPATH": os.pathsep.join([str(ROOT / ".package"), str(ROOT)])},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    @property
    def _env(self) -> dict[str, str]:
        return {"PYSPARK_PYTHON": str(self._python), "TMPDIR": str(self.folder / "tmp")}
