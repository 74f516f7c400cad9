"""The commit protocol: one producer, its tasks, and the order in which a commit is made durable.

0. during the interval outputs go to the producer (``send_outputs``), inside the open transaction under exactly-once;
1. at the commit: what operators held, the collapsed changelog writes and the journal record are sent and flushed, and
   the log says at which offsets they end;
2. the input positions are added to the transaction and it is committed; or, under at-least-once, they are committed;
3. only then the stores are written, each with its new position.

A crash between 2 and 3 is repaired by reading the changelog from the stored position. When the outcome of 2 is not known
the producer is retired: a new one of the same transactional id fences it and waits for its transaction to end, and the
committed offsets say what happened. Nothing is committed past a refused record: that aborts.

**In doubt.** A commit that was asked for and whose answer is lost stays in doubt until the log was asked. If it took place
after all and its work was dropped meanwhile, the stores lack it: such a task is handed back to be opened anew, since only
the changelog knows what it did.

At-most-once commits positions before it processes (``commit_ahead``) and writes no state.

Free of IO but for the ports it is given, so every crash point can be tested: ``CommitStep`` names them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from penstock.state.errors import PenstockError, StateCorruptedError, TaskMigratedError
from penstock.state.log import TopicPartition
from penstock.state.stores.store import StoreWrites
from penstock.streams.events.facts import ProducerRetired, TransactionInDoubt
from penstock.streams.events.measurements import RecordsProduced
from penstock.streams.events.port import NO_EVENTS, EventSink
from penstock.streams.ports.log import (
    AbortableError,
    Committed,
    LogConsumer,
    LogProducer,
    ProducerRetiredError,
    UnknownOutcomeError,
)
from penstock.streams.record_sizes import size_of
from penstock.streams.task import commit_metadata
from penstock.streams.task.commit_metadata import CommitMetadata
from penstock.streams.task.commit_work import CommitWork
from penstock.streams.task.output import Output
from penstock.streams.task.task import Task

Guarantee = Literal["at_most_once", "at_least_once", "exactly_once"]
CommitStep = Literal["begun", "prepared", "sent", "flushed", "offsets_added", "committed", "stores_written"]
"""What has just been done, in the order of a commit."""


@dataclasses.dataclass(frozen=True)
class CommitTimeouts:
    """``flush_s`` bounds the wait for acknowledgements, ``transaction_s`` each transactional request, and a third of the
    wait for an older producer's transaction to end."""

    flush_s: float = 30.0
    transaction_s: float = 10.0


class Committer:
    """The commits of the tasks of one producer.

    ``open_producer`` makes a producer and, for a transactional one, is followed by ``init_transactions``. ``fence``
    gives what ``send_offsets`` needs to be fenced by: the membership token as of the last assignment, or the plain
    group id with fixed partitions. ``position_of(task, store, offset)`` encodes the position record of a store.
    ``on_step`` is called after each step (failpoints and tests). ``yields``: who was fenced gives way, instead of opening
    a producer that would fence the newer one; for fixed partitions, where no group tells who is to have them.
    """

    def __init__(
        self,
        guarantee: Guarantee,
        consumer: LogConsumer,
        open_producer: Callable[[], LogProducer],
        fence: Callable[[], Any],
        position_of: Callable[[Task, str], bytes],
        timeouts: CommitTimeouts | None = None,
        on_step: Callable[[CommitStep], None] | None = None,
        *,
        yields: bool = False,
        events: EventSink = NO_EVENTS,
    ) -> None:
        self.on_committed: Callable[[Sequence[Task]], None] = lambda tasks: None
        """Called with the tasks of a commit once the log has it, before their stores are written."""
        self.guarantee = guarantee
        self.consumer = consumer
        self._open_producer = open_producer
        self._fence = fence
        self._position_of = position_of
        self._timeouts = timeouts or CommitTimeouts()
        self._yields = yields
        self._on_step = on_step or (lambda step: None)
        self._events = events
        self._producer: LogProducer | None = None
        self._in_transaction = False
        self._in_doubt: list[Mapping[TopicPartition, Committed]] = []
        self._stale: list[Task] = []

    # -- the producer --------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Open the producer; under exactly-once this fences older ones and waits for their transactions to end."""
        if self._producer is None:
            producer = self._open_producer()
            if self.guarantee == "exactly_once":
                try:
                    producer.init_transactions(self._timeouts.transaction_s * 3)
                except BaseException:
                    producer.close()
                    raise
            self._producer = producer
            self._in_transaction = False

    def retire(self, cause: PenstockError | None = None) -> None:
        """Give the producer up; what it has open ends by fencing or by its time-out. ``cause``: reported if there is one."""
        if self._producer is not None:
            self._producer.close()
            if cause is not None:
                self._events.emit(ProducerRetired(cause))
        self._producer = None
        self._in_transaction = False

    def _ready(self) -> LogProducer:
        self.open()
        assert self._producer is not None
        if self.guarantee == "exactly_once" and not self._in_transaction:
            try:
                self._producer.begin()
            except ProducerRetiredError as exc:
                # retired after its last commit, with nothing sent since: nothing is lost with it
                self.retire(exc)
                self.open()
                self._producer.begin()
            self._in_transaction = True
            self._on_step("begun")
        return self._producer

    # -- during the interval -------------------------------------------------------------------------------------

    def send_outputs(self, task: Task) -> None:
        """Hand the task's outputs to the producer."""
        for o in task.take_outputs():
            self._send(o)

    def _send(self, o: Output) -> None:
        keys = o.keys if o.key_column is None else o.key_column
        values = o.values if o.value_column is None else o.value_column
        self._ready().send(o.topic, keys, values, o.times, o.headers, partition=o.partition)
        self._events.measure(RecordsProduced(o.topic, len(o), size_of(o)))

    # -- the commit ----------------------------------------------------------------------------------------------

    def commit(self, tasks: Sequence[Task], now_ms: int = 0) -> bool:
        """Commit everything that these tasks have done; returns whether anything was committed. See ``take_stale``.

        Raises ``AbortableError`` or ``ProducerRetiredError`` (call ``abort``), ``TaskMigratedError`` (discard and
        rejoin), ``RetriableError`` (exactly-once: call ``abort``; else call it again). An unknown outcome is resolved
        here: the commit is found to have happened, or the tasks go on from what is committed. ``StateCorruptedError``: the
        stores of a task are damaged; those of the others stand at the last commit.
        """
        busy = [t for t in tasks if t.uncommitted_records]
        if not busy and not self._in_transaction:
            return False
        works = [(t, t.prepare_commit(now_ms)) for t in busy]
        self._on_step("prepared")
        offsets = self._write_log(works)
        self._in_doubt.append(offsets)
        try:
            self._commit_log(offsets)
        except UnknownOutcomeError as exc:
            if not self._happened(offsets, exc):
                self._stale += self._restart_tasks(busy)
                return False
        self._in_doubt.clear()
        self._on_step("committed")
        self.on_committed(busy)
        damage: StateCorruptedError | None = None
        for task, work in works:
            try:
                task.committed(work, {name: self._position_of(task, name) for name in work.pending})
            except StateCorruptedError as exc:
                damage = exc  # the others are written all the same: the log has their commit
        if damage is not None:
            raise damage
        self._on_step("stores_written")
        return True

    def _write_log(self, works: Sequence[tuple[Task, CommitWork]]) -> dict[TopicPartition, Committed]:
        """Step 1: returns the positions to commit."""
        wrote = False
        for task, work in works:
            self.send_outputs(task)
            logged = [o for _, o in work.changelogs] + ([work.journal] if work.journal is not None else [])
            for o in logged:
                self._send(o)
            wrote = wrote or bool(logged)
        self._on_step("sent")
        ends: Mapping[TopicPartition, int] = {}
        if self._producer is not None and (wrote or self.guarantee != "exactly_once"):
            ends = self._producer.flush(self._timeouts.flush_s)
        self._on_step("flushed")
        return {tp: c for task, work in works for tp, c in task.offsets(work, ends).items()}

    def _commit_log(self, offsets: Mapping[TopicPartition, Committed]) -> None:
        """Step 2."""
        if self.guarantee != "exactly_once":
            if offsets:
                self.consumer.commit(offsets)
            return
        producer = self._ready()
        if offsets:
            producer.send_offsets(offsets, self._fence(), self._timeouts.transaction_s)
        self._on_step("offsets_added")
        producer.commit(self._timeouts.transaction_s)
        self._in_transaction = False

    @property
    def waits_for_log(self) -> bool:
        """Whether a commit begun now would first wait for records that were sent long before it. Under exactly-once it
        does not matter: nobody sees them before the commit."""
        if self._producer is None or self.guarantee != "at_least_once":
            return False
        try:
            return self._producer.unacknowledged() > 0
        except PenstockError:
            return False  # the commit raises it where it is dealt with

    def refresh(self, task: Task) -> None:
        """Between commits: give the positions of idle stores a new wall time, so that their age stays provable."""
        if task.uncommitted_records:
            return
        # A table on its own topic stands at a committed position, which needs no age; the feed may be past it already.
        known = [n for n in task.stores if n in task.changelog_ends]
        if known:
            task.backend.commit([StoreWrites(n, [], self._position_of(task, n)) for n in known])

    def commit_ahead(self, offsets: Mapping[TopicPartition, int]) -> None:
        """At-most-once: commit positions whose records have not been processed yet."""
        self.consumer.commit({tp: Committed(offset, "") for tp, offset in offsets.items()})

    def finish_ahead(self, tasks: Sequence[Task], now_ms: int = 0) -> None:
        """At-most-once: process what is buffered, whose positions are committed, and send what it made; there is nothing
        else to commit."""
        for task in tasks:
            while task.process(now_ms):
                self.send_outputs(task)
            if task.uncommitted_records:
                work = task.prepare_commit()
                self.send_outputs(task)
                task.committed(work, {})
        if self._producer is not None:
            self._producer.flush(self._timeouts.flush_s)

    def take_stale(self) -> list[Task]:
        """The tasks whose stores lack a commit that was found to have taken place for them and not for others: they are to
        be opened anew."""
        behind, self._stale = self._stale, []
        return behind

    # -- when it goes wrong --------------------------------------------------------------------------------------

    def _happened(self, offsets: Mapping[TopicPartition, Committed], cause: UnknownOutcomeError) -> bool:
        """Whether a commit of unknown outcome took place: fence its producer, then read what is committed."""
        self.retire(cause)
        self.open()
        found = self.consumer.committed(list(offsets))
        happened = all(found[tp] == c for tp, c in offsets.items())
        self._events.emit(TransactionInDoubt("committed" if happened else "not_committed"))
        return happened

    def abort(self, tasks: Sequence[Task]) -> list[Task]:
        """Abort: drop what every task did since the last commit, retire the producer, and read again from the committed
        offsets. Returns the tasks whose stores lack a commit that did take place: they are to be opened anew.

        ``RetriableError``: the log does not answer; call it again before anything else. ``TaskMigratedError``: it was
        fenced, and gives way.
        """
        failure: PenstockError | None = None
        if self._producer is not None and self._in_transaction:
            try:
                self._producer.abort(self._timeouts.transaction_s)
            except PenstockError as exc:
                if self._yields and isinstance(exc, TaskMigratedError):
                    self.retire(exc)
                    raise
                failure = exc
        self.retire(failure)
        if failure is not None:
            self.open()  # ends the transaction, for which whoever gets the tasks would wait
        return self._restart_tasks(tasks)

    def _restart_tasks(self, tasks: Sequence[Task]) -> list[Task]:
        if not tasks:
            self._in_doubt.clear()
            return []
        self.open()
        starts = [start_positions(self.consumer, _inputs(task)) for task in tasks]
        behind = [t for t, start in zip(tasks, starts, strict=True) if t.stores and self._was_in_doubt(t, start)]
        for task, start in zip(tasks, starts, strict=True):
            if task in behind:
                continue
            task.discard(start)
            for tp in _inputs(task):
                self.consumer.seek(tp, start[tp.topic][0])
        self._in_doubt.clear()
        return behind

    def _was_in_doubt(self, task: Task, start: Mapping[str, tuple[int, CommitMetadata]]) -> bool:
        """Whether the committed positions of a task are those of a commit that was not known to have taken place."""
        found = {tp: start[tp.topic] for tp in _inputs(task)}
        return any(
            all(
                tp in asked and (asked[tp].offset, commit_metadata.decode(asked[tp].metadata)) == at
                for tp, at in found.items()
            )
            for asked in self._in_doubt
        )

    def close(self) -> None:
        """Release the producer; uncommitted work is lost to it, as after a crash."""
        failure: PenstockError | None = None
        if self._producer is not None and self._in_transaction:
            try:
                self._producer.abort(self._timeouts.transaction_s)
            except TaskMigratedError:
                pass  # reported when the commit met it
            except PenstockError as exc:  # closing anyway; the transaction's time-out ends it
                failure = exc
        self.retire(failure)


def _inputs(task: Task) -> list[TopicPartition]:
    return [TopicPartition(t, task.id.partition) for t in task.topics]


def start_positions(
    consumer: LogConsumer, partitions: Sequence[TopicPartition]
) -> dict[str, tuple[int, CommitMetadata]]:
    """Where a task's inputs go on: their committed positions, or the first record still there where there is none."""
    found = consumer.committed(partitions)
    out: dict[str, tuple[int, CommitMetadata]] = {}
    for tp in partitions:
        committed = found.get(tp)
        if committed is None:
            out[tp.topic] = (consumer.watermarks(tp)[0], CommitMetadata())
        else:
            out[tp.topic] = (committed.offset, commit_metadata.decode(committed.metadata))
    return out


RESTARTABLE = (AbortableError, ProducerRetiredError, StateCorruptedError)
"""What an abort repairs; of tasks whose stores are damaged, with stores restored anew."""
