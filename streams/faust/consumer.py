"""The consumer port, fed by Faust's agents.

Two threads meet here. Faust's event loop adds messages and reports what was assigned and revoked; the worker's run loop
polls in its own thread. A rebalance waits in Faust's loop until the run loop has served it inside ``poll``, as with any
consumer's callbacks.

Committed positions belong to Penstock's own group, which has no members, so plain commits to it are accepted; Faust's
group would refuse them while it has members. When Faust asks for its group's positions, it gets these instead
(``positions``), so it continues exactly from them.

A message that was fetched before a rebalance may arrive after it: it was in Faust's queues, or waited here for room. If
the partition was revoked meanwhile and assigned again from its committed position, the records before it will come
again. So it is dropped: it has another generation of Faust's group, or waited under a former assignment.
"""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Literal

from penstock.state.errors import RetriableError
from penstock.state.log import Headers, TopicPartition
from penstock.streams.kafka.consumer import KafkaConsumer
from penstock.streams.ports.chunk import Chunk
from penstock.streams.ports.log import Fetched, OffsetAndMetadata, OnPartitions

BUFFERED_MAX = 50_000
"""The number of records that may wait here before agents are blocked."""


@dataclasses.dataclass(frozen=True, slots=True)
class Arrived:
    """One message from Faust. ``generation``: of Faust's group when it was fetched; ``None``: not known."""

    partition: TopicPartition
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: Headers
    generation: int | None = None


class FaustConsumer:
    """``LogConsumer`` over Faust. ``group`` is a consumer of Penstock's own group, used for its positions only.
    ``faust_at_end(partition)`` asks Faust's consumer from the run loop."""

    def __init__(
        self,
        group: KafkaConsumer,
        faust_at_end: Callable[[TopicPartition], bool],
    ) -> None:
        self._group = group
        self._faust_at_end = faust_at_end
        self._change = threading.Condition()
        self._buffers: dict[TopicPartition, deque[Arrived]] = {}
        self._positions: dict[TopicPartition, int] = {}
        self._generations: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        self._events: deque[tuple[Literal["assign", "revoke"], list[TopicPartition], Future[None]]] = deque()
        self._buffered = 0
        self._callbacks: dict[str, OnPartitions] = {}
        self._closed = False

    # -- Faust's side --------------------------------------------------------------------------------------------

    async def offer(self, kind: Literal["assign", "revoke"], partitions: Iterable[TopicPartition]) -> None:
        """A rebalance: returns when the run loop has served it."""
        served: Future[None] = Future()
        with self._change:
            if self._closed:
                return
            self._events.append((kind, list(partitions), served))
            self._change.notify()
        await asyncio.wrap_future(served)

    def expect(self, partitions: Iterable[TopicPartition], generation: int) -> None:
        """Accept only messages of this generation for these partitions from now on. Called after every rebalance,
        before Faust gets the positions from which it fetches again."""
        with self._change:
            self._generations.update(dict.fromkeys(partitions, generation))

    async def put(self, arrived: Arrived) -> None:
        """Add a message; wait while too many are buffered. Drops messages that were seen already, are not assigned, or
        were fetched for a former assignment."""
        assigned = self._buffers.get(arrived.partition)
        while self._buffered >= BUFFERED_MAX and not self._closed:
            await asyncio.sleep(0.01)
        with self._change:
            expected = self._positions.get(arrived.partition)
            if expected is None or arrived.offset < expected:
                return
            buffer = self._buffers[arrived.partition]
            # each assignment has a buffer of its own
            if buffer is not assigned or arrived.generation not in (None, self._generations.get(arrived.partition)):
                return
            self._positions[arrived.partition] = arrived.offset + 1
            buffer.append(arrived)
            self._buffered += 1
            self._change.notify()

    def positions(self) -> dict[TopicPartition, int]:
        """Return the positions from which Faust continues."""
        with self._change:
            return dict(self._positions)

    # -- the port ------------------------------------------------------------------------------------------------

    def subscribe(
        self, topics: Sequence[str], *, on_assign: OnPartitions, on_revoke: OnPartitions, on_lost: OnPartitions
    ) -> None:
        """Keep the callbacks; Faust has subscribed already."""
        self._callbacks = {"assign": on_assign, "revoke": on_revoke}

    def assign_at(self, offsets: Mapping[TopicPartition, int]) -> None:
        """See the port. Partitions that are read already can only keep their position: see ``seek``."""
        for tp, offset in offsets.items():
            if tp in self._positions:
                self.seek(tp, offset)
        with self._change:
            for tp in offsets.keys() - self._positions.keys():
                self._positions[tp] = offsets[tp]
                self._buffers[tp] = deque()

    def unassign(self, partitions: Iterable[TopicPartition]) -> None:
        """See the port."""
        with self._change:
            for tp in partitions:
                self._positions.pop(tp, None)
                self._buffered -= len(self._buffers.pop(tp, ()))
                self._paused.discard(tp)

    def poll(self, max_records: int, timeout_s: float) -> Fetched:
        """See the port."""
        with self._change:
            if not self._events and not self._ready():
                self._change.wait(timeout_s)
        self._serve()
        with self._change:
            chunks = self._take(max_records)
            empty = [tp for tp, b in self._buffers.items() if not b and tp not in self._paused]
            reached = {tp: self._positions[tp] for tp in empty}
        # a record on its way through Faust may still come: then the feed notes a cut, as for any late arrival
        ends = {tp: at for tp, at in reached.items() if self._faust_at_end(tp)} if not chunks else {}
        return Fetched(chunks, ends)

    def _ready(self) -> bool:
        return any(b for tp, b in self._buffers.items() if tp not in self._paused)

    def _serve(self) -> None:
        while True:
            with self._change:
                if not self._events or not self._callbacks:  # told once it has subscribed
                    return
                kind, partitions, served = self._events.popleft()
            try:
                self._callbacks[kind](partitions)
                if kind == "revoke":
                    self.unassign(partitions)
            except BaseException as exc:
                served.set_exception(exc)
                raise
            served.set_result(None)

    def _take(self, max_records: int) -> list[Chunk]:
        chunks: list[Chunk] = []
        left = max_records
        for tp, buffer in self._buffers.items():
            if tp in self._paused or not buffer or not left:
                continue
            rows = [buffer.popleft() for _ in range(min(left, len(buffer)))]
            left -= len(rows)
            self._buffered -= len(rows)
            chunks.append(
                Chunk(
                    tp.topic,
                    tp.partition,
                    [r.offset for r in rows],
                    [r.key for r in rows],
                    [r.value for r in rows],
                    [r.timestamp_ms for r in rows],
                    [r.headers for r in rows] if any(r.headers for r in rows) else None,
                )
            )
        return chunks

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """See the port. Records are buffered here meanwhile."""
        with self._change:
            self._paused.update(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """See the port."""
        with self._change:
            self._paused.difference_update(partitions)
            self._change.notify()

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Allow only the current position. Going back is refused: messages in Faust's queues could not be distinguished
        from later ones, so records could be skipped. A restart continues from the committed positions."""
        if self._positions.get(partition) != offset:
            raise RetriableError(
                f"{partition} must be read again from offset {offset}, which cannot be done safely inside Faust; "
                "start the process again: it goes on from there"
            )

    def committed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Read the positions of Penstock's own group."""
        return self._group.committed(partitions)

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Commit to Penstock's own group."""
        self._group.commit(offsets)

    def group_metadata(self) -> Any:
        """Refuse: there is no membership to fence by, which is why exactly-once is refused."""
        return None

    def watermarks(self, partition: TopicPartition) -> tuple[int, int]:
        """See the port."""
        return self._group.watermarks(partition)

    def leader_epochs(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """See the port."""
        return self._group.leader_epochs(partitions)

    def holds(self, partition: TopicPartition, offset: int, epoch: int) -> bool:
        """See the port."""
        return self._group.holds(partition, offset, epoch)

    def known_ends(self) -> Mapping[TopicPartition, int]:
        """None: Faust's consumer reads."""
        return {}

    def close(self) -> None:
        """Release Faust's side too. Idempotent."""
        with self._change:
            self._closed = True
            events, self._events = list(self._events), deque()
            self._change.notify()
        for _, _, served in events:
            served.set_result(None)
        self._group.close()
