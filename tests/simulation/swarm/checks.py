"""The invariants, by their numbers in the plan of reliability: cheap ones after each event, all of them at the end."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.state.log import TaskId, TopicPartition
from penstock.state.recovery.changelog import changelog_topic
from penstock.state.recovery.position import decode_position
from penstock.state.stores.store import StoreSpec
from penstock.streams.runtime.commit_protocol import start_positions
from penstock.streams.runtime.foreign_writes import changelog_of
from penstock.streams.task.task import Task
from penstock.streams.task.task_stores import CommittedPositions
from penstock.streams.testing.memory_clients import MemoryConsumer
from tests.simulation.swarm.disks import BadBlocks, SwarmDisk
from tests.simulation.swarm.history import APP, Violation
from tests.simulation.swarm.programs import Seen
from tests.simulation.world import SimClock, SimRestoring

if TYPE_CHECKING:
    from tests.simulation.swarm.run import Swarm

EVERY_EVENTS = 31
"""Between two looks at all the stores, also those whose position is as before."""
RESTORED_EVERY_EVENTS = 307
"""Between two restores on a host that has nothing yet."""
RESTORES_MAX = 50
NEVER = b"never"
"""Instead of a position: no look was taken yet."""


def look(swarm: Swarm) -> None:
    """After an event. Positions and transactions are looked at by the log itself."""
    for node in swarm.nodes:
        for task in node.runtime.tasks.values():
            if task.dropped and not swarm.log.broken:
                raise Violation(f"I9 task {task.id} of {node.name} dropped {dict(task.dropped)}")
    stores_are_folds(swarm, changed=swarm.event % EVERY_EVENTS != 0)
    if swarm.event % RESTORED_EVERY_EVENTS == 0:
        restores_are_folds(swarm)


def stores_are_folds(swarm: Swarm, *, changed: bool = False) -> None:
    """I5: each store on each disk, of the living and the dead, is the fold of the visible records of its changelog up to
    its own position; so it holds nothing that is not committed (I10), from wherever it was restored (I11). ``changed``:
    look only at those whose position is another one than at the last look."""
    for slot in swarm.slots:
        for task_id, backend in slot.disk.backends.items():
            if slot.busy or backend.damaged is not None:
                continue
            assert isinstance(backend, BadBlocks)
            for _, spec in swarm.specs([task_id]):
                place, raw = (task_id, spec.name), backend.position(spec.name)
                if place in slot.disk.half or (changed and slot.folded.get(place, NEVER) == raw):
                    continue
                _is_fold(swarm, f"{slot.index} {slot.name}", task_id, spec, backend)
                slot.folded[place] = raw


def restores_are_folds(swarm: Swarm) -> None:
    """I6 in the middle of a run: who has nothing, and would take a task over now, comes to the fold of what is committed.
    Not while a commit is decided, for which a worker waits; nor where workers must refuse."""
    if not swarm.exact or swarm.log.broken or swarm.doomed:
        return
    tasks = {task.id: task for node in swarm.nodes for task in node.runtime.tasks.values()}
    for task_id, task in sorted(tasks.items()):
        inputs = [TopicPartition(topic, task_id.partition) for topic in task.topics]
        if not task.stores or swarm.log.pending_offsets(APP, inputs):
            continue
        with swarm.looking():
            fresh, committed = _restored(swarm, task)
        if fresh is None:
            continue
        for _, spec in swarm.specs([task_id]):
            end = _is_fold(swarm, "a host without state", task_id, spec, fresh)
            if end < committed.get(spec.name, 0):
                raise Violation(f"I6 store {spec.name} of {task_id} is restored up to {end}, and not {committed}")


def _is_fold(swarm: Swarm, whose: str, task_id: TaskId, spec: StoreSpec, backend: BadBlocks) -> int:
    """Raise ``Violation`` if it is not; the offset that the store stands at."""
    held, raw = backend.contents(spec.name), backend.position(spec.name)
    end = 0 if raw is None else decode_position(raw).changelog_offset
    tp = TopicPartition(changelog_topic(APP, spec), task_id.partition)
    folded = swarm.log.folds.at((whose, tp), tp, spec, end)
    if swarm.program.expires:
        folded = {k: v for k, v in folded.items() if k in held}
    if held != folded:
        what = sorted(k for k in held.keys() | folded.keys() if held.get(k) != folded.get(k))
        raise Violation(
            f"I5 store {spec.name} of {task_id} on {whose} at offset {end} is not the fold of its changelog: "
            f"{[(k, held.get(k), folded.get(k)) for k in what[:3]]}"
        )
    return end


def judge(swarm: Swarm) -> None:
    """At rest, after all faults are over."""
    stores_are_folds(swarm)
    contents = {}
    for node in swarm.nodes:
        for task in node.runtime.tasks.values():
            backend = task.backend
            for name in task.stores:
                assert isinstance(backend, BadBlocks)
                contents[task.id, name] = backend.contents(name)
            _restores_equal(swarm, task)
            _changelogs_are_answered(swarm, task)
    seen = Seen(
        lambda topic: [(e.key or b"", e.value) for _, e in swarm.log.committed_records(topic)],
        contents,
        swarm.exact,
        swarm.exact or (not swarm.plan.queue_max_records and not any(f.place == "send" for f in swarm.struck)),
    )
    wrong = list(swarm.program.judge(seen))
    if wrong:
        raise Violation("; ".join(wrong[:4]))


def _restored(swarm: Swarm, task: Task) -> tuple[BadBlocks | None, dict[str, int]]:
    """The task's stores on a host without local state, and where the commit says that their changelogs end. ``None``: the
    log has something undecided, for which a worker would wait."""
    reader = MemoryConsumer(swarm.log, APP)
    start = start_positions(reader, [TopicPartition(t, task.id.partition) for t in task.topics])
    changelogs: dict[str, int] = {}
    for _, noted in start.values():
        changelogs |= noted.changelogs
    committed_only = not swarm.exact
    restoring = SimRestoring(
        swarm.log, SwarmDisk(), random.Random(0), SimClock(swarm.log), committed_only=committed_only
    )
    specs = [spec for _, spec in swarm.specs([task.id])]
    restoring.submit(task.id, specs, CommittedPositions({t: offset for t, (offset, _) in start.items()}, changelogs))
    for _ in range(RESTORES_MAX):
        for _, stores in restoring.finished():
            if not isinstance(stores, BaseException):
                assert isinstance(stores.backend, BadBlocks)
                return stores.backend, changelogs
    return None, changelogs


def _restores_equal(swarm: Swarm, task: Task) -> None:
    """I6: another host without local state comes to the same stores, from the log as it was cleaned."""
    if not task.stores or not isinstance(task.backend, BadBlocks):
        return
    fresh, _ = _restored(swarm, task)
    if fresh is None:
        raise Violation(f"I6 {task.id} cannot be restored after {RESTORES_MAX} tries, and all faults are over")
    for name in task.stores:
        held, restored = task.backend.contents(name), fresh.contents(name)
        if swarm.program.expires:
            restored = {k: v for k, v in restored.items() if k in held}
        if swarm.program.expires and swarm.facts.kinds["SnapshotUsed"]:
            # of an older snapshot: windows that have expired, and are gone from the log's begin
            held = {k: v for k, v in held.items() if not restored or k >= min(restored)}
        if held != restored:
            raise Violation(f"I6 store {name} of {task.id} is restored as {restored}, and is {held}")


def _changelogs_are_answered(swarm: Swarm, task: Task) -> None:
    """I12: nothing that another worker wrote to a changelog is left behind the owner's values."""
    if swarm.exact or not isinstance(task.backend, BadBlocks):
        return
    for name, state in task.stores.items():
        if state.spec.source_topic is not None:
            continue
        held = task.backend.contents(name)
        folded = swarm.log.folded(changelog_of(task, state.spec), state.spec)
        if swarm.program.expires:
            folded = {k: v for k, v in folded.items() if k in held}
        if held != folded:
            raise Violation(f"I12 the changelog of {name} of {task.id} ends as {folded}, and the store is {held}")


def committed_ends(tasks: Sequence[Task]) -> dict[TopicPartition, int]:
    """Where the last commits wrote the changelogs up to."""
    return {
        changelog_of(task, task.stores[name].spec): end
        for task in tasks
        for name, end in task.changelog_ends.items()
        if end and task.stores[name].spec.source_topic is None
    }
