"""What may happen to a worker process besides being killed: slow functions, signals, frozen siblings, forks, memory."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.integration.faults.workers import StruckApplication
from tests.integration.worker.application import SESSION_TIMEOUT_MS, until

pytestmark = pytest.mark.long
LINES = 150
AT_ONCE = 4
SLOW = """
import time
from penstock.topologies.columnar import word_splitting
slept = False
def words(line):
    global slept
    if not slept and "slow" in line:
        slept = True
        print("sleeps", flush=True)
        time.sleep({seconds})
    return line.split()
word_splitting.words = words
"""
FORKING = """
import os
from penstock.topologies.columnar import word_splitting
def words(line):
    if "fork" in line and (child := os.fork()) == 0:
        os._exit(0)
    elif "fork" in line:
        os.waitpid(child, 0)
    return line.split()
word_splitting.words = words
"""
HUNGRY = """
import resource
from penstock.topologies.columnar import word_splitting
def words(line):
    if "hungry" in line:
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), resource.RLIM_INFINITY))
        bytearray(1 << 30)
    return line.split()
word_splitting.words = words
"""


def write(app: StruckApplication, word: str) -> None:
    """A line that does something to who counts it."""
    app.write(app.source, [word.encode()])
    app.wanted[word] += 1


def handler_slower_than_the_poll_interval(kafka: str, folder: Path) -> None:
    """P5: its tasks go to another worker; it joins again, and the record is processed once."""
    app = StruckApplication(kafka, "slow", folder, before=SLOW.format(seconds=12))
    app.add_lines(LINES)
    polls = {"max.poll.interval.ms": SESSION_TIMEOUT_MS}
    first = app.worker("first", consumer=polls)
    try:
        app.wait()
        write(app, "slow")
        until("it is slow", lambda: "sleeps" in first.said)
        second = app.worker("second", consumer=polls)
        try:
            app.add_lines(LINES)
            app.wait()
            until("both are members", lambda: app.admin.group_members(app.name) == 2)
            app.add_lines(LINES)
            app.wait()
            assert first.alive, first.said
            assert first.said.count("sleeps") == 1
            first.stop()
            second.stop()
        finally:
            second.kill()
    finally:
        first.kill()
    app.assert_exact()


def signalled(number: int, times: int) -> Callable[[str, Path], None]:
    """P6: it commits and leaves, and the next start restores nothing."""

    def case(kafka: str, folder: Path) -> None:
        app = StruckApplication(kafka, f"signal-{number}-{times}", folder)
        app.add_lines(LINES)
        first = app.worker("state")
        try:
            until("it works", lambda: len(app.read(app.output)) > 100)
            for _ in range(times):
                first.signal(number)
                time.sleep(0.01)
            assert first.wait() == 0, first.said
        finally:
            first.kill()
        assert app.admin.group_members(app.name) == 0
        assert "Traceback" not in first.said
        second = app.worker("state")
        try:
            app.wait()
            second.stop()
        finally:
            second.kill()
        assert not [restore for restore in second.restores if restore[1] == 0]
        app.assert_exact()

    return case


def frozen_sibling(kafka: str, folder: Path) -> None:
    """P7: it holds its tasks' folders while the group gives them to another process of the same host, which waits for them,
    and goes on with its own ones."""
    app = StruckApplication(kafka, "sibling", folder)
    app.add_lines(LINES)
    first, second = app.worker("state"), app.worker("state")
    try:
        app.wait()
        until("both are members", lambda: app.admin.group_members(app.name) == 2)
        first.signal(signal.SIGSTOP)
        until("the other one waits for a folder", lambda: second.reported("LockAwaited"))
        app.add_lines(LINES)
        time.sleep(SESSION_TIMEOUT_MS / 1000)
        assert second.alive, second.said
        first.signal(signal.SIGCONT)
        app.wait()
        assert first.alive, first.said
        assert second.alive, second.said
        first.stop()
        second.stop()
    finally:
        first.kill()
        second.kill()
    app.assert_exact()


def fork(kafka: str, folder: Path) -> None:
    """P8: a function of the user's forks, and the child ends."""
    app = StruckApplication(kafka, "fork", folder, before=FORKING)
    app.add_lines(LINES)
    worker = app.worker("state")
    try:
        for _ in range(3):
            write(app, "fork")
        app.wait()
        app.add_lines(LINES)
        app.wait()
        worker.stop()
    finally:
        worker.kill()
    app.assert_exact()


def out_of_memory(kafka: str, folder: Path) -> None:
    """P8: a function of the user's meets the limit of memory: the worker ends with an error that names the record, and the
    next one goes on from there."""
    app = StruckApplication(kafka, "memory", folder, before=HUNGRY)
    app.add_lines(LINES)
    first = app.worker("state")
    try:
        app.wait()
        write(app, "hungry")
        assert first.wait() == 2, first.said
        assert "MemoryError" in first.said, first.said
        assert app.source in first.said
        (folder / "counting.py").write_text((folder / "counting.py").read_text().replace(HUNGRY, ""))
        second = app.worker("state")
        app.add_lines(LINES)
        app.wait()
        second.stop()
    finally:
        first.kill()
    app.assert_exact()


CASES: dict[str, Callable[[str, Path], None]] = {
    "P5 handler slower than the poll interval": handler_slower_than_the_poll_interval,
    "P7 frozen sibling": frozen_sibling,
    "P6 SIGINT": signalled(signal.SIGINT, 1),
    "P6 SIGTERM twice": signalled(signal.SIGTERM, 2),
    "P8 fork": fork,
    "P8 out of memory": out_of_memory,
}


@pytest.fixture(scope="module")
def running(bootstrap_servers: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[None]]]:
    """Every case, a few at once."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {
            name: pool.submit(CASES[name], bootstrap_servers, tmp_path_factory.mktemp("processes")) for name in CASES
        }


@pytest.mark.parametrize("case", CASES)
def test_exact_and_no_worker_is_lost(case: str, running: dict[str, Future[None]]) -> None:
    running[case].result()
