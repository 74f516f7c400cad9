"""The producer port on the in-memory log."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from penstock.state.errors import PenstockError, TaskMigratedError, UserError
from penstock.state.log import Headers, TopicPartition
from penstock.state.serdes.partitioner import partition_for
from penstock.streams.ports.log import AbortableError, OffsetAndMetadata, ProducerRetiredError, UnknownOutcomeError
from penstock.streams.task.sink_operator import BY_KEY
from penstock.streams.testing.memory_groups import GroupToken
from penstock.streams.testing.memory_log import LogEntry, MemoryLog
from penstock.topologies.operator_api.columns import Column, Ints

MESSAGE_MAX_BYTES = 1_000_000
"""A client's default limit of one record."""


class MemoryProducer:
    """``LogProducer`` on a ``MemoryLog``.

    Records are written when the queue holds more than ``queue_max_records`` and at ``flush`` and ``commit``: with 0, as
    early as possible, which is the worst case for what a crash leaves behind.
    """

    def __init__(
        self,
        log: MemoryLog,
        *,
        transactional_id: str | None = None,
        transaction_timeout_ms: int = 10_000,
        message_max_bytes: int = MESSAGE_MAX_BYTES,
        queue_max_records: int = 0,
    ) -> None:
        self._log = log
        self._transactional_id = transactional_id
        self._transaction_timeout_ms = transaction_timeout_ms
        self._message_max_bytes = message_max_bytes
        self._queue_max_records = queue_max_records
        self._queue: deque[tuple[TopicPartition, LogEntry, bool]] = deque()
        self._epoch = -1
        self._in_transaction = False
        self._refused: PenstockError | None = None
        self._gap = False
        self._retired: str | None = None
        self._acked: dict[TopicPartition, int] = {}
        self._keyless = 0

    # --- sending

    def send(
        self,
        topic: str,
        keys: Sequence[bytes | None] | Column,
        values: Sequence[bytes | None] | Column,
        timestamps: Sequence[int] | Ints,
        headers: Sequence[Headers] | None = None,
        *,
        partition: int | Sequence[int] | None = None,
    ) -> None:
        """See the port."""
        if not len(keys):
            return
        self._check_usable()
        if self._transactional_id is not None and not self._in_transaction:
            raise PenstockError(f"send to {topic} outside a transaction: call begin first")
        self._pass("send")
        for i, (key, value, at) in enumerate(zip(_listed(keys), _listed(values), _listed(timestamps), strict=True)):
            chosen = partition if partition is None or isinstance(partition, int) else partition[i]
            if chosen == BY_KEY:
                chosen = None
            size = len(key or b"") + len(value or b"")
            if size > self._message_max_bytes:
                self._refused = AbortableError(
                    f"a record of {size} bytes sent to {topic} was refused: the limit is {self._message_max_bytes}; "
                    "abort and drop uncommitted work"
                )
                raise self._refused
            try:
                place = self._place(topic, key, chosen)
                self._log.partition(place)
            except PenstockError as exc:
                self._refused = AbortableError(f"a record sent to {topic} was refused: {exc}")
                raise self._refused from exc
            entry = LogEntry(key, value, at, headers[i] if headers is not None else ())
            self._queue.append((place, entry, chosen is not None))
            if len(self._queue) > self._queue_max_records:
                self._write_out()

    def _place(self, topic: str, key: bytes | None, chosen: int | None) -> TopicPartition:
        if chosen is not None:
            return TopicPartition(topic, chosen)
        count = len(self._log.topic(topic).partitions)
        if key is not None:
            return TopicPartition(topic, partition_for(key, count))
        self._keyless += 1
        return TopicPartition(topic, self._keyless % count)

    def _write_out(self) -> None:
        """Do the work of the client's background thread: write in order. Without a transaction nothing is written after a
        refused record; inside one the refused one is left out and dooms the whole."""
        if self._transactional_id is not None and self._queue:
            self._fence()
        while self._queue:
            tp, entry, explicit = self._queue.popleft()
            if self._gap:
                continue
            size = len(entry.key or b"") + len(entry.value or b"")
            limit = self._log.topic(tp.topic).max_message_bytes
            if size > limit:
                self._gap = True
                self._refused = self._refused or AbortableError(
                    f"a record of {size} bytes sent to {tp.topic} [{tp.partition}] was refused by the broker, whose limit "
                    f"is {limit}; make it smaller or raise the topic's max.message.bytes; abort and drop uncommitted work"
                )
                continue
            if self._transactional_id is not None:
                transaction = self._log.transaction(self._transactional_id, self._epoch, self._transaction_timeout_ms)
                entry = LogEntry(entry.key, entry.value, entry.timestamp_ms, entry.headers, transaction)
            offset = self._log.append(tp, entry)
            if explicit:
                self._acked[tp] = offset + 1

    def flush(self, timeout_s: float) -> dict[TopicPartition, int]:
        """See the port."""
        self._check_usable()
        self._pass("flush")
        self._write_out()
        if self._refused is not None:
            raise self._refused
        acked, self._acked = self._acked, {}
        return acked

    def unacknowledged(self) -> int:
        """See the port. Whoever looks gives the background thread its time: at the next look all is written."""
        self._check_usable()
        waiting = len(self._queue)
        self._write_out()
        return waiting

    # --- transactions

    def init_transactions(self, timeout_s: float) -> None:
        """See the port."""
        self._check_usable()
        self._pass("init")
        self._epoch = self._log.init_transactions(self._id())

    def begin(self) -> None:
        """See the port."""
        if self._refused is not None:
            raise ProducerRetiredError(f"this producer has failed ({self._refused}); open a new one")
        self._check_usable()
        if self._epoch < 0:
            raise PenstockError("begin before init_transactions: call that first")
        if self._in_transaction:
            raise PenstockError("begin inside a transaction: commit or abort it first")
        self._pass("begin")
        self._in_transaction = True

    def send_offsets(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: Any, timeout_s: float) -> None:
        """See the port."""
        self._check_usable()
        if not offsets:
            return
        self._check_inside("send_offsets")
        self._pass("send_offsets")
        self._fence()
        token = GroupToken(group, -1, "") if isinstance(group, str) else group
        try:
            self._log.group(token.group).check(token, offsets)
        except (TaskMigratedError, UserError) as exc:
            self._refused = exc
            raise
        transaction = self._log.transaction(self._id(), self._epoch, self._transaction_timeout_ms)
        transaction.offsets.setdefault(token.group, {}).update(offsets)

    def commit(self, timeout_s: float) -> None:
        """See the port."""
        self._check_usable()
        self._check_inside("commit")
        self._pass("commit_before")
        self._write_out()
        if self._refused is not None:
            raise self._refused
        self._fence()
        transaction = self._log.open_transaction(self._id())
        if transaction is not None:
            self._log.end(transaction, "committed")
        self._in_transaction = False
        self._pass("commit_after")

    def abort(self, timeout_s: float) -> None:
        """See the port."""
        self._check_alive()
        if not self._in_transaction:
            return
        self._pass("abort")
        self._queue.clear()
        self._acked.clear()
        self._fence()
        transaction = self._log.open_transaction(self._id())
        if transaction is not None:
            self._log.end(transaction, "aborted")
        self._in_transaction = False
        if self._refused is not None:
            self._retired = f"a record was refused ({self._refused})"

    def _fence(self) -> None:
        try:
            self._log.check_epoch(self._id(), self._epoch)
        except TaskMigratedError as exc:
            self._refused = exc
            raise

    def _pass(self, point: str) -> None:
        """A point where a fault may strike; what it raises marks this handle as the real client would."""
        try:
            self._log.pass_point(point)
        except UnknownOutcomeError:
            self._retired = "the outcome of its last commit is not known"
            raise
        except (AbortableError, TaskMigratedError) as exc:
            self._refused = exc
            raise
        except ProducerRetiredError as exc:
            self._retired = str(exc)
            raise

    def _id(self) -> str:
        if self._transactional_id is None:
            raise PenstockError("this producer has no transactional id; open one that has")
        return self._transactional_id

    def _check_inside(self, doing: str) -> None:
        if not self._in_transaction:
            raise PenstockError(f"{doing} outside a transaction: call begin first")

    def _check_alive(self) -> None:
        if self._retired is not None:
            raise ProducerRetiredError(f"this producer is retired: {self._retired}; open a new one")

    def _check_usable(self) -> None:
        self._check_alive()
        if self._refused is not None:
            raise self._refused

    def close(self) -> None:
        """See the port."""
        self._queue.clear()
        self._retired = self._retired or "it is closed"


def _listed(column: Any) -> Any:
    if isinstance(column, Column):
        return column.to_list()
    return column.tolist() if isinstance(column, np.ndarray) else column
