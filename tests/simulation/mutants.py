"""Faults planted one at a time, and a seed of the swarm that finds each: ``python -m tests.simulation.mutants``.

A mutant is a line of the product (or, where it stands for an adapter, of the model) that is replaced in the running process.
One that no seed finds is a defect of the simulation.
"""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import multiprocessing
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.state.recovery import changelog, restore_decision
from penstock.state.snapshots.repository import StoredSnapshots
from penstock.streams.runtime import commit_protocol, compaction_guard, foreign_writes
from penstock.streams.runtime.assignment import Assignment
from penstock.streams.runtime.changelog_epochs import ChangelogEpochs
from penstock.streams.runtime.commit_group import CommitGroup
from penstock.streams.runtime.commit_producer import CommitProducer
from penstock.streams.runtime.commit_protocol import Committer
from penstock.streams.runtime.fixed_fence import FixedFence
from penstock.streams.runtime.foreign_writes import ForeignWrites
from penstock.streams.runtime.membership_lease import MembershipLease
from penstock.streams.runtime.runtime import Runtime
from penstock.streams.runtime.topic_watch import TopicWatch
from penstock.streams.task import begun_positions
from penstock.streams.task.external_calls import ExternalCalls
from penstock.streams.task.own_positions import OwnPositions
from penstock.streams.task.task import Task
from penstock.streams.task.task_clock import TaskClock
from penstock.streams.task.task_stores import TaskStores
from penstock.streams.testing.memory_groups import MemoryGroup
from penstock.streams.worker.task_opener import TaskOpener
from tests.simulation.mutant_table import Found, page, row
from tests.simulation.swarm.hunt import run_seed

SEEDS = 500
PAGE = Path(__file__).with_name("MUTANTS.md")


@dataclasses.dataclass(frozen=True)
class Mutant:
    """In ``function`` of ``owner`` (a class or a module) the text ``old`` becomes ``new``."""

    name: str
    owner: Any
    function: str
    old: str
    new: str
    also: Mutant | None = None
    """Planted too: a second defence that would hide the first one's absence."""

    def plant(self) -> Callable[[], None]:
        """Put it in; what is returned takes it out."""
        before = vars(self.owner)[self.function]
        plain = before.fget if isinstance(before, property) else before
        source = textwrap.dedent(inspect.getsource(plain))
        if source.count(self.old) != 1:
            raise ValueError(f"mutant {self.name}: {self.old!r} is {source.count(self.old)} times in {self.function}")
        names = dict[str, Any]()
        source = source.removeprefix("@property\n").replace(self.old, self.new)
        code = compile("from __future__ import annotations\n" + source, self.name, "exec")
        exec(code, plain.__globals__, names)
        planted = property(names[self.function]) if isinstance(before, property) else names[self.function]
        homes = [self.owner, *_importers(self.owner, self.function, before)]
        for home in homes:
            setattr(home, self.function, planted)
        further = self.also.plant() if self.also is not None else lambda: None

        def take_out() -> None:
            further()
            for home in homes:
                setattr(home, self.function, before)

        return take_out


def _importers(owner: Any, function: str, before: Any) -> list[Any]:
    """The modules that have imported a function of a module by its name, which keep theirs."""
    if not inspect.ismodule(owner):
        return []
    return [m for m in list(sys.modules.values()) if m is not owner and vars(m).get(function) is before]


_WRITE_FIRST = """
    from penstock.streams.task.commit_work import store_writes
    for task, work in works:
        places = {name: self._position_of(task, name, now_ms) for name in work.pending}
        task.backend.commit(store_writes(work, task.stores, places))
    self._in_doubt.add(offsets)"""

_UNPROVED = Mutant(
    "ownership is not proved before an age is given",
    Committer,
    "prove",
    "young =",
    "self._proved_ms = now_ms; return\n    young =",
)

_NO_EPOCHS = Mutant("leaders' epochs are not compared", ChangelogEpochs, "_look", "known != epoch", "False")

_TWINS_STAY = Mutant(
    "fenced twins of static members join again",
    MemoryGroup,
    "check_instance",
    "if current is not None and",
    "if False and",
)

MUTANTS = [
    # the commit
    Mutant("commits are not fenced by the membership", Committer, "commit_log", "self._fence()", "'app'"),
    Mutant(
        "stores are written before the commit",
        Committer,
        "_commit_busy",
        "\n    self._in_doubt.add(offsets)",
        _WRITE_FIRST,
    ),
    Mutant(
        "unknown outcome is taken for done",
        Committer,
        "_happened",
        "self.retire(cause)",
        "self.retire(cause); self.open(); return True",
    ),
    Mutant(
        "producers are opened without init_transactions",
        CommitProducer,
        "open",
        "producer.init_transactions(self.timeouts.transaction_s * 3)",
        "pass",
    ),
    Mutant(
        "positions of others are taken over",
        Committer,
        "_restart_tasks",
        "elif not task.own_positions.are(starts[task.id]):",
        "elif False:",
        _UNPROVED,
    ),
    Mutant(
        "only offsets of positions are compared",
        OwnPositions,
        "are",
        "found[topic] in ((p.offset, commit_metadata.decode(p.metadata)) for p in self._own(topic))",
        "found[topic][0] == self.known[topic].offset",
        _UNPROVED,
    ),
    Mutant(
        "a commit in doubt is forgotten", Committer, "_restart_tasks", "behind += [task] if task.stores else []", "pass"
    ),
    Mutant("stale stores are not reopened", CommitGroup, "reopen_stale", "self.committer.take_stale()", "[]"),
    Mutant(
        "idle tasks keep what they have after a commit of unknown outcome",
        Committer,
        "_commit_busy",
        "self._restart_tasks(tasks)",
        "self._restart_tasks(busy)",
    ),
    Mutant(
        "a worker of fixed partitions fences before it looks",
        Committer,
        "_restart_tasks",
        "self._refuse_foreign([*tasks, *damaged])",
        "pass",
    ),
    Mutant(
        "inputs are not read again after an abort",
        Committer,
        "_restart_tasks",
        "self.consumer.seek(tp, starts[task.id][tp.topic][0])",
        "pass",
    ),
    Mutant(
        "inputs are read again from one too far", Committer, "_restart_tasks", "[tp.topic][0])", "[tp.topic][0] + 1)"
    ),
    Mutant("an abort keeps what stores hold", Task, "discard", "state.discard()", "pass"),
    Mutant("an abort keeps outputs", Task, "discard", "self._outputs.clear()", "pass"),
    Mutant(
        "one input's position is not committed",
        Task,
        "offsets",
        "in work.positions.items()",
        "in sorted(work.positions.items())[:1]",
    ),
    Mutant(
        "the committed position is one too far",
        Task,
        "offsets",
        "offset, commit_metadata.encode(noted)",
        "offset + 1, commit_metadata.encode(noted)",
    ),
    Mutant(
        "changelogs are written to the first partition",
        Committer,
        "_send",
        "partition=o.partition",
        "partition=0 if o.partition is not None else None",
    ),
    _UNPROVED,
    Mutant("damaged stores are kept", CommitGroup, "recover", "for task in damaged:", "for task in []:"),
    Mutant("a failed commit is not undone", CommitGroup, "abort", "self.roll_back()", "pass"),
    # at least once
    Mutant(
        "earlier positions are committed again over a commit in doubt",
        Committer,
        "_ask",
        "self._in_doubt.last or ",
        "",
        Mutant("the same by a proof", Committer, "prove", "self._in_doubt.last or ", ""),
    ),
    Mutant("at-least-once sends without a lease", MembershipLease, "over", "self._granted_s is None or", "False and"),
    Mutant("old events leave a changelog without a guard", compaction_guard, "guard", "if guarded(spec)", "if False"),
    Mutant(
        "brokers clean behind the last commit", changelog, "changelog_configs", "if tails and guarded(spec)", "if False"
    ),
    Mutant(
        "a new owner does not commit where changelogs begin",
        begun_positions,
        "begun_positions",
        "if own.complete:",
        "if True:",
    ),
    Mutant("what others wrote is not answered", ForeignWrites, "answer", "if self._answers:", "if False:"),
    Mutant("what others wrote is not looked for", ForeignWrites, "look", "end > known and self._answers", "False"),
    Mutant(
        "at-least-once restores past the committed end",
        TaskOpener,
        "_asked_facts",
        "if self._committed_only and written is not None:",
        "if False:",
    ),
    # restore
    Mutant("the age of deletions is ignored", restore_decision, "_distrust", "if age_ms > limit_ms:", "if False:"),
    Mutant(
        "a store before the log's begin is kept", restore_decision, "_distrust", "offset < log.begin_offset", "False"
    ),
    Mutant(
        "a restore begins one too far",
        restore_decision,
        "decide",
        "max(stored.changelog_offset, log.begin_offset)",
        "max(stored.changelog_offset, log.begin_offset) + 1",
    ),
    Mutant(
        "a restore begins afresh on old data",
        TaskOpener,
        "_restore",
        "self._directory.quarantine(str(task), decision.reason)",
        "pass",
    ),
    Mutant(
        "a restore that was interrupted makes old state young",
        TaskOpener,
        "_restore",
        "begun_ms = min(stored.wall_time_ms, asked_ms)",
        "pass",
    ),
    Mutant("a restore ends one too early", TaskOpener, "_replay", "stop = len(chunk)\n", "stop = len(chunk) - 1\n"),
    Mutant("a closed task keeps its lock", TaskStores, "close", "self.lock.release()", "pass"),
    # snapshots
    Mutant(
        "a snapshot is read on from one too far",
        restore_decision,
        "decide_afresh",
        "max(offset, log.begin_offset)",
        "max(offset, log.begin_offset) + 1",
    ),
    Mutant(
        "the age of a snapshot is not checked",
        restore_decision,
        "why_not",
        "wall_time_ms=manifest.created_ms",
        "wall_time_ms=now_ms",
    ),
    Mutant(
        "a damaged snapshot is taken",
        StoredSnapshots,
        "_fetch_file",
        "size != file.size_bytes or digest != file.sha256",
        "False",
    ),
    Mutant(
        "a snapshot past the last commit is taken", restore_decision, "_distrust", "offset > log.end_offset", "False"
    ),
    # retention
    Mutant(
        "changelogs of windows are kept by time",
        changelog,
        "changelog_configs",
        "**KEPT_FOR_EVER",
        "'retention.ms': '2000'",
    ),
    # the journal
    Mutant(
        "answers of the world outside are not journaled",
        ExternalCalls,
        "ask",
        "self._note(Answers(self._positions(), operator, encoded))",
        "pass",
    ),
    Mutant("timers follow a clock that goes back", TaskClock, "punctuate", "now_ms <= self.wall_ms or ", ""),
    Mutant("the journal of a commit is written again", Task, "committed", "self.feed.cuts.clear()", "pass"),
    # the changelogs' own losses
    Mutant(
        "a commit does not see that records were lost",
        foreign_writes,
        "require_whole",
        "ends[tp] - count < known",
        "False",
        _NO_EPOCHS,
    ),
    Mutant(
        "an idle worker does not see that records were lost",
        ForeignWrites,
        "look",
        "if now_s - since_s > SHORT_S:",
        "if False:",
        _NO_EPOCHS,
    ),
    _NO_EPOCHS,
    Mutant(
        "topics are not watched",
        TopicWatch,
        "turn",
        "if self._asked is not None:",
        "return\n    if self._asked is not None:",
    ),
    Mutant(
        "the ids of inputs are not compared with those of their positions",
        Assignment,
        "_require_same",
        "if noted.topic_id and",
        "if False and",
    ),
    # the group
    Mutant("tasks are kept when the membership is lost", Runtime, "_on_lost", "self._leave(partitions)", "pass"),
    Mutant("work is kept when the membership is lost", Runtime, "_rejoin", "if due_before is None:", "if False:"),
    Mutant("a revocation that fails is not undone", Runtime, "_give_up", "group.roll_back()", "pass"),
    Mutant("the group does not fence fixed workers", FixedFence, "on_joined", "if not due:", "if True:"),
    _TWINS_STAY,
    Mutant(
        "a twin of a static member may commit",
        MemoryGroup,
        "check",
        "token.member_id not in self.members or ",
        "",
        _TWINS_STAY,
    ),
    Mutant(
        "records that come during a restore are lost",
        Runtime,
        "_feed",
        "self.consumer.seek(tp, chunk.offsets[0])",
        "pass",
    ),
    Mutant("a task begins at the log's begin", commit_protocol, "start_positions", "if committed is None:", "if True:"),
    Mutant(
        "a task begins before it is restored",
        Assignment,
        "take",
        "        if sub.stores:\n            self._restoring",
        "        if False:\n            self._restoring",
    ),
    Mutant(
        "partitions of another task are resumed",
        Assignment,
        "take_restored",
        "for t in self.tasks[task_id].topics]",
        "for t in self.tasks[task_id].topics[1:]]",
    ),
]


def known_seeds() -> dict[str, int]:
    """The seeds of the page, by the names of the faults."""
    rows = (line.removeprefix("| ").split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| "))
    return {row[0]: int(row[2]) for row in rows if row[2].isdecimal()}


def first_found(task: tuple[int, int]) -> tuple[int, int | None, int, str]:
    """The mutant's index, a seed that finds it, after how many events, and what it saw. The seed of the page is tried
    first, then so many from 0."""
    index, seeds = task
    known = known_seeds().get(MUTANTS[index].name, seeds)
    take_out = MUTANTS[index].plant()
    try:
        for seed in [*([known] if known < seeds else []), *range(seeds)]:
            result = run_seed(seed)
            if result.wrong is not None:
                return index, seed, result.events, result.wrong
    finally:
        take_out()
    return index, None, 0, ""


def main() -> int:
    """Print the table, and write it down if it is whole; 1 when a mutant survives."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutants", description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--only", help="mutants whose names hold this")
    parser.add_argument("--processes", type=int, default=2)
    args = parser.parse_args()
    tasks = [(i, args.seeds) for i, m in enumerate(MUTANTS) if not args.only or args.only in m.name]
    found: list[Found] = []
    with multiprocessing.get_context("spawn").Pool(args.processes, maxtasksperchild=1) as pool:
        for index, seed, events, wrong in pool.imap(first_found, tasks, chunksize=1):
            mutant = MUTANTS[index]
            home = f"{mutant.owner.__name__.rpartition('.')[2]}.{mutant.function}"
            found.append(Found(mutant.name, home, seed, events, wrong))
            print(row(found[-1]), flush=True)
    survived = sum(f.seed is None for f in found)
    print(f"{len(tasks)} mutants, {survived} survive {args.seeds} seeds")
    if len(tasks) == len(MUTANTS) and args.seeds >= SEEDS:
        PAGE.write_text(page(found, args.seeds))
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
