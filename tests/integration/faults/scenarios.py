"""How each failpoint is reached on a real broker, and what must be true when a worker was killed or frozen there.

A case is an application of its own. First a worker counts some lines and stops in order, so that its stores are on the disk
and need no full restore later. Then a scenario leads a worker to its failpoint, where it is killed (its state folder goes to
the next worker) or frozen for longer than its session (another worker, with a folder of its own, does its work; then it
wakes). In the end every word has each of its counts once, in order: the test counts the words itself.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock.state.failpoints import FAILPOINTS
from penstock.streams.worker.failpoint_actions import VARIABLE
from tests.integration.faults.publisher import publish
from tests.integration.faults.workers import NOTE, CommandWorker, StruckApplication, passed_in
from tests.integration.worker.application import LIMIT_S, ROOT, until

LINES = 200
MORE = 60
WIDE_LINES = 1_600
ACTIONS = ("kill", "stop")
NTH = {"commit.": 3, "flush.": 2, "restore.chunk_written": 2}
"""Which passage is struck, by the begin of the name; else the first."""
ABORTING = ";".join(f"commit.flushed=raise:abortable@{nth}" for nth in range(3, 30, 6))
"""More than once: a busy broker may refuse to abort, and then the producer is replaced and no abort is answered."""


@dataclasses.dataclass
class Cast:
    """The processes of one case. ``struck``: the worker at its failpoint; ``other``: one that works besides it."""

    app: StruckApplication
    point: str
    action: str
    state: str = "state"
    """The folder of the struck one."""
    struck: CommandWorker | None = None
    other: CommandWorker | None = None
    keeps_positions: bool = True
    """Whether its stores are on the disk, at a position."""
    settings: dict[str, int] = dataclasses.field(default_factory=dict)
    """Of the struck worker."""
    published: set[str] = dataclasses.field(default_factory=set)
    """The failpoints that a publisher has passed."""

    def __post_init__(self) -> None:
        self.started: list[CommandWorker] = []

    def worker(self, state: str, strike: str = "") -> CommandWorker:
        made = self.app.worker(state, strike)
        self.started.append(made)
        return made

    def strike(self, *before: str) -> CommandWorker:
        """Start the worker that is to be struck. ``before``: orders that lead to the point."""
        nth = next((n for begin, n in NTH.items() if self.point.startswith(begin)), 1)
        order = ";".join([*before, f"{self.point}={self.action}@{nth}"])
        self.struck = self.app.worker(self.state, order, **self.settings)
        self.started.append(self.struck)
        return self.struck

    @property
    def was_struck(self) -> bool:
        assert self.struck is not None
        return f"{self.point}: {self.action}" in self.struck.struck

    def fed(self) -> None:
        """Write lines until it is struck."""
        assert self.struck is not None
        self.app.feed(f"{self.point} is struck; it said:\n{self.struck.said}", lambda: self.was_struck)

    @property
    def passed(self) -> set[str]:
        """The failpoints that any of them has passed."""
        return self.published.union(*(worker.passed for worker in self.started))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self.started:
            worker.kill()
        if kind is not None:
            for worker in self.started:
                print(f"--- {worker.log.name}\n{worker.said}")


# -- how to get there --------------------------------------------------------------------------------------------------


def at_work(cast: Cast) -> None:
    cast.strike()
    cast.fed()


def aborting(cast: Cast) -> None:
    cast.strike(ABORTING)
    cast.fed()


def restoring(cast: Cast) -> None:
    """A host without any state."""
    cast.state, cast.keeps_positions = "fresh", False
    cast.strike()
    cast.fed()


def damaged(cast: Cast) -> None:
    current = next((cast.app.folder / cast.state).rglob("rocksdb/CURRENT"))
    current.write_bytes(b"")
    cast.keeps_positions = False
    cast.strike()
    cast.fed()


def from_snapshot(cast: Cast) -> None:
    cast.app.snapshots = cast.app.folder / "snapshots"
    publish(cast.app.bootstrap_servers, cast.app.name, str(cast.app.snapshots))
    restoring(cast)


def rebalancing(cast: Cast) -> None:
    struck = cast.strike()
    until("it works", lambda: "commit.stores_written" in struck.passed)
    cast.other = cast.worker("other")
    cast.fed()


def removed(cast: Cast) -> None:
    """Frozen while idle, replaced, and told so by the group when it wakes: nothing else must ask before."""
    cast.settings = {"state_flush_interval_ms": 600_000}
    struck = cast.strike()
    cast.app.wait()
    struck.signal(signal.SIGSTOP)
    cast.other = cast.worker("other")
    cast.app.add_lines(MORE)
    cast.app.wait()
    struck.signal(signal.SIGCONT)
    until(f"{cast.point} is struck", lambda: cast.was_struck)


def stopping(cast: Cast) -> None:
    struck = cast.strike()
    until("it works", lambda: "commit.stores_written" in struck.passed)
    cast.app.wait()
    struck.signal(signal.SIGTERM)
    until(f"{cast.point} is struck", lambda: cast.was_struck)


def inheriting(cast: Cast) -> None:
    """Another one died with a transaction open."""
    dead = cast.worker("dead", "commit.sent=kill@3")
    cast.app.feed("one dies", lambda: not dead.alive)
    cast.strike()
    cast.fed()


def writing_much(cast: Cast) -> None:
    """So many keys that they are written as a table file."""
    values = [" ".join(f"wide{i:05d}x{j}" for j in range(8)) for i in range(WIDE_LINES)]
    cast.app.write(cast.app.source, [v.encode() for v in values])
    cast.app.wanted.update(word for value in values for word in value.split())
    helper = cast.worker("state")
    cast.app.wait()
    helper.stop()
    restoring(cast)


def publishing(cast: Cast) -> None:
    """Two compactions; the second one is struck, and workers restore from what is there."""
    app = cast.app
    app.snapshots = app.folder / "snapshots"
    app.snapshots.mkdir()
    publish(app.bootstrap_servers, app.name, str(app.snapshots))
    log = app.folder / "publisher.log"
    env = {**os.environ, VARIABLE: f"{NOTE};{cast.point}={cast.action}@2"}
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT / ".package"), str(ROOT)])
    args = [app.bootstrap_servers, app.name, str(app.snapshots)]
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.faults.publisher", *args],
            stdout=out,
            stderr=out,
            env=env,
            cwd=ROOT,
        )
    try:
        until("it is struck", lambda: f"failpoint {cast.point}: {cast.action}" in log.read_text())
        cast.state, cast.keeps_positions = "fresh", False
        cast.struck = cast.worker(cast.state)
        app.add_lines(MORE)
        app.wait()
        publish(app.bootstrap_servers, app.name, str(app.snapshots))
        if cast.action == "stop":
            process.send_signal(signal.SIGCONT)
            assert process.wait(LIMIT_S) == 0, log.read_text()
        assert process.wait(LIMIT_S) == (0 if cast.action == "stop" else -signal.SIGKILL)
        cast.published |= passed_in(log.read_text())
        cast.struck.stop()
        last = cast.worker("last")
        app.add_lines(MORE)
        app.wait()
        last.stop()
        assert all(offset > 0 for _, offset, _ in last.restores), f"the newest snapshot was not used: {last.said}"
    finally:
        process.kill()
        process.wait()


SCENARIOS: dict[str, Callable[[Cast], None]] = {
    **{
        name: at_work
        for name in FAILPOINTS
        if name.split(".")[0] in ("commit", "producer", "identity", "assign", "flush")
    },
    **dict.fromkeys(("restore.locked", "restore.opened", "restore.decided"), at_work),
    **dict.fromkeys(("abort.asked", "abort.answered"), aborting),
    "fence.answered": inheriting,
    **dict.fromkeys(("revoke.begun", "revoke.closing", "revoke.closed"), rebalancing),
    "lost.begun": removed,
    "stop.released": stopping,
    **dict.fromkeys(("restore.chunk_written", "restore.ended"), restoring),
    "restore.quarantined": damaged,
    **dict.fromkeys(("ingest.fetched", "ingest.done"), from_snapshot),
    "write.file_made": writing_much,
    **{name: publishing for name in FAILPOINTS if name.split(".")[0] in ("publish", "prune")},
}


# -- what must be true -------------------------------------------------------------------------------------------------


def strike(servers: str, folder: Path, point: str, action: str) -> set[str]:
    """One case; returns the failpoints that were passed in it."""
    app = StruckApplication(servers, f"{action}-{point.replace('.', '-').replace('_', '-')}", folder)
    app.add_lines(LINES)
    with Cast(app, point, action) as cast:
        first = cast.worker(cast.state)
        app.wait()
        first.stop()
        app.add_lines(MORE)
        SCENARIOS[point](cast)
        if SCENARIOS[point] is not publishing:
            (killed if action == "kill" else frozen)(cast)
        passed = cast.passed | {point}
    app.assert_exact()
    return passed


def killed(cast: Cast) -> None:
    """The next worker has its folder."""
    assert cast.struck is not None
    assert cast.struck.wait() == -signal.SIGKILL, cast.struck.said
    heir = cast.worker(cast.state)
    cast.app.add_lines(MORE)
    cast.app.wait()
    heir.stop()
    if cast.other is not None:
        cast.other.stop()
    if cast.keeps_positions:
        needless = [restore for restore in heir.restores if restore[1] == 0]
        assert not needless, f"restored in full, though its stores were on the disk: {needless}"
    assert not heir.reported("StoreQuarantined"), heir.said


def frozen(cast: Cast) -> None:
    """Another worker does all of its work, then it wakes and goes on, or ends if it was about to."""
    assert cast.struck is not None
    other = cast.other or cast.worker("other")
    cast.app.add_lines(MORE)
    cast.app.wait()
    cast.struck.signal(signal.SIGCONT)
    cast.app.add_lines(MORE)
    cast.app.wait()
    if cast.point == "stop.released":
        assert cast.struck.wait() == 0, cast.struck.said
    else:
        assert cast.struck.alive, cast.struck.said
        cast.struck.stop()
    cast.app.add_lines(MORE)
    cast.app.wait()
    assert other.alive, other.said
    other.stop()
