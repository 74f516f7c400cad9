"""The consumer port on librdkafka.

Rules that the code below keeps:

- The client's queue may hold records from before a rebalance that is served in the middle of a poll. Such records are
  dropped, and partitions that are assigned again restart at the position given for them. So do partitions that a
  callback moves (an abort in the middle of a rebalance): their fetched records are from before the move.
- A callback's exception is kept and raised from ``poll``: inside the client's own callback it could be lost.
- Data is returned before an error that followed it in the same poll.
- With the classic protocol and ``range`` every rebalance is eager: the client gets the whole assignment. With the
  broker's protocol (``group.protocol=consumer``) it gets the difference.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Message

from penstock.state.errors import PenstockError
from penstock.state.log import TopicPartition
from penstock.streams.kafka import columns
from penstock.streams.kafka.client_log import client_logger
from penstock.streams.kafka.client_partitions import from_client, to_client, to_commit
from penstock.streams.kafka.errors import error_of, not_opened, translate, translated
from penstock.streams.kafka.leave_group import EVENTS_MAX, settle
from penstock.streams.kafka.log_ends import EpochProbe, from_leaders, leader_epochs, watermarks
from penstock.streams.kafka.native import open_reader
from penstock.streams.kafka.native_reader import SERVE_INTERVAL_S, NativeReader
from penstock.streams.kafka.reading_errors import ReadingErrors, place_of, translating, unreadable
from penstock.streams.kafka.request_retries import answered
from penstock.streams.ports.chunk import Chunk
from penstock.streams.ports.log import Fetched, OffsetAndMetadata

REQUEST_TIMEOUT_S = 60.0
_LEADERS_S = 10.0  # within a commit, whose transaction has its own timeout
# A seek of a partition that the client has not started yet, is still stopping, or starts in its thread just now.
_SEEK_LOST = (KafkaError._STATE, KafkaError._PREV_IN_PROGRESS, KafkaError._OUTDATED)
_error: Any = Message.error
_Offsets = dict[TopicPartition, int]


class KafkaConsumer:
    """``LogConsumer`` on a real cluster. ``config`` comes from ``client_config.consumer_config``.

    ``request_timeout_s`` bounds every call that asks the broker something. It must exceed the transaction timeout,
    since ``committed`` waits for pending transactions. ``native``: see ``native.open_reader``.
    """

    def __init__(
        self, config: Mapping[str, Any], *, request_timeout_s: float = REQUEST_TIMEOUT_S, native: str = "auto"
    ) -> None:
        self._request_timeout_s = request_timeout_s
        self._incremental = str(config.get("group.protocol", "classic")).lower() == "consumer"
        self._subscribed = False
        self._is_static = bool(config.get("group.instance.id"))
        self._positions: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        self._single_topic = False
        self._offered: dict[TopicPartition, int] | None = None
        self._touched: set[TopicPartition] = set()
        self._rebalanced = False
        self._in_callback = False
        self._failure: BaseException | None = None
        self._errors = ReadingErrors()
        try:
            self._client: Consumer | None = Consumer(dict(config), logger=client_logger())
        except (KafkaException, ValueError, TypeError) as exc:
            raise not_opened(exc, "opening a consumer") from exc
        self._probe = EpochProbe(config)
        reader = open_reader(self._client, config, native)
        self._reader = None if reader is None else NativeReader(reader)

    @property
    def is_native(self) -> bool:
        """Whether the compiled reader is used."""
        return self._reader is not None

    # --- group

    def subscribe(
        self,
        topics: Sequence[str],
        *,
        on_assign: Callable[[Sequence[TopicPartition]], None],
        on_revoke: Callable[[Sequence[TopicPartition]], None],
        on_lost: Callable[[Sequence[TopicPartition]], None],
    ) -> None:
        """Join the group; see the port. The client assigns after ``on_assign``, and unassigns after the other
        callbacks."""

        def assigned(_: Consumer, partitions: list[confluent_kafka.TopicPartition]) -> None:
            self._guarded(self._on_assigned, from_client(partitions), on_assign)

        def revoked(_: Consumer, partitions: list[confluent_kafka.TopicPartition]) -> None:
            self._guarded(self._on_taken, from_client(partitions), on_revoke)

        def lost(_: Consumer, partitions: list[confluent_kafka.TopicPartition]) -> None:
            self._guarded(self._on_taken, from_client(partitions), on_lost)

        with translating(f"subscribing to {', '.join(topics)}"):
            self._open().subscribe(list(topics), on_assign=assigned, on_revoke=revoked, on_lost=lost)
        self._subscribed = True

    def _guarded(
        self,
        step: Callable[[list[TopicPartition], Callable[[Sequence[TopicPartition]], None]], None],
        partitions: list[TopicPartition],
        callback: Callable[[Sequence[TopicPartition]], None],
    ) -> None:
        self._rebalanced = self._in_callback = True
        try:
            step(partitions, callback)
        except BaseException as exc:  # raised again by poll, interrupts included
            if self._failure is None:
                self._failure = exc
        finally:
            self._in_callback = False

    def _on_assigned(
        self, partitions: list[TopicPartition], callback: Callable[[Sequence[TopicPartition]], None]
    ) -> None:
        if self._client is None:
            return
        self._offered = {}
        try:
            callback(partitions)
            missing = [tp for tp in partitions if tp not in self._offered]
            if missing:
                raise PenstockError(f"on_assign gave no position for {missing}; call assign_at for each partition")
        except BaseException:
            self._offered = {}
            raise
        finally:
            offered, self._offered = self._offered, None
            self._positions.update(offered)
            self._touched.update(offered)
            self._tell_assignment(offered)

    def _on_taken(self, partitions: list[TopicPartition], callback: Callable[[Sequence[TopicPartition]], None]) -> None:
        if self._client is None:
            return
        try:
            callback(partitions)
        finally:
            self._touched.update(partitions)
            self._forget(partitions)
            if self._client is not None:
                if self._incremental:
                    self._client.incremental_unassign([to_client(tp) for tp in partitions])
                else:
                    self._client.unassign()
                self._leave(partitions)

    def _leave(self, partitions: Iterable[TopicPartition]) -> None:
        if self._reader is not None:
            self._reader.leave(partitions)

    def _discard(self, partitions: Iterable[TopicPartition]) -> None:
        if self._reader is not None:
            self._reader.discard(partitions)

    def _forget(self, partitions: Iterable[TopicPartition]) -> None:
        partitions = list(partitions)
        # Otherwise the client would keep a partition paused when it comes back.
        paused = [to_client(tp) for tp in partitions if tp in self._paused]
        if paused and self._client is not None:
            with translating("letting go of paused partitions"):
                self._client.resume(paused)
        for tp in partitions:
            self._positions.pop(tp, None)
            self._paused.discard(tp)
        self._single_topic = len({tp.topic for tp in self._positions}) == 1

    def _tell_assignment(self, added: Mapping[TopicPartition, int]) -> None:
        """Pass the assignment to the client: the difference if it takes one, else all of it."""
        self._single_topic = len({tp.topic for tp in self._positions}) == 1
        client = self._open()
        whole = self._subscribed and not self._incremental
        starting = self._positions if whole else added
        if self._reader is not None:
            self._reader.follow(starting)
        (client.assign if whole else client.incremental_assign)([to_client(tp, at) for tp, at in starting.items()])
        paused = [to_client(tp) for tp in self._paused]
        if paused:
            client.pause(paused)

    # --- positions

    def assign_at(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Inside ``on_assign``: set the positions of the assigned partitions. Outside: start reading more, without a
        group; partitions that are read already are moved."""
        if self._offered is not None:
            self._offered.update(offsets)
            return
        known = {tp: at for tp, at in offsets.items() if tp in self._positions}
        fresh = {tp: at for tp, at in offsets.items() if tp not in known}
        for tp, offset in known.items():
            self.seek(tp, offset)
        if fresh:
            if self._subscribed:
                raise PenstockError(
                    f"{sorted(fresh)} are not assigned to this member; the group assigns partitions inside poll"
                )
            with translating(f"assigning {sorted(fresh)}"):
                self._positions.update(fresh)
                self._tell_assignment(fresh)

    def unassign(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop reading; partitions that are not read are ignored."""
        leaving = [tp for tp in partitions if tp in self._positions]
        if not leaving:
            return
        self._forget(leaving)
        with translating(f"unassigning {leaving}"):
            if self._subscribed and not self._incremental:
                self._tell_assignment({})
            else:
                self._open().incremental_unassign([to_client(tp) for tp in leaving])
        self._leave(leaving)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """See the port. Raises ``PenstockError`` for a partition that is not read."""
        if partition not in self._positions:
            raise PenstockError(f"cannot seek {partition}: it is not assigned; call assign_at first")
        self._positions[partition] = offset
        if self._in_callback:
            self._touched.add(partition)
        self._discard([partition])
        try:
            self._open().seek(to_client(partition, offset))
        except KafkaException as exc:
            err = error_of(exc)
            if err is None or err.code() not in _SEEK_LOST:
                raise translated(exc, f"seeking {partition} to {offset}") from exc
            self._restart([partition])

    def _restart(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these again from their positions, dropping their queued records."""
        again = {tp: self._positions[tp] for tp in partitions if tp in self._positions}
        if not again:
            return
        with translating(f"restarting {sorted(again)}"):
            if not self._subscribed or self._incremental:
                self._open().incremental_unassign([to_client(tp) for tp in again])
            self._tell_assignment(again)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Return no records of these until ``resume``."""
        offered = self._offered or {}
        chosen = [tp for tp in partitions if (tp in self._positions or tp in offered) and tp not in self._paused]
        self._paused.update(chosen)
        # Inside on_assign the client does not have them yet: they start paused.
        native = [to_client(tp) for tp in chosen if tp in self._positions and tp not in offered]
        if native:
            self._discard(chosen)
            with translating(f"pausing {chosen}"):
                self._open().pause(native)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Undo ``pause``."""
        chosen = [tp for tp in partitions if tp in self._paused]
        if chosen:
            self._paused.difference_update(chosen)
            running = [tp for tp in chosen if tp in self._positions and tp not in (self._offered or {})]
            if running:
                with translating(f"resuming {chosen}"):
                    self._open().resume([to_client(tp) for tp in running])
                self._go_on_where_we_stand(running)

    def _go_on_where_we_stand(self, partitions: Iterable[TopicPartition]) -> None:
        """After a pause, ours or the client's: seek to our position. The compiled reader makes the client's own notion
        of the position wrong, and the client resumes from that one."""
        if self._reader is not None:
            for tp in partitions:
                self.seek(tp, self._positions[tp])

    # --- reading

    def poll(self, max_records: int, timeout_s: float) -> Fetched:
        """See the port. Raises ``OffsetOutOfRangeError`` and ``UnknownTopicError`` besides the consumer's errors."""
        if self._reader is not None:
            return self._poll_natively(self._reader, max_records, timeout_s)
        self._touched.clear()
        found, ends = columns.Gathered(), dict[TopicPartition, int]()
        if not self._gather(found, ends, max_records) and timeout_s > 0:
            # The client waits until it has all requested messages; asking for one returns with the first. Callbacks of
            # this call ran before that record was taken, so none of it is stale.
            first = self._take(1, timeout_s)
            self._touched.clear()
            self._sort_in(first, found, ends)
            if first and self._failure is None:
                self._gather(found, ends, max_records - 1)
        chunks = found.chunks()
        if self._touched:
            chunks = self._without_stale(chunks, ends, found.unreadable)
        return self._handed_out(chunks, ends, found.unreadable)

    def _gather(self, found: columns.Gathered, ends: dict[TopicPartition, int], most: int) -> int:
        """Take up to ``most`` queued messages. Returns how many there were. Messages after an error wait."""
        taken = 0
        while taken < most:
            wanted = min(most - taken, columns.AT_A_TIME)
            messages = self._take(wanted, 0.0)
            self._sort_in(messages, found, ends)
            taken += len(messages)
            if len(messages) < wanted or self._failure is not None:
                break
        return taken

    def _handed_out(self, chunks: list[Chunk], ends: _Offsets, bad: _Offsets) -> Fetched:
        """Return what was gathered before any damage. ``bad``: where a record cannot be returned. Records after it were
        dropped, so the next poll finds it again."""
        chunks = self._errors.sound(chunks, ends, bad)
        for chunk in chunks:
            tp = TopicPartition(chunk.topic, chunk.partition)
            self._positions[tp] = chunk.offsets[-1] + 1
            if tp in ends and ends[tp] <= chunk.offsets[-1]:
                del ends[tp]  # more was written while the client reported this end
        for tp, offset in bad.items():
            ends.pop(tp, None)
            self._failure = self._failure or unreadable(tp, offset)
            self.seek(tp, offset)
        again, failure = self._errors.again(self._positions)
        self._failure = self._failure or failure
        self._restart(again)
        if self._failure is not None and not chunks and not ends:
            self._raise_failure()
        return Fetched(chunks, ends)

    def _poll_natively(self, reader: NativeReader, max_records: int, timeout_s: float) -> Fetched:
        """``poll`` on the compiled reader; its module explains how the two queues work together."""
        until, wait_s = time.monotonic() + timeout_s, 0.0
        while True:
            self._serve_group()
            drained = reader.drain(max_records, wait_s)
            ends: dict[TopicPartition, int] = {}
            for tp, offset, err in drained.events:
                self._note(tp, offset, err, ends)
            chunks, stale = [], drained.disordered
            for chunk in drained.chunks:
                tp = TopicPartition(chunk.topic, chunk.partition)
                if tp in self._positions and chunk.offsets[0] >= self._positions[tp]:
                    chunks.append(chunk)
                else:
                    stale.append(tp)
            bad = drained.unreadable
            stale += [tp for tp, at in bad.items() if tp not in stale and at < self._positions.get(tp, at + 1)]
            for tp in stale:
                ends.pop(tp, None)
                bad.pop(tp, None)
            self._restart(stale)
            remaining_s = until - time.monotonic()
            if chunks or ends or bad or self._failure is not None or self._errors.damaged or remaining_s <= 0:
                return self._handed_out(chunks, ends, bad)
            wait_s = min(remaining_s, SERVE_INTERVAL_S)

    def _serve_group(self) -> None:
        """Let the client serve its own queue: callbacks, and errors that belong to no partition. Records and ends that
        arrive this way are out of order with others, so their partitions are restarted."""
        slipped: set[TopicPartition] = set()
        for message in self._take(EVENTS_MAX, 0.0):
            err = message.error()
            if err is None or err.code() == KafkaError._PARTITION_EOF:
                slipped.add(place_of(message))
            else:
                self._note(place_of(message), message.offset(), err, {})
        if self._rebalanced and self._incremental:
            # The client paused the partitions that stay while it moved the rest.
            self._go_on_where_we_stand(sorted(self._positions.keys() - self._touched))
        self._rebalanced = False
        self._touched.clear()
        self._restart(sorted(slipped))

    def _take(self, count: int, timeout_s: float) -> list[Message]:
        client = self._open()
        self._raise_failure()
        try:
            messages: list[Message] = client.consume(count, timeout_s)
        except (KafkaException, SystemError) as exc:
            raise translated(exc, "reading from the cluster") from exc
        self._raise_failure()
        return messages

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _sort_in(self, messages: list[Message], found: columns.Gathered, ends: dict[TopicPartition, int]) -> None:
        """Sort messages into records and ends; keep the first real error until the data is returned."""
        if any(map(_error, messages)):
            records: list[Message] = []
            for message in messages:
                err = message.error()
                if err is None:
                    records.append(message)
                else:
                    self._note(place_of(message), message.offset(), err, ends)
            messages = records
        # a rebalance in between may have changed the topics
        found.add(messages, self._single_topic and not self._touched)

    def _note(self, tp: TopicPartition, at: int | None, err: KafkaError, ends: dict[TopicPartition, int]) -> None:
        if err.code() == KafkaError._PARTITION_EOF:
            ends[tp] = at or 0
        else:
            failure = self._errors.failure(tp, at, self._positions.get(tp, -1), err)
            self._failure = self._failure or failure

    def _without_stale(self, chunks: list[Chunk], ends: _Offsets, bad: _Offsets) -> list[Chunk]:
        touched = self._touched
        fresh = [c for c in chunks if (c.topic, c.partition) not in touched]
        stale = [TopicPartition(c.topic, c.partition) for c in chunks if (c.topic, c.partition) in touched]
        stale += [tp for tp in (*ends, *bad) if tp in touched and tp not in stale]
        for tp in stale:
            ends.pop(tp, None)
            bad.pop(tp, None)
        self._restart(stale)
        return fresh

    # --- the group's positions

    def committed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """See the port. A coordinator that is not ready yet is asked again. ``RetriableError``: transactions did not end."""
        return answered(lambda left_s: self._committed(partitions, left_s), "", self._request_timeout_s)

    def _committed(
        self, partitions: Sequence[TopicPartition], timeout_s: float
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        with translating(f"reading committed positions of {len(partitions)} partitions"):
            found = self._open().committed([to_client(tp) for tp in partitions], timeout_s)
        out: dict[TopicPartition, OffsetAndMetadata | None] = {}
        for native in found:
            tp = TopicPartition(native.topic, native.partition)
            if native.error is not None:
                raise translate(native.error, f"reading the committed position of {tp.topic} [{tp.partition}]")
            out[tp] = OffsetAndMetadata(native.offset, native.metadata or "") if native.offset >= 0 else None
        return out

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """See the port."""
        if not offsets:
            return
        native = to_commit(offsets)
        with translating(f"committing positions of {len(native)} partitions"):
            done = self._open().commit(offsets=native, asynchronous=False)
        for part in done or ():
            if part.error is not None:
                raise translate(part.error, f"committing {part.topic} [{part.partition}] at {part.offset}")

    def group_metadata(self) -> Any:
        """See the port."""
        with translating("reading the group membership"):
            return self._open().consumer_group_metadata()

    def watermarks(self, partition: TopicPartition) -> tuple[int, int]:
        """See the port. A partition that has no leader yet is asked again."""
        client, limit_s = self._open(), self._request_timeout_s
        return from_leaders(limit_s, lambda s: watermarks(client, partition, s))

    def leader_epochs(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """See the port."""
        client, limit_s = self._open(), min(self._request_timeout_s, _LEADERS_S)
        return from_leaders(limit_s, lambda s: leader_epochs(client, partitions, s))

    def holds(self, partition: TopicPartition, offset: int, epoch: int) -> bool:
        """See the port. Another client asks."""
        return self._probe.holds(partition, offset, epoch, self._request_timeout_s)

    def known_ends(self) -> Mapping[TopicPartition, int]:
        """See the port: none; ``WatchedConsumer`` knows some."""
        return {}

    def close(self) -> None:
        """See the port. Callbacks are not called."""
        self._probe.close()
        client, self._client = self._client, None
        if client is not None:
            self._positions.clear()
            self._paused.clear()
            reader, self._reader = self._reader, None
            with contextlib.ExitStack() as closing:
                closing.callback(client.close)
                if reader is not None:
                    closing.callback(reader.close)
                if self._subscribed:
                    settle(client, leave=not self._is_static)

    def _open(self) -> Consumer:
        if self._client is None:
            raise PenstockError("the consumer is closed; open a new one")
        return self._client
