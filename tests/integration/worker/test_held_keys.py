"""Keys that are held on real workers, under exactly-once: killed, stopped, replaced and frozen while records wait, and while
they are let through. Each record comes once and in its key's order; other keys never wait."""

from __future__ import annotations

import re
import signal
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import get_args

import pytest

from penstock.streams.events.measurements import CommitStep
from tests.integration.worker.application import LIMIT_S, Application, Process, free_port, until

KEYS = [f"k{n}" for n in range(24)]
POISON = {"k3": 5, "k7": 11, "k12": 1, "k19": 20}
"""The keys that are held, and the number of the record that fails."""
STEPS: tuple[CommitStep, ...] = get_args(CommitStep)
AT_ONCE = 4


class HoldingApplication(Application):
    """Each key's records are numbered: 1, 2, …. The function refuses those of ``POISON`` until ``mend``."""

    module = "tests.integration.worker.holding_process"

    def __init__(self, bootstrap_servers: str, name: str, folder: Path) -> None:
        super().__init__(bootstrap_servers, name, folder)
        self._refused = folder / "refused"
        self._refused.write_text(" ".join(f"{key}:{number}" for key, number in POISON.items()))
        self.counted = self.create("counts")
        self.order = {"counts": self.counted, "refused": str(self._refused)}

    def mend(self) -> None:
        """Let everything through."""
        new = self._refused.with_suffix(".new")
        new.write_text("")
        new.rename(self._refused)

    def add_lines(self, count: int) -> None:
        """Write records of all keys; each key's follow each other in its partition."""
        rows = []
        for _ in range(-(-count // len(KEYS))):
            for key in KEYS:
                self.wanted[key] += 1
                rows.append((key.encode(), f"{key}:{self.wanted[key]}".encode()))
        self.write(self.source, [value for _, value in rows], keys=[key for key, _ in rows])

    def worker(
        self, state: str = "state", signal_at: tuple[CommitStep, int, int] | None = None
    ) -> tuple[Process, Callable[[], int | None]]:
        """A worker process, and how many records it holds by its metrics; ``None`` while it does not answer."""
        port = free_port()
        process = self.process(state, signal_at=signal_at, settings={"metrics_port": port})

        def held() -> int | None:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
                    page = answer.read().decode()
            except OSError:
                return None
            return sum(int(float(n)) for n in re.findall(r"^penstock_held_records{.*} (\S+)$", page, re.MULTILINE))

        return process, held

    def passed(self) -> dict[str, list[int]]:
        """The numbers of each key's records in the output, in its order."""
        out: dict[str, list[int]] = {}
        for w in self.read(self.output):
            assert w.key is not None
            assert w.value is not None
            key, _, number = w.value.decode().partition(":")
            assert key == w.key.decode()
            out.setdefault(key, []).append(int(number))
        return out

    def assert_held(self) -> None:
        """The others have come, once and in order; of the held keys, what was before the poison."""
        until(f"the keys of {self.name} that do not wait", self._others_passed, every_s=0.4)
        for key, numbers in self.passed().items():
            wanted = POISON.get(key, self.wanted[key] + 1) - 1
            assert numbers == list(range(1, wanted + 1)), (key, numbers)

    def _others_passed(self) -> bool:
        passed = self.passed()
        return all(len(passed.get(key, [])) >= POISON.get(key, self.wanted[key] + 1) - 1 for key in KEYS)

    @property
    def waiting(self) -> int:
        """How many records are held."""
        return sum(self.wanted[key] - number + 1 for key, number in POISON.items())

    def reached(self) -> bool:
        """Whether every record has come, and was counted."""
        passed, counts = self.passed(), self._counts()
        return all(len(passed.get(k, [])) >= n and len(counts.get(k, [])) >= n for k, n in self.wanted.items())

    def assert_exact(self) -> None:
        """Each record once and in order, in the output and in the counts behind it."""
        expected = {key: list(range(1, n + 1)) for key, n in self.wanted.items()}
        assert self.passed() == expected
        assert self._counts() == expected

    def _counts(self) -> dict[str, list[int]]:
        out: dict[str, list[int]] = {}
        for w in self.read(self.counted):
            assert w.key is not None
            assert w.value is not None
            out.setdefault(w.key.decode().lower(), []).append(int.from_bytes(w.value))
        return out


def killed_while_held(kafka: str, folder: Path, step: CommitStep) -> None:
    """SIGKILL at a commit's step; the next worker, with a state folder of its own, restores what waits from the log, is
    killed while it lets it through, and a third one goes on from there."""
    app = HoldingApplication(kafka, f"held-{step.replace('_', '-')}", folder)
    app.add_lines(600)
    first, _ = app.worker("first", (step, 3, signal.SIGKILL))
    with first:
        app.feed("the first worker is killed", lambda: not first.alive)
        assert first.wait() == -signal.SIGKILL, first.said
    app.add_lines(240)
    second, held = app.worker("second")
    with second:
        app.assert_held()
        until("it says how many wait", lambda: held() == app.waiting)
        app.mend()
        time.sleep(0.05 * STEPS.index(step))
        second.kill()
    app.add_lines(120)
    third, held = app.worker("second")
    with third:
        app.wait()
        until("nothing waits any more", lambda: held() == 0)
        third.stop()
    app.assert_exact()


def stopped_while_held(kafka: str, folder: Path) -> None:
    """SIGTERM, and the next worker on the same folder goes on holding."""
    app = HoldingApplication(kafka, "held-stopped", folder)
    app.add_lines(600)
    for _ in range(2):
        worker, held = app.worker()
        with worker:
            app.assert_held()
            until("it says how many wait", lambda held=held: held() == app.waiting)
            worker.stop()
        app.add_lines(120)
    worker, held = app.worker()
    with worker:
        app.assert_held()
        app.mend()
        app.wait()
        worker.stop()
    app.assert_exact()


def handed_over_while_held(kafka: str, folder: Path) -> None:
    """A second worker joins and takes tasks with held keys; the first is frozen for longer than its session, replaced, and
    wakes up when everything is let through."""
    app = HoldingApplication(kafka, "held-moved", folder)
    app.add_lines(600)
    first, held_first = app.worker("first")
    with first:
        app.assert_held()
        second, held_second = app.worker("second")
        with second:
            until("both have tasks", lambda: app.admin.group_members(app.name) == 2)
            app.add_lines(240)
            app.assert_held()
            until("both together hold everything", lambda: (held_first() or 0) + (held_second() or 0) == app.waiting)
            first.signal(signal.SIGSTOP)
            app.add_lines(240)
            app.assert_held()
            until("the second one holds everything", lambda: held_second() == app.waiting)
            app.mend()
            first.signal(signal.SIGCONT)
            app.add_lines(120)
            app.wait()
            second.stop()
            app.add_lines(48)
            app.wait()
            first.stop()
    app.assert_exact()


CASES: dict[str, Callable[[str, Path], None]] = {
    "handed over": handed_over_while_held,
    "stopped": stopped_while_held,
    **{f"killed after {step}": partial(killed_while_held, step=step) for step in STEPS},
}


@pytest.fixture(scope="module")
def running(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[None]]]:
    """Every case, a few at once."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {name: pool.submit(case, kafka, tmp_path_factory.mktemp("held")) for name, case in CASES.items()}


@pytest.mark.parametrize("case", CASES)
def test_each_record_once_and_in_order(case: str, running: dict[str, Future[None]]) -> None:
    running[case].result(2 * LIMIT_S)
