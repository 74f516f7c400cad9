"""One run: workers turned in a drawn order, faults where the plan has them, then everything healed and judged."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from penstock.state.errors import (
    IncompatibleError,
    PenstockError,
    RetriableError,
    SettingsError,
    StateCorruptedError,
    TaskMigratedError,
)
from penstock.state.log import TaskId, TopicPartition
from penstock.state.recovery.changelog import changelog_topic
from penstock.state.snapshots.repository import open_repository
from penstock.state.stores.store import StoreSpec
from penstock.streams.events.port import EventSink
from penstock.streams.ports.log import AbortableError, ProducerRetiredError, UnknownOutcomeError
from penstock.streams.ports.log_errors import OffsetOutOfRangeError
from penstock.streams.runtime.fixed_fence import fixed_id
from penstock.streams.testing.memory_clients import MemoryAdmin
from penstock.streams.testing.memory_log import LogEntry, Transaction
from tests.simulation.sim_clock import BEGAN_MS
from tests.simulation.swarm import checks, losses
from tests.simulation.swarm.disks import SwarmDisk
from tests.simulation.swarm.faults import Fault, Plan
from tests.simulation.swarm.history import APP, HistoryLog, Violation
from tests.simulation.swarm.journals import InTurn, JournalOracle
from tests.simulation.swarm.openings import OpenedRestoring
from tests.simulation.swarm.oracle import Oracle
from tests.simulation.swarm.programs import PROGRAMS
from tests.simulation.swarm.slots import RevocationsSeen, Slot
from tests.simulation.swarm.snapshots import Publisher, damage
from tests.simulation.world import TURN_MS, Crash, Disk, Node, SimClock, World

DELETIONS_KEPT_MS = 12_000
RESTART_MS = 500
HEALED_EVENTS_MAX = 6_000
REFUSED_EVENTS_MAX = 1_500
ANSWERED_MS = 4_000
"""Within which an owner answers what others wrote to its changelogs."""
ERRORS = {
    "abortable": lambda: AbortableError("refused by the swarm"),
    "retriable": lambda: RetriableError("no answer, by the swarm"),
    "retired": lambda: ProducerRetiredError("given up by the swarm"),
    "unknown": lambda: UnknownOutcomeError("no answer to a commit, by the swarm"),
}
ENDS = (TaskMigratedError, AbortableError, ProducerRetiredError, RetriableError, UnknownOutcomeError, SettingsError)
"""With these a worker may end; its supervisor starts it again."""
REFUSALS = (IncompatibleError, OffsetOutOfRangeError)
"""With these it ends when a topic was made again, and stays away."""
FENCED = "another process has the same group_instance_id"
"""With this one of twins ends, and stays away."""


class Swarm:
    """See the module."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan = plan
        self.program = PROGRAMS[plan.program]
        self.exact = plan.guarantee == "exactly_once"
        self.log = HistoryLog(self.program.one_each, exact=self.exact)
        self.world = World(
            self.program.build(),
            plan.guarantee,
            partitions=plan.partitions,
            inputs=self.program.inputs,
            outputs=self.program.outputs,
            seed=plan.seed,
            queue_max_records=plan.queue_max_records,
            late_polls=plan.late_polls,
            late_chunks=plan.late_chunks,
            epochs_grow=plan.epochs_grow,
            incremental=plan.incremental,
            log=self.log,
        )
        self.world.named = plan.named
        if plan.incremental:
            self.log.incremental_group(APP).strict_epochs = plan.strict_epochs
        self.facts = RevocationsSeen(self._revoking)
        self.world.events = self.facts
        self.folder = folder
        self.snapshots = open_repository(folder / "snapshots")
        self.publisher = Publisher(self.log, self.snapshots, folder / "made")
        self.world.make_restoring = self._restoring
        self.log.passed, self.log.writer = self._passed, lambda: self._stack[-1].name if self._stack else "nobody"
        self.log.opening = self._opening
        if self.exact and self.program.step is not None:
            kept = next((s for s in self.world.topology.stores if s.name == self.program.kept), None)
            self.log.oracle = Oracle(self.program, kept, "" if kept is None else changelog_topic(APP, kept))
        if self.exact:
            self.log.journals = JournalOracle("out" if plan.program == "asked" else "")
        self.world.call_executor = InTurn(self._passed)
        admin = MemoryAdmin(self.log)
        for topic in self.changelogs:
            admin.set_topic_config(topic, {"delete.retention.ms": str(DELETIONS_KEPT_MS)})
        self.rng = random.Random(f"order {plan.seed}")
        self.slots: list[Slot] = []
        self.event = 0
        self.written = 0
        self.healed = self.doomed = self.refused = False
        self.struck: list[Fault] = []
        self._began_ms = BEGAN_MS if plan.young and not self.program.expires else 0
        self._step_ms = TURN_MS
        self._stack: list[Slot] = []
        self._armed: list[tuple[Fault, list[int]]] = []
        self._late: list[tuple[int, Transaction]] = []
        self._faults = [f for f in plan.faults if f.at < plan.events]
        for i in range(plan.workers):
            self._add(tuple(range(i, plan.partitions, plan.workers)) if plan.form == "fixed" else None)

    @property
    def changelogs(self) -> list[str]:
        """The topics."""
        return [t for t in self.log.topics if t.endswith("-changelog")]

    def _add(self, fixed: tuple[int, ...] | None, instance: str = "") -> Slot:
        own = f"i{len(self.slots)}" if self.plan.static else ""
        self.slots.append(Slot(len(self.slots), fixed, SwarmDisk(), instance or own))
        return self.slots[-1]

    @property
    def nodes(self) -> list[Node]:
        """Those that run."""
        return [s.node for s in self.slots if s.node is not None]

    # -- events --------------------------------------------------------------------------------------------------

    def run(self) -> str:
        """The whole run; returns the hash of its trace. Raises ``Violation``."""
        while self.event < self.plan.events and not self.refused:
            self._one_event()
        if self.log.broken:
            self._await_refusal(self.struck[-1].kind if self.struck else "a loss")
            return self._trace()
        self._heal()
        checks.judge(self)
        for fault in self.plan.faults:
            if fault.at >= self.plan.events:
                self._doom(fault)
                break
        return self._trace()

    def _trace(self) -> str:
        return hashlib.sha256(repr(self.log.trace).encode()).hexdigest()

    def _one_event(self) -> None:
        self.event += 1
        while self._faults and self._faults[0].at <= self.event and not self.healed:
            self._begin(self._faults.pop(0))
        each = self.plan.records / (2 * self.plan.events * self.plan.input_share)
        if self.written < self.plan.records and self.rng.random() < each:
            self._write(self.rng.randint(1, 3))
        self.log.advance(self._step_ms)
        for due in [late for late in self._late if late[0] <= self.log.now_ms]:
            self._late.remove(due)
            if self.log.open_transaction(due[1].transactional_id) is due[1]:
                self.log.end(due[1], "committed")
        able = [s for s in self.slots if not s.busy and not s.retired and s.down_until_ms <= self.log.now_ms]
        if able:
            self._turn(self.rng.choice(able))
            checks.look(self)

    def _write(self, count: int) -> None:
        for _ in range(count):
            topic, key, value, at = self.program.write(self.rng, self.written)
            self.world.write(topic, [(key, value, at + self._began_ms)])
            self.written += 1

    def _turn(self, slot: Slot) -> int:
        slot.busy = True
        slot.revoking, slot.looked = False, None
        self._stack.append(slot)
        done = 0
        try:
            self._passed("between")
            if slot.node is None:
                slot.node = self._started(slot)
            else:
                done = slot.node.runtime.step()
        except Crash:
            slot.node = None
            slot.down_until_ms = self.log.now_ms + slot.down_ms
            if slot.cut:
                slot.disk.lose_unflushed()
        except PenstockError as exc:
            self._ended(slot, exc)
        finally:
            self._stack.pop()
            slot.busy = False
        return done

    def _restoring(self, disk: Disk, clock: SimClock, events: EventSink) -> OpenedRestoring:
        assert isinstance(disk, SwarmDisk)
        return OpenedRestoring(
            self.log,
            disk,
            self.world.rng,
            clock,
            committed_only=not self.exact,
            events=events,
            snapshots=self.snapshots,
            folder=self.folder / "state",
        )

    def _publish(self, fault: Fault) -> None:
        """Of all stores that have a changelog of their own; every third fault leaves them damaged."""
        for sub, partitions in enumerate(self.world.layout.tasks):
            for task, spec in self.specs([TaskId(sub, p) for p in range(partitions)]):
                if spec.source_topic is None and spec.changelog:
                    made = self.publisher.publish(task, spec, SimClock(self.log).now_ms())
                    if fault.nth % 3 == 0:
                        damage(self.folder / "snapshots", made)

    def _started(self, slot: Slot) -> Node:
        node = Node(self.world, slot.name, slot.disk, slot.fixed, None, slot.instance, self._drift_of(slot))
        node.on_step = lambda step: self._passed(f"step:{step}")
        node.restoring.on_half = lambda: self._passed("restore")
        node.restoring.share_before = self.plan.restored_share
        return node

    def _drift_of(self, slot: Slot) -> float:
        """Of its host, whatever runs there."""
        rng = random.Random(f"drift {self.plan.seed} of {slot.index}")
        return rng.uniform(-self.plan.drift, self.plan.drift)

    def _ended(self, slot: Slot, exc: PenstockError) -> None:
        self.log.trace.append((slot.name, type(exc).__name__))
        node, slot.node = slot.node, None
        if self.log.broken and not self.doomed and isinstance(exc, REFUSALS):
            self.refused = slot.retired = True
            return
        if self.doomed and not isinstance(exc, ENDS):
            self.refused = slot.retired = True
            return
        if self.doomed:
            slot.retired = slot.retired or slot.fixed is not None
        elif self._twins(slot) and FENCED in str(exc):
            slot.retired = any(not s.retired for s in self._twins(slot))
        elif not isinstance(exc, ENDS) and not isinstance(exc, StateCorruptedError):
            raise Violation(f"I8 worker {slot.name} ended with {type(exc).__name__}: {exc}") from exc
        if node is not None:
            with suppress(PenstockError, Crash):  # the process ends anyway
                node.runtime.close()
        slot.down_until_ms = self.log.now_ms + RESTART_MS
        if isinstance(exc, TaskMigratedError | SettingsError) and slot.fixed is not None:
            slot.retired = any(self._replaces(s, slot) for s in self.slots)

    def _twins(self, slot: Slot) -> list[Slot]:
        """The others with its static id."""
        return [s for s in self.slots if s is not slot and s.instance and s.instance == slot.instance]

    def _waits_for_twin(self, slot: Slot) -> bool:
        """Under the broker's own protocol it is not let in while a twin is a member."""
        if not self.plan.incremental or slot.node is None or slot.node.runtime.tasks:
            return False
        members = self.log.group(APP).members.values()
        return any(m.instance_id == slot.instance and m.client_id != slot.name for m in members if m.instance_id)

    def _replaces(self, other: Slot, slot: Slot) -> bool:
        """Whether its partitions are another's, who was started later."""
        return other.index > slot.index and not other.retired and (other.fixed is None or other.fixed == slot.fixed)

    # -- faults --------------------------------------------------------------------------------------------------

    def _begin(self, fault: Fault) -> None:
        slot = self.slots[fault.who % len(self.slots)]
        match fault.kind:
            case "kill" | "power_cut" | "freeze" | "answer" | "late_commit":
                self._armed.append((fault, [fault.nth]))
                return
            case "outage":
                self.log.advance(fault.ms)
            case "compact":
                for topic in self.changelogs:
                    self.log.compact(topic, SimClock(self.log).now_ms())
            case "elect":
                for topic in self.changelogs:
                    for log in self.log.topic(topic).partitions:
                        log.elect()
            case "snapshot":
                self._publish(fault)
            case "damage":
                slot.disk.damage(fault.nth)
            case "epoch":
                self.log.group(APP).grow()
            case "join" if sum(not s.retired for s in self.slots) < 5:
                self._add(None)
            case "leave" if sum(not s.retired for s in self.slots) > 1:
                self._leave(slot)
            case "twin" if slot.fixed is not None and not any(s.fixed is None for s in self.slots):
                self._add(slot.fixed)
            case "make_again" | "truncate" | "rewrite":
                if self.log.broken or not losses.BY_KIND[fault.kind](self, fault):
                    return
            case "static_twin" if sum(not s.retired for s in self.slots) < 5:
                self._add(None, slot.instance)
            case "switch":
                self._switch(fault)
        self.struck.append(fault)

    def _leave(self, slot: Slot) -> None:
        if slot.busy or slot.node is None:
            return
        slot.busy, node = True, slot.node
        self._stack.append(slot)
        try:
            node.runtime.stop()
        except (PenstockError, Crash):
            pass  # what is not committed is done again by others
        finally:
            self._stack.pop()
        slot.node, slot.retired, slot.busy = None, True, False

    def _switch(self, fault: Fault) -> None:
        """The fixed workers are held up, and the group runs the application from then on."""
        held = [s for s in self.slots if not s.busy and not s.retired]
        if any(s.busy for s in self.slots):
            return  # a worker in the middle of its start may refuse the group
        for slot in held:
            slot.busy = True
        self._add(None)
        try:
            self._others(max(fault.ms, 3_500))
        finally:
            for slot in held:
                slot.busy = False

    def _passed(self, point: str) -> None:
        if not self._stack:
            return
        slot = self._stack[-1]
        places = (point, f"revoke:{point}") if slot.revoking else (point,)
        for armed in list(self._armed) if not self.healed else ():
            fault, left = armed
            if fault.place not in places or fault.who % len(self.slots) != slot.index:
                continue
            left[0] -= 1
            if left[0] == 0:
                self._armed.remove(armed)
                self.struck.append(fault)
                self._strike(fault, slot)
        if point == "committed":
            slot.looked = {i: epoch for i, epoch in self.log.fixed_epochs.items() if not self.log.stands(i)}

    def _revoking(self) -> None:
        self._stack[-1].revoking = True

    def _opening(self, transactional_id: str, epoch: int) -> None:
        """I7: a fixed worker that runs asks for the positions before it fences anybody, and gives way to who was there."""
        slot = self._stack[-1] if self._stack else None
        if slot is None or slot.fixed is None or not transactional_id.startswith(f"{APP}-p"):
            return
        seen = self.log.fixed_epochs if slot.looked is None else slot.looked
        newer, own = seen.get(transactional_id, -1), slot.opened.get(transactional_id, -1)
        slot.opened[transactional_id] = epoch
        if slot.node is not None and slot.node.runtime.tasks and newer > own:
            raise Violation(
                f"I7 {slot.name} has epoch {own} of {transactional_id} and fences the worker that committed with {newer}"
            )

    def _strike(self, fault: Fault, slot: Slot) -> None:
        self.log.trace.append((self.event, fault.kind, slot.name))
        if fault.kind == "freeze":
            self._others(fault.ms)
            if fault.error and not self.healed:
                raise ERRORS[fault.error]()
        elif fault.kind == "answer":
            raise ERRORS[fault.error]()
        elif fault.kind == "late_commit":
            self._commit_late(fault, slot)
        else:
            slot.cut, slot.down_ms = fault.kind == "power_cut", fault.ms
            raise Crash

    def _commit_late(self, fault: Fault, slot: Slot) -> None:
        """The request to commit comes later, over another connection; the client has given up waiting."""
        for producer in slot.node.producers if slot.node is not None else []:
            with suppress(PenstockError):  # one of earlier
                producer.unacknowledged()
        ids = [f"{APP}-{slot.name}"] if slot.fixed is None else [fixed_id(APP, p) for p in slot.fixed]
        for transaction in filter(None, map(self.log.open_transaction, ids)):
            if transaction.offsets:
                self._late.append((self.log.now_ms + fault.ms, transaction))
        raise ERRORS["unknown"]()

    def _others(self, ms: int) -> None:
        """The worker whose turn it is stands still for so long."""
        until_ms, before_ms = self.log.now_ms + ms, self._step_ms
        self._step_ms = max(TURN_MS, ms // 120)
        while self.log.now_ms < until_ms and not self.healed and not self.refused:
            self._one_event()
        self._step_ms = before_ms

    # -- the end -------------------------------------------------------------------------------------------------

    def _heal(self) -> None:
        """No fault strikes any more; who is down starts again. Everything must come to rest (I8)."""
        self.healed = True
        self._late.clear()
        self._write(self.plan.records - self.written)
        for slot in self.slots:
            slot.down_until_ms = 0
            slot.disk.heal()
        for _ in range(2):  # what is found after the first rest comes to rest too
            self._settle()
            until_ms = self.log.now_ms + ANSWERED_MS
            while self.log.now_ms < until_ms:
                self._round()

    def _settle(self) -> None:
        for _ in range(HEALED_EVENTS_MAX):
            if not self._round() and self._at_rest():
                return
        raise Violation(f"I8 not at rest {HEALED_EVENTS_MAX} rounds after all faults were over: {self._unrest()}")

    def _round(self) -> int:
        self.log.advance(4 * TURN_MS)
        done = sum(self._turn(s) for s in self.slots if not s.retired and s.down_until_ms <= self.log.now_ms)
        checks.look(self)
        return done

    def _at_rest(self) -> bool:
        return not self._unrest()

    def _unrest(self) -> str:
        live = [s for s in self.slots if not s.retired]
        if any(s.node is None or (s.node.busy and not self._waits_for_twin(s)) for s in live):
            return "workers are busy or down"
        tasks = [t for node in self.nodes for t in node.runtime.tasks]
        wanted = [TaskId(sub, p) for sub, count in enumerate(self.world.layout.tasks) for p in range(count)]
        if not self.world.topology.stores:
            tasks = list(
                set(tasks)
            )  # an idle fixed worker without stores sees only with its next record that it is replaced
        if sorted(tasks) != sorted(wanted):
            return f"tasks {sorted(tasks)} run, not {sorted(wanted)}"
        if self.log.pending_offsets(APP, list(self.log.group(APP).offsets)):
            return "a transaction that changes positions is open"
        unread = list(self.log.unread(sorted(self.world.topology.source_topics(APP))))
        return f"{unread} have unread records" if unread else ""

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Let the checks read the log on behalf of no worker: no fault strikes, and nothing is noted as a worker's."""
        stack, self._stack = self._stack, []
        try:
            yield
        finally:
            self._stack = stack

    def specs(self, tasks: Sequence[TaskId]) -> list[tuple[TaskId, StoreSpec]]:
        """The stores of these tasks."""
        subs = self.world.topology.subtopologies
        return [(task, spec) for task in tasks for spec in subs[task.subtopology].stores]

    def _doom(self, fault: Fault) -> None:
        """The log loses what was committed: workers must end with the reason, whatever comes in (I9)."""
        self.doomed = True
        if fault.kind == "make_again":
            topics = [*self.program.inputs, *self.program.outputs, *self.changelogs]
            self.log.make_again(topics[fault.who % len(topics)])
        elif not losses.truncate(self, fault):
            return
        self._await_refusal(fault.kind)

    def _await_refusal(self, kind: str) -> None:
        """Stop all faults, and start the workers that are down."""
        self.healed = True
        for slot in self.slots:
            slot.down_until_ms = min(slot.down_until_ms, self.log.now_ms + RESTART_MS)
        for _ in range(REFUSED_EVENTS_MAX):
            if self.refused:
                return
            if self.rng.random() < 0.2:
                topic, key, value, at = self.program.write(self.rng, self.written)
                p = self.rng.randrange(self.plan.partitions)
                self.log.append(TopicPartition(topic, p), LogEntry(key, value, at))
            self._round()
        raise Violation(f"I9 nobody refused to go on after {kind}")
