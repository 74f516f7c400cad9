"""The writes of one task's commit to the log: the last changes of its stores, its journal, and the positions up to
which both are written."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from itertools import compress

import numpy as np

from penstock.state.errors import ProcessingError
from penstock.state.log import TaskId, TopicPartition
from penstock.state.recovery.changelog import changelog_topic, journal_topic, to_changelog_columns
from penstock.state.stores.store import PackedChanges, PackedPuts, Puts, StampedPuts, StoreSpec, StoreWrites
from penstock.state.stores.store_view import KeyValueStoreView
from penstock.streams.ports.chunk import Chunk
from penstock.streams.task import journal
from penstock.streams.task.commit_metadata import CommitMetadata, ReadUpTo
from penstock.streams.task.output import Output
from penstock.topologies.operator_api.columns import BytesColumn


@dataclasses.dataclass
class CommitWork:
    """The writes of one task's commit to the log. ``changelogs`` go to partition ``task.partition``. ``read_up_to``: of
    the inputs of which it is known."""

    changelogs: list[tuple[StoreSpec, Output]]
    journal: Output | None
    pending: dict[str, Puts | PackedPuts | StampedPuts]
    positions: dict[str, int]
    read_up_to: dict[str, ReadUpTo]


class CommitWriter:
    """Builds the records of a task's commits and remembers where they ended: ``changelog_ends`` by store, and
    ``journal_end``; ``epochs``: of the leaders that had the changelogs up to there. ``recorded``: the metadata of the last
    commit.

    The ends of stores that this topology no longer has are carried on. A worker of the topology before, in a rolling
    update or after a step back, restores its store up to there: what lies behind it was never committed."""

    def __init__(
        self, task: TaskId, application_id: str, max_record_bytes: int, recorded: Sequence[CommitMetadata]
    ) -> None:
        self._task = task
        self._application_id = application_id
        self._max_record_bytes = max_record_bytes
        self.changelog_ends: dict[str, int] = {}
        for m in recorded:
            self.changelog_ends.update(m.changelogs)
        self.epochs: dict[str, int] = {}
        for m in recorded:
            self.epochs.update(m.epochs)
        self._read_up_to: dict[str, ReadUpTo] = {}
        self.journal_end = max((m.journal for m in recorded if m.journal is not None), default=None)

    def note_read(self, chunk: Chunk) -> None:
        """These records of an input came."""
        if len(chunk) and chunk.leader_epoch >= 0:
            self._read_up_to[chunk.topic] = ReadUpTo(chunk.offsets[-1] + 1, chunk.leader_epoch)

    def collect(
        self,
        states: Iterable[KeyValueStoreView],
        cuts: Sequence[journal.JournalEntry],
        positions: dict[str, int],
        now_ms: int,
    ) -> CommitWork:
        """The writes of all stores, and the journal record of ``cuts`` if there are any. ``now_ms`` dates that one, so
        that the journal's retention counts from when it was written. Raises ``ProcessingError`` for a value that no
        changelog takes."""
        changelogs: list[tuple[StoreSpec, Output]] = []
        pending: dict[str, Puts | PackedPuts | StampedPuts] = {}
        for state in states:
            if (changes := state.packed_changes()) is not None:
                pending[state.spec.name] = changes.puts
                logged = self._packed_changelog(state.spec, changes)
            else:
                keys, values, times = state.pending()
                if not keys and state.drop_below is None:
                    continue
                pending[state.spec.name] = Puts(keys, values)
                logged = self._changelog(state.spec, keys, values, times)
            if logged is not None:
                changelogs.append((state.spec, logged))
        record = None
        if cuts:
            topic = journal_topic(self._application_id, self._task.subtopology)
            rows: list[bytes | None] = [*journal.encode_all(cuts, self._max_record_bytes)]
            nothing: list[bytes | None] = [None] * len(rows)
            record = Output(topic, nothing, rows, [now_ms] * len(rows), partition=self._task.partition)
        # records that wait in the task were read, too, and behind the last one a position may move past markers
        read = {t: up_to._replace(offset=min(up_to.offset, positions[t])) for t, up_to in self._read_up_to.items()}
        return CommitWork(changelogs, record, pending, positions, read)

    def _packed_changelog(self, spec: StoreSpec, changes: PackedChanges) -> Output | None:
        """The changelog records as columns."""
        offsets = changes.values[1]
        if not spec.changelog or spec.source_topic is not None or len(offsets) <= 1:
            return None
        self._check_size(spec, int(np.diff(offsets).max()))
        return Output(
            changelog_topic(self._application_id, spec),
            BytesColumn(*changes.keys),
            BytesColumn(*changes.values),
            changes.times,
            partition=self._task.partition,
        )

    def _changelog(
        self, spec: StoreSpec, keys: list[bytes], values: list[bytes | None], times: list[int]
    ) -> Output | None:
        if spec.kind == "versioned" and None in values:
            # every reader of the changelog drops versions that are too old: see penstock.state.recovery.changelog
            logged = [v is not None for v in values]
            keys, times = list(compress(keys, logged)), list(compress(times, logged))
            values = [v for v in values if v is not None]
        if not spec.changelog or spec.source_topic is not None or not keys:
            return None
        self._check_size(spec, max(map(len, filter(None, values)), default=8) - 8)  # the log keeps the time separately
        topic = changelog_topic(self._application_id, spec)
        log_keys: list[bytes | None]
        log_keys, log_values = to_changelog_columns(spec, keys, values)  # type: ignore[assignment]  # a list of bytes, read only
        return Output(topic, log_keys, log_values, times, partition=self._task.partition)

    def _check_size(self, spec: StoreSpec, largest: int) -> None:
        limit = self._max_record_bytes
        if largest > limit:
            raise ProcessingError(
                f"task {self._task}: store {spec.name} holds a value of {largest} bytes, over max_record_bytes={limit}, "
                "so its changelog cannot take it and nothing is committed; keep less per key, or raise the limit here, in "
                "the changelog topic (max.message.bytes) and in the producer (message.max.bytes)"
            )

    def note_ends(self, work: CommitWork, ends: Mapping[TopicPartition, int]) -> None:
        """``ends``: offset after the last record written to each changelog and journal partition in this commit."""
        partition = self._task.partition
        for spec, output in work.changelogs:
            self.changelog_ends[spec.name] = ends[TopicPartition(output.topic, partition)]
        if work.journal is not None:
            self.journal_end = ends[TopicPartition(work.journal.topic, partition)]


def store_writes(
    work: CommitWork, states: Mapping[str, KeyValueStoreView], positions: Mapping[str, bytes]
) -> list[StoreWrites]:
    """The writes of a commit to the stores. ``positions``: encoded, by store."""
    return [StoreWrites(name, puts, positions[name], states[name].drop_below) for name, puts in work.pending.items()]
