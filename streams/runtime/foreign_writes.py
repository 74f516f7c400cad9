"""Records that another worker has written to a task's changelog, and how they are made harmless.

Only at-least-once needs this. A worker that was frozen with records in its client's queue sends them when it wakes
up. No broker can know that they are stale: they come after the next owner's, and the last value of each key in a
changelog wins. A generation in the records would not help: the broker's compaction keeps the last record in any case.

So the owner keeps this promise at every commit: *up to the end that the commit names, the changelog gives the
stores*. It knows where its last commit ended and how many records it has sent since, so one number shows whether
there are others in between. It reads their keys, and if a last value is not its own, it writes its own again after
it, before it commits. It asks the group first, because it may itself be the stale one; and the log refuses a commit
of a worker that is no longer the owner. A restore under at-least-once stops at the committed end. The next owner's
first commit replaces what follows it, and changelogs are checked from time to time if no commit is due. Until then
the cleaner must leave both alone: see ``penstock.streams.runtime.compaction_guard``.

The same number shows, under every guarantee, that a changelog has lost committed records: its end went back, as after
an unclean election or when the topic was recreated. Then nothing is committed, because no restore could give the
state again, and the worker stops with ``IncompatibleError``.

A version that another worker has written to a versioned store and that the owner does not have stays in the log: no
record can remove a version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from penstock.state.errors import IncompatibleError, RetriableError
from penstock.state.log import TaskId, TopicPartition
from penstock.state.recovery.changelog import changelog_topic, from_changelog_columns, to_changelog_columns
from penstock.state.stores.store import PackedPuts, Puts, StampedPuts, StateBackend, StoreSpec
from penstock.streams.events.facts import ForeignWritesReplaced
from penstock.streams.events.port import EventSink
from penstock.streams.ports.log import AbortableError, LogConsumer
from penstock.streams.runtime.changelog_epochs import ChangelogEpochs
from penstock.streams.task.commit_work import CommitWork
from penstock.streams.task.output import Output
from penstock.streams.task.task import Task

READ_RECORDS = 10_000
READ_TURN_S = 0.2
READ_LIMIT_S = 30.0
SHORT_S = 30.0
"""How long a changelog may seem to end before the last commit: readers of committed records see its end at an open
transaction, and a worker that was frozen may have left one there."""
ROUNDS_MAX = 10
"""After this many rounds in which others wrote again, the commit is given up for now."""


class ForeignWrites:
    """See the module. ``open_reader``: a consumer that only reads; ``ask`` the group; ``send`` records and wait, which gives
    where they end; ``epochs`` of the changelogs' leaders. ``answers``: others' records may be there, as under
    at-least-once."""

    def __init__(
        self,
        open_reader: Callable[[], LogConsumer],
        ask: Callable[[], None],
        send: Callable[[Output], Mapping[TopicPartition, int]],
        epochs: ChangelogEpochs,
        *,
        answers: bool,
        events: EventSink,
    ) -> None:
        self._answers = answers
        self._events = events
        self._epochs = epochs
        self._short: dict[tuple[TaskId, str], tuple[int, float]] = {}
        """Changelogs that end too early: where they should end, and since when that was seen."""
        self._open_reader = open_reader
        self._ask = ask
        self._send = send
        self._seen: dict[TaskId, dict[str, int]] = {}
        """The seen ends of changelogs to which this worker wrote nothing, by store."""

    def look(self, task: Task, consumer: LogConsumer, now_s: float) -> None:
        """Between commits: if others have written to the changelogs of idle stores, have the next commit answer them. Raises
        ``IncompatibleError`` for one that has ended too early for ``SHORT_S``, or has lost what was committed."""
        self._epochs.look(task)
        for name, state in task.stores.items():
            known = task.changelog_end(name)
            if known is None or not state.spec.changelog or state.spec.source_topic is not None:
                continue
            end = consumer.watermarks(changelog_of(task, state.spec))[1]
            needed, since_s = self._short.pop((task.id, name), (known, now_s))
            if end < needed:
                if now_s - since_s > SHORT_S:
                    raise _lost(changelog_of(task, state.spec), end, needed)
                self._short[task.id, name] = (needed, since_s)
            elif end > known and self._answers:
                self._seen.setdefault(task.id, {})[name] = end
                task.uncommitted_records += 1

    def answer(
        self, works: Sequence[tuple[Task, CommitWork]], ends: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int]:
        """In a commit, after its records were acknowledged and end so. Returns where the changelogs end then; what was
        looked at is among the works' changelogs. Raises ``AbortableError`` (at-least-once: ``RetriableError``) where a
        changelog has got another leader meanwhile."""
        for task, work in works:
            require_whole(task, work, ends)
        if self._answers:
            ends = self._answered_all(works, ends)
        if changed := self._epochs.changed(works):
            again = RetriableError if self._answers else AbortableError
            raise again(f"{changed} have got another leader, which has all that was committed; commit again")
        return ends

    def _answered_all(
        self, works: Sequence[tuple[Task, CommitWork]], ends: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int]:
        out = dict(ends)
        for task, work in works:
            found = with_foreign_writes(task, work, ends, self._seen.pop(task.id, {}))
            for spec, start, end in found:
                tp = changelog_of(task, spec)
                out[tp] = self._answered(task, work, spec, start, end)
                if spec.name not in {s.name for s, _ in work.changelogs}:
                    work.changelogs.append((spec, Output(tp.topic, [], [], [], partition=tp.partition)))
        return out

    def _answered(self, task: Task, work: CommitWork, spec: StoreSpec, start: int, end: int) -> int:
        self._ask()
        tp = changelog_of(task, spec)
        reader = self._open_reader()
        replaced = 0
        try:
            for _ in range(ROUNDS_MAX):
                own = answer(task, spec, work, read_range(reader, tp, start, end))
                if own is None:
                    return end
                start, end = end, self._send(own)[tp]
                replaced += len(own)
                if end - len(own) == start:
                    return end
        finally:
            reader.close()
            if replaced:
                self._events.emit(ForeignWritesReplaced(task.id, spec.name, replaced))
        raise RetriableError(f"another worker writes to {tp.topic} [{tp.partition}] all the time; stop it")


def changelog_of(task: Task, spec: StoreSpec) -> TopicPartition:
    """The changelog partition of a store."""
    return TopicPartition(changelog_topic(task.application_id, spec), task.id.partition)


def require_whole(task: Task, work: CommitWork, ends: Mapping[TopicPartition, int]) -> None:
    """Raises ``IncompatibleError`` if this commit's records were written before the end of the last one's."""
    for spec, count in _sent(work).values():
        known, tp = task.changelog_end(spec.name), changelog_of(task, spec)
        if known is not None and ends[tp] - count < known:
            raise _lost(tp, ends[tp] - count, known)


def _sent(work: CommitWork) -> dict[str, tuple[StoreSpec, int]]:
    """How many records each changelog got, by store."""
    sent: dict[str, tuple[StoreSpec, int]] = {}
    for spec, output in work.changelogs:
        sent[spec.name] = spec, sent.get(spec.name, (spec, 0))[1] + len(output)
    return sent


def _lost(tp: TopicPartition, end: int, known: int) -> IncompatibleError:
    return IncompatibleError(
        f"{tp.topic} [{tp.partition}] ended at {end}, but the last commit wrote it up to {known}: the topic was recreated "
        "or has lost records, and no restore would give the state again. Stop the application, delete its changelog topics "
        "and state folder, and reset the group's positions to the beginning, so that the stores are built again"
    )


def with_foreign_writes(
    task: Task, work: CommitWork, ends: Mapping[TopicPartition, int], watched: Mapping[str, int]
) -> list[tuple[StoreSpec, int, int]]:
    """The stores whose changelogs hold records of others since the last commit, with the range to read. ``ends``:
    where each changelog ended after this commit's records; ``watched``: the ends seen between commits, by store."""
    sent = _sent(work)
    found = []
    for spec, count in sent.values():
        known, end = task.changelog_end(spec.name), ends[changelog_of(task, spec)]
        if known is not None and end - count != known:
            found.append((spec, known, end))
    for name, end in watched.items():
        known = task.changelog_end(name)
        if name not in sent and known is not None and end > known:
            found.append((task.stores[name].spec, known, end))
    return found


def read_range(reader: LogConsumer, tp: TopicPartition, start: int, end: int) -> tuple[list[Any], list[Any], list[int]]:
    """Keys, values and timestamps of the records ``start <= offset < end`` that are still there."""
    keys: list[Any] = []
    values: list[Any] = []
    times: list[int] = []
    reached, waited_s = max(start, reader.watermarks(tp)[0]), 0.0
    reader.assign_at({tp: reached})
    while reached < end:
        fetched = reader.poll(READ_RECORDS, READ_TURN_S)
        before = reached
        for chunk in fetched.chunks:
            stop = sum(offset < end for offset in chunk.offsets)
            keys += chunk.keys[:stop]
            values += chunk.values[:stop]
            times += chunk.timestamps[:stop]
            reached = chunk.offsets[-1] + 1
        reached = max(reached, fetched.ends.get(tp, 0))
        waited_s = 0.0 if reached > before else waited_s + READ_TURN_S
        if waited_s > READ_LIMIT_S:
            raise RetriableError(
                f"{tp.topic} [{tp.partition}] could not be read from {reached} to {end}; see the brokers"
            )
    reader.unassign([tp])
    return keys, values, times


def answer(
    task: Task, spec: StoreSpec, work: CommitWork, records: tuple[list[Any], list[Any], list[int]]
) -> Output | None:
    """The records that restore the task's own value for each of these keys whose last value is another; ``None``:
    there are none."""
    keys, values, times = records
    latest_ms = max(times, default=0)
    last = dict(from_changelog_columns(spec, keys, values, times))
    own = own_values(task.backend, spec, work, last)
    differing = {
        k: own[k] for k, v in last.items() if own[k] != v and not (spec.kind == "versioned" and own[k] is None)
    }
    if not differing:
        return None
    log_keys: list[bytes | None]
    log_keys, log_values = to_changelog_columns(spec, list(differing), list(differing.values()))  # type: ignore[assignment]  # a list of bytes, read only
    stamps = [latest_ms if v is None else int.from_bytes(v[:8], "big", signed=True) for v in differing.values()]
    return Output(changelog_topic(task.application_id, spec), log_keys, log_values, stamps, partition=task.id.partition)


def own_values(
    backend: StateBackend, spec: StoreSpec, work: CommitWork, keys: Iterable[bytes]
) -> dict[bytes, bytes | None]:
    """The store's values of these keys after this commit."""
    wanted = list(keys)
    own = dict(zip(wanted, backend.get_many(spec.name, wanted), strict=True))
    pending = work.pending.get(spec.name)
    if isinstance(pending, Puts | PackedPuts | StampedPuts):
        listed = pending.listed()
        own |= {k: v for k, v in zip(listed.keys, listed.values, strict=True) if k in own}
    return own
