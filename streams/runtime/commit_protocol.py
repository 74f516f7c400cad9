"""The commit protocol: one producer, its tasks, and the order in which a commit is made durable.

0. during the interval outputs go to the producer (``send_outputs``), inside the open transaction under exactly-once;
1. at the commit: what operators held, the collapsed changelog writes and the journal record are sent and flushed, and
   the log says at which offsets they end; then external sinks are written, each with a position of its own;
2. the input positions are added to the transaction and it is committed; or, under at-least-once, they are committed;
3. only then the stores are written, each with its new position.

A crash between 2 and 3 is repaired by reading the changelog from the stored position. When the outcome of 2 is not known
the producer is retired: a new one of the same transactional id fences it and waits for its transaction to end, and the
committed offsets say what happened. With fixed partitions, where a new producer would fence the worker that has taken over,
they are read first, which waits for the transaction to end by its timeout. Nothing is committed past a refused record:
that aborts.

**In doubt.** A commit whose answer is lost stays in doubt until the log shows its outcome. If it took place
after all and its work was dropped meanwhile, the stores lack it: such a task is handed back to be reopened, since only
the changelog knows what it did.

**Foreign positions.** After any failure the committed positions are read again. If they are neither the task's own last ones
nor those of the commit in doubt, another worker has had the task meanwhile and its stores lack that worker's commits:
``TaskMigratedError``, and the stores are restored from the log before they are used again.

**Stale owners.** Exactly-once fences them by the transaction. Under at-least-once a worker sends only while it holds a
``MembershipLease``, and what was in its client's queue when it was frozen is answered by the next owner: see
``penstock.streams.runtime.foreign_writes``.

At-most-once commits positions before it processes (``commit_ahead``) and writes no state.

Free of IO except for its ports, so every crash point can be tested: ``CommitStep`` names them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal

from penstock.state.errors import PenstockError, RetriableError, StateCorruptedError, TaskMigratedError
from penstock.state.log import TopicPartition
from penstock.state.stores.store import StoreWrites
from penstock.streams.events.facts import TransactionInDoubt
from penstock.streams.events.measurements import CommitStep, RecordsProduced
from penstock.streams.events.port import NO_EVENTS, EventSink
from penstock.streams.ports.log import (
    AbortableError,
    LogConsumer,
    LogProducer,
    OffsetAndMetadata,
    ProducerRetiredError,
    StaleEpochError,
    UnknownOutcomeError,
)
from penstock.streams.ports.record_sizes import size_of
from penstock.streams.runtime.changelog_epochs import ChangelogEpochs
from penstock.streams.runtime.commit_producer import CommitProducer, CommitTimeouts
from penstock.streams.runtime.commits_in_doubt import CommitsInDoubt
from penstock.streams.runtime.compaction_guard import guard
from penstock.streams.runtime.fixed_fence import FencedPositions
from penstock.streams.runtime.foreign_writes import ForeignWrites
from penstock.streams.runtime.input_epochs import InputEpochs
from penstock.streams.runtime.membership_lease import MembershipLease
from penstock.streams.runtime.sink_writers import SinkWriters
from penstock.streams.runtime.start_positions import input_partitions, start_positions
from penstock.streams.task.begun_positions import begun_positions, some_position
from penstock.streams.task.commit_metadata import CommitMetadata
from penstock.streams.task.commit_work import CommitWork
from penstock.streams.task.output import Output
from penstock.streams.task.own_positions import taken_over
from penstock.streams.task.task import Task

Guarantee = Literal["at_most_once", "at_least_once", "exactly_once"]


STALE_MAX = 2
"""After this many commits in a row that were outrun by the group, the worker counts as no longer a member."""


class Committer:
    """The commits of the tasks of one producer.

    ``open_producer`` makes a producer and, for a transactional one, is followed by ``init_transactions``. ``fence``
    gives what ``send_offsets`` needs to be fenced by: the membership token as of the last assignment, or the plain
    group id with fixed partitions. ``position_of(task, store, at_ms)`` encodes the position record of a store that was known
    to be at the log's end at that wall time.
    ``on_step`` is called after each step (failpoints and tests). ``yields``: a fenced worker stops, instead of opening
    a producer that would fence the newer one; for fixed partitions, where no group tells who is to have them. ``lease`` and
    ``open_reader`` (a consumer that only reads) keep changelogs right: see ``MembershipLease``, ``ForeignWrites``.
    ``positions`` commits those of fixed partitions where the producer has no transactions. ``on_open`` is called after a
    producer was opened, and raises if the tasks are not to be had.
    ``epochs_grow``: the group's epoch may grow between taking the token and using it, although this is still a member; so
    what is refused for that is tried again, at most ``STALE_MAX`` times in a row.
    """

    def __init__(
        self,
        guarantee: Guarantee,
        consumer: LogConsumer,
        open_producer: Callable[[], LogProducer],
        fence: Callable[[], Any],
        position_of: Callable[[Task, str, int], bytes],
        timeouts: CommitTimeouts | None = None,
        on_step: Callable[[CommitStep], None] | None = None,
        *,
        yields: bool = False,
        lease: MembershipLease | None = None,
        open_reader: Callable[[], LogConsumer] | None = None,
        epochs_grow: bool = False,
        positions: FencedPositions | None = None,
        on_open: Callable[[], None] | None = None,
        events: EventSink = NO_EVENTS,
    ) -> None:
        self.on_committed: Callable[[Sequence[Task]], None] = lambda tasks: None
        """Called with the tasks of a commit once the log has it, before their stores are written."""
        self.guarantee = guarantee
        self.consumer = consumer
        self._fence = fence
        self._position_of = position_of
        self._yields = yields
        self._epochs_grow = epochs_grow
        self._stale_epochs = 0
        self._on_step = on_step or (lambda step: None)
        self._events = events
        self._producer = CommitProducer(
            open_producer,
            timeouts or CommitTimeouts(),
            lambda: self._on_step("begun"),
            transactional=guarantee == "exactly_once",
            yields=yields,
            positions=positions,
            on_open=on_open,
            events=events,
        )
        self._in_doubt = CommitsInDoubt()
        self._stale: list[Task] = []
        self._proved_ms: int | None = None
        self._lease = lease
        self._positions = positions
        self._foreign_writes: ForeignWrites | None = None
        self._input_epochs = None if open_reader is None else InputEpochs(open_reader)
        if open_reader is not None:
            answers = guarantee == "at_least_once"
            epochs = ChangelogEpochs(lambda partitions: self.consumer.leader_epochs(partitions), open_reader)
            self._foreign_writes = ForeignWrites(
                open_reader, self._ask, self._send_now, epochs, answers=answers, events=events
            )
        self.owned: Callable[[], Sequence[Task]] = tuple
        """The tasks of this producer."""
        self.sinks = SinkWriters(lambda: 0.0, events)

    # -- the producer --------------------------------------------------------------------------------------------

    def open(self) -> None:
        """See ``CommitProducer.open``."""
        self._producer.open()

    def retire(self, cause: PenstockError | None = None) -> None:
        """See ``CommitProducer.retire``."""
        self._producer.retire(cause)

    def within(self, limit_s: float, clock_s: Callable[[], float]) -> AbstractContextManager[None]:
        """See ``CommitProducer.within``."""
        return self._producer.within(limit_s, clock_s)

    def _ready(self) -> LogProducer:
        return self._producer.ready()

    # -- during the interval -------------------------------------------------------------------------------------

    def send_outputs(self, task: Task) -> None:
        """Hand the task's outputs to the producer. Refused ones stay with the task: a retried commit sends them."""
        outputs = task.take_outputs()
        try:
            while outputs:
                self._send(outputs[0])
                del outputs[0]
        except PenstockError:
            task.give_back_outputs(outputs)
            raise

    def check_ownership(self) -> None:
        """Ask the group, unless it has confirmed recently that this worker is a member: see ``MembershipLease``.
        Raises ``TaskMigratedError`` if it is not, ``RetriableError`` if nobody answers."""
        if self._lease is not None and self._lease.over:
            self._ask()

    def _ask(self) -> None:
        owned = self.owned()
        begun = {tp: p for task in owned for tp, p in begun_positions(task).items()}
        self._commit_positions(begun or self._in_doubt.last or some_position(owned))
        for task in owned:
            task.own_positions.begun()

    def _send(self, o: Output) -> None:
        self.check_ownership()
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
        if not busy and not self._producer.in_transaction:
            return False
        works: list[tuple[Task, CommitWork]] = []
        try:
            return self._commit_busy(tasks, busy, works, now_ms)
        except (RetriableError, TaskMigratedError) as exc:
            # it did not take place: it is retried with newer work, or the tasks are given up
            if self.guarantee != "exactly_once" or isinstance(exc, TaskMigratedError):
                for task, work in works:
                    task.abandon_commit(work)
            raise

    def _commit_busy(
        self, tasks: Sequence[Task], busy: Sequence[Task], works: list[tuple[Task, CommitWork]], now_ms: int
    ) -> bool:
        """The commit of those tasks that have something to commit. ``works`` gets their permits."""
        for task in busy:
            works.append((task, task.prepare_commit(now_ms)))
        self._on_step("prepared")
        if self.guarantee == "at_least_once":
            for _, work in works:
                guard(work, now_ms)
        offsets = self._write_log(works)
        self._in_doubt.add(offsets)
        try:
            self.commit_log(offsets)
            self._stale_epochs = 0
        except StaleEpochError as exc:
            self._stale_epochs += 1
            if not self._epochs_grow or self._stale_epochs > STALE_MAX:
                raise
            retry = AbortableError if self.guarantee == "exactly_once" else RetriableError
            raise retry(f"the group's epoch has grown meanwhile ({exc}); do it again with the new one") from exc
        except UnknownOutcomeError as exc:
            if not self._happened(offsets, exc):
                # All of them: a worker that has had the busy ones meanwhile may have committed for the others too.
                self._stale += self._restart_tasks(tasks)
                return False
        self._in_doubt.clear()
        self._proved_ms = now_ms if offsets else self._proved_ms  # without positions nobody checks ownership
        self._on_step("committed")
        self.on_committed(busy)
        damage: StateCorruptedError | None = None
        for task, work in works:
            try:
                task.committed(work, {name: self._position_of(task, name, now_ms) for name in work.pending})
            except StateCorruptedError as exc:
                damage = exc  # write the others anyway: the log has their commit
        if damage is not None:
            raise damage
        self._on_step("stores_written")
        return True

    def _write_log(self, works: Sequence[tuple[Task, CommitWork]]) -> dict[TopicPartition, OffsetAndMetadata]:
        """Step 1: returns the positions to commit."""
        if self._input_epochs is not None:
            self._input_epochs.compare(works)
        wrote = False
        for task, work in works:
            self.send_outputs(task)
            logged = [o for _, o in work.changelogs] + ([work.journal] if work.journal is not None else [])
            for o in logged:
                self._send(o)
            wrote = wrote or bool(logged)
        self._on_step("sent")
        ends: Mapping[TopicPartition, int] = {}
        if self._producer.client is not None and (wrote or self.guarantee != "exactly_once"):
            ends = self._producer.client.flush(self._producer.timeouts.flush_s)
        if self._foreign_writes is not None:
            ends = self._foreign_writes.answer(works, ends)
        self._on_step("flushed")
        self.sinks.write(works)
        return {tp: c for task, work in works for tp, c in task.offsets(work, ends).items()}

    def _send_now(self, o: Output) -> Mapping[TopicPartition, int]:
        self._send(o)
        return self._ready().flush(self._producer.timeouts.flush_s)

    def commit_log(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Step 2 of a commit, or positions alone. Errors as of ``commit``, and ``UnknownOutcomeError``."""
        if self.guarantee != "exactly_once":
            self._commit_positions(offsets)
            return
        producer = self._ready()
        if offsets:
            producer.send_offsets(offsets, self._fence(), self._producer.timeouts.transaction_s)
        self._on_step("offsets_added")
        producer.commit(self._producer.timeouts.transaction_s)
        self._producer.in_transaction = False

    def _commit_positions(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Commit positions as a member, which renews the lease. The client would use its current membership, or none
        if it has lost it; it must be the one with which the tasks were assigned."""
        if not offsets:
            return
        if self._lease is None:
            self._commit_once(offsets)
            return
        compares = self._positions is None and self._lease.stable_token
        if compares and self.consumer.group_metadata() != self._fence():
            raise TaskMigratedError(
                "the group membership has changed since the tasks were assigned; discard uncommitted work and join again"
            )
        asked_s = self._lease.now_s()
        self._commit_once(offsets)
        self._lease.grant(asked_s)

    def _commit_once(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        (self.consumer if self._positions is None else self._positions).commit(offsets)

    @property
    def waits_for_log(self) -> bool:
        """Whether a commit now would first wait for acknowledgements of earlier records. Under exactly-once this does
        not matter: nobody sees the records before the commit."""
        if (client := self._producer.client) is None or self.guarantee != "at_least_once":
            return False
        try:
            return client.unacknowledged() > 0
        except PenstockError:
            return False  # the commit raises it and handles it

    def prove(self, tasks: Sequence[Task], now_ms: int, young_ms: int = 0) -> None:
        """Ask the log whether these tasks are still this producer's, unless that was proved less than ``young_ms`` ago:
        commit one of the last positions once more, which only the owner can. ``now_ms``: the wall clock before this call.
        Nothing to ask inside a transaction or with a commit in doubt, which the next commit ends, or with nothing committed.
        Errors as of ``commit``."""
        young = self._proved_ms is not None and 0 <= now_ms - self._proved_ms < young_ms
        if young or self._in_doubt.last or self._producer.in_transaction or self.guarantee == "at_most_once":
            return
        own = {
            TopicPartition(topic, task.id.partition): position
            for task in tasks
            for topic, position in task.own_positions.known.items()
            if position.metadata
        }
        for tp, position in sorted(own.items())[:1]:
            try:
                self.commit_log({tp: position})
            except UnknownOutcomeError as exc:
                raise ProducerRetiredError(
                    f"{exc}; nothing was in that commit but a position that stands already"
                ) from exc
            self._proved_ms = now_ms

    def forget_proof(self) -> None:
        """Tasks were added that another worker may have owned at the last proof."""
        self._proved_ms = None
        if self._lease is not None:
            self._lease.end()

    def look_for_foreign_writes(self, task: Task, now_s: float) -> None:
        """Between commits: see ``ForeignWrites.look``."""
        if self._foreign_writes is not None:
            self._foreign_writes.look(task, self.consumer, now_s)

    def refresh(self, task: Task) -> None:
        """Between commits: renew the wall time of the positions of idle stores, so that their age stays provable: the
        time of the last proof of ownership. Nobody else wrote to the changelogs before that."""
        if task.uncommitted_records or self._proved_ms is None:
            return
        # A table on its own topic is at a committed position, which needs no age; the feed may already be past it.
        known = [n for n in task.stores if n in task.changelog_ends]
        if known:
            proved_ms = self._proved_ms
            task.backend.commit([StoreWrites(n, [], self._position_of(task, n, proved_ms)) for n in known])

    def commit_ahead(self, offsets: Mapping[TopicPartition, int]) -> None:
        """At-most-once: commit positions whose records have not been processed yet."""
        self._commit_positions({tp: OffsetAndMetadata(offset, "") for tp, offset in offsets.items()})

    def finish_ahead(self, tasks: Sequence[Task], now_ms: int = 0) -> None:
        """At-most-once: process what is buffered, whose positions are committed, and send the outputs; there is
        nothing else to commit."""
        for task in tasks:
            while task.process(now_ms):
                self.send_outputs(task)
            if task.uncommitted_records:
                work = task.prepare_commit()
                self.send_outputs(task)
                task.committed(work, {})
        if (client := self._producer.client) is not None:
            client.flush(self._producer.timeouts.flush_s)

    def take_stale(self) -> list[Task]:
        """Return the tasks to reopen: their stores lack a commit that turned out to have taken place, while those of
        others do not."""
        behind, self._stale = self._stale, []
        return behind

    # -- when it goes wrong --------------------------------------------------------------------------------------

    def _happened(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], cause: UnknownOutcomeError) -> bool:
        """Whether a commit of unknown outcome took place."""
        self.retire(cause)
        happened = self._found_out(offsets)
        self._events.emit(TransactionInDoubt("committed" if happened else "not_committed"))
        return happened

    def _found_out(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> bool:
        """Fence the producer, then read what is committed. With fixed partitions it is read first, which waits until
        the transaction has ended by itself: opening a producer before that would fence the worker that has taken over
        the partition."""
        if not self._yields:
            self.open()
            return self._committed_are(offsets)
        if not self._committed_are(offsets):
            return False
        self.open()
        return self._committed_are(offsets)

    def _committed_are(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> bool:
        found = self.consumer.committed(list(offsets))
        return all(found[tp] == c for tp, c in offsets.items())

    def abort(self, tasks: Sequence[Task], damaged: Sequence[Task] = ()) -> list[Task]:
        """Abort: drop what every task did since the last commit, retire the producer, and read again from the committed
        offsets. Returns the tasks whose stores lack a commit that did take place: they must be reopened. ``damaged``:
        tasks of this producer that the caller reopens in any case.

        ``RetriableError``: the log does not answer; call it again before anything else. ``TaskMigratedError``: another
        worker has the tasks, so this one stops.
        """
        failure: PenstockError | None = None
        if (client := self._producer.client) is not None and self._producer.in_transaction:
            try:
                client.abort(self._producer.timeouts.transaction_s)
            except PenstockError as exc:
                if self._yields and isinstance(exc, TaskMigratedError):
                    self.retire(exc)
                    raise
                failure = exc
        self.retire(failure)
        if failure is not None and not self._yields:
            self.open()  # ends the transaction; the next owner would wait for it
        return self._restart_tasks(tasks, damaged)

    def _restart_tasks(self, tasks: Sequence[Task], damaged: Sequence[Task] = ()) -> list[Task]:
        """Continue from the committed positions, if they are still those of these tasks. A worker with fixed
        partitions checks before it opens a producer, and again after that, because a newer worker may have committed
        in between."""
        if not tasks and not damaged:
            self.retire()  # outside the group it may be fenced at any time: opened when there is something to do
            self._in_doubt.clear()
            return []
        if self._yields and self._producer.client is None:
            self._refuse_foreign([*tasks, *damaged])
        self.open()
        starts = {task.id: self._start_of(task) for task in tasks}
        behind: list[Task] = []
        for task in tasks:
            if self._in_doubt.have(task, starts[task.id]):
                behind += [task] if task.stores else []
            elif not task.own_positions.are(starts[task.id]):
                if not self._yields:
                    raise taken_over(task.id)
                behind.append(task)  # the newer worker is fenced, and ends
        for task in tasks:
            if task in behind:
                continue
            task.discard(starts[task.id])
            self.sinks.reopen(task)
            for tp in input_partitions(task):
                self.consumer.seek(tp, starts[task.id][tp.topic][0])
        self._in_doubt.clear()
        return behind

    def _refuse_foreign(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            start = self._start_of(task)
            if not task.own_positions.are(start) and not self._in_doubt.have(task, start):
                raise taken_over(task.id)

    def _start_of(self, task: Task) -> dict[str, tuple[int, CommitMetadata]]:
        return start_positions(self.consumer, input_partitions(task))

    def close(self) -> None:
        """Release the producer; uncommitted work is lost to it, as after a crash."""
        failure: PenstockError | None = None
        if (client := self._producer.client) is not None and self._producer.in_transaction:
            try:
                client.abort(self._producer.timeouts.transaction_s)
            except TaskMigratedError:
                pass  # reported when the commit met it
            except PenstockError as exc:  # closing anyway; the timeout ends the transaction
                failure = exc
        self.retire(failure)


RESTARTABLE = (AbortableError, ProducerRetiredError, StateCorruptedError)
"""Errors that an abort repairs; tasks with damaged stores get them restored."""
