"""Workers that are killed, frozen and replaced. The cases run side by side: most of their time is waiting for sessions."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import get_args

import pytest

from penstock.streams.events.measurements import CommitStep
from tests.integration.worker.application import PARTITIONS, UNDISTURBED, Application, until

STEPS: tuple[CommitStep, ...] = get_args(CommitStep)
LINES = 1_500
AT_ONCE = 6


def killed_at(kafka: str, folder: Path, step: CommitStep) -> None:
    """SIGKILL at the step, and another worker, with a state folder of its own, takes over."""
    app = Application(kafka, f"kill-{step.replace('_', '-')}", folder)
    app.add_lines(LINES)
    with app.process("first", signal_at=(step, 3, signal.SIGKILL)) as first:
        app.feed("the first worker is killed", lambda: not first.alive)
        assert first.wait() == -signal.SIGKILL, first.said
    app.add_lines(LINES // 3)
    with app.process("second") as second:
        app.wait()
        second.stop()
    app.assert_exact()


def taken_over(kafka: str, folder: Path, step: CommitStep) -> None:
    """SIGKILL with a transaction open that no time-out ends within this test: a worker of another host ends it."""
    app = Application(kafka, f"taken-{step.replace('_', '-')}", folder)
    app.add_lines(LINES)
    endless = {"transaction_timeout_ms": 600_000}
    with app.process("first", signal_at=(step, 3, signal.SIGKILL), settings=endless) as first:
        app.feed("the first worker is killed", lambda: not first.alive)
        assert first.wait() == -signal.SIGKILL, first.said
    app.add_lines(LINES // 3)
    with app.process("second", settings=endless) as second:
        app.wait()
        second.stop()
    app.assert_exact()


def killed_at_random(kafka: str, folder: Path) -> None:
    """Two workers share a state folder; three times one of them is killed while both work, and started again."""
    seed = 7
    print(f"seed {seed}")
    rng = random.Random(seed)
    app = Application(kafka, "kill-random", folder)
    workers = [app.process(), app.process()]
    try:
        for _ in range(3):
            assert all(w.alive for w in workers), "\n".join(w.said for w in workers)
            app.add_lines(LINES)
            time.sleep(rng.uniform(1.0, 3.0))
            victim = rng.randrange(2)
            workers[victim].kill()
            app.add_lines(LINES // 3)
            workers[victim] = app.process()
        app.wait()
        for worker in workers:
            worker.stop()
    finally:
        for worker in workers:
            worker.__exit__()
    app.assert_exact()


def zombie(kafka: str, folder: Path, step: CommitStep) -> None:
    """Frozen for longer than its session while it holds a commit, replaced, and woken up again."""
    app = Application(kafka, f"zombie-{step}", folder)
    app.add_lines(LINES)
    with app.process("first", signal_at=(step, 3, signal.SIGSTOP)) as first:
        app.feed("the first worker is frozen", lambda: "signal at" in first.said)
        started = time.monotonic()
        with app.process("second") as second:
            time.sleep(max(8.0 - (time.monotonic() - started), 0))
            app.wait()
            first.signal(signal.SIGCONT)
            app.add_lines(LINES // 3)
            app.wait()
            # The woken one has joined again and owns its share.
            until("the zombie is a member again", lambda: not first.alive or app.admin.group_members(app.name) == 2)
            assert first.alive, first.said
            app.add_lines(LINES // 3)
            app.wait()
            assert first.alive, first.said
            first.stop()
            second.stop()
    app.assert_exact()


def at_least_once_killed(kafka: str, folder: Path) -> None:
    """Kills at four steps, one after the other, on one state folder."""
    app = Application(kafka, "alo", folder, "at_least_once")
    app.add_lines(LINES)
    for step in ("sent", "flushed", "committed"):
        with app.process(signal_at=(step, 2, signal.SIGKILL)) as worker:
            app.feed("the worker is killed", lambda: not worker.alive)
            assert worker.wait() == -signal.SIGKILL, worker.said
        app.add_lines(LINES // 3)
    with app.process() as worker:
        app.wait()
        worker.stop()
    counts = app.counts()
    assert all(max(counts[word]) >= n for word, n in app.wanted.items())


def stopped_well(kafka: str, folder: Path) -> None:
    """SIGTERM commits and leaves; the next start restores nothing."""
    app = Application(kafka, "sigterm", folder)
    app.add_lines(LINES)
    with app.process(settings=UNDISTURBED) as first:
        until("it works", lambda: len(app.read(app.output)) > 500)
        first.stop()
    # One that had died without leaving would count until its session is over.
    until("it has left", lambda: app.admin.group_members(app.name) == 0, UNDISTURBED["session_timeout_ms"] / 2_000)
    with app.process(settings=UNDISTURBED) as second:

        def restored() -> list[str]:
            return [line for line in second.said.splitlines() if line.startswith("restored")]

        app.wait()
        # The first may have done all the work, and then nothing but these lines says that the second has its tasks.
        until("every task's store is back", lambda: len({line.partition(":")[0] for line in restored()}) == PARTITIONS)
        second.stop()
    assert all(line.endswith(" 0 records") for line in restored()), restored()
    app.assert_exact()


def fixed(kafka: str, folder: Path) -> None:
    """Two workers with fixed partitions; one is frozen and replaced, and ends when it wakes up."""
    app = Application(kafka, "fixed", folder)
    app.add_lines(LINES)
    other = app.process("other", partitions=[1, 3])
    try:
        with app.process("first", partitions=[0, 2], signal_at=("flushed", 3, signal.SIGSTOP)) as first:
            app.feed("the first worker is frozen", lambda: "signal at" in first.said)
            with app.process("second", partitions=[0, 2]) as second:
                app.wait()
                first.signal(signal.SIGCONT)
                assert first.wait() == 1
                assert "TaskMigratedError" in first.said
                assert "start it again when no other runs" in first.said
                app.add_lines(LINES // 3)
                app.wait()
                second.stop()
        other.stop()
    finally:
        other.__exit__()
    app.assert_exact()


CASES: dict[str, Callable[[str, Path], None]] = {
    **{f"killed after {step}": partial(killed_at, step=step) for step in STEPS},
    **{f"taken over after {step}": partial(taken_over, step=step) for step in ("sent", "offsets_added")},  # type: ignore[arg-type]  # steps
    "killed at random": killed_at_random,
    "zombie before its positions are added": partial(zombie, step="flushed"),
    "zombie before its commit": partial(zombie, step="offsets_added"),
    "at least once, killed": at_least_once_killed,
    "stopped by SIGTERM": stopped_well,
    "fixed partitions": fixed,
}


@pytest.fixture(scope="module")
def running(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[None]]]:
    """Every case, a few at once, the long ones first."""
    order = sorted(CASES, key=lambda name: name.startswith("killed after"))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {name: pool.submit(CASES[name], kafka, tmp_path_factory.mktemp("kills")) for name in order}


@pytest.mark.parametrize("case", CASES)
def test_exactly_what_was_promised(case: str, running: dict[str, Future[None]]) -> None:
    running[case].result()
