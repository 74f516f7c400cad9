"""The producer port on librdkafka.

Rules that the code below keeps:

- No record fails silently. In a transaction one failed record makes the whole transaction abortable, and ``flush`` asks
  the client for that verdict. Without one, the gapless guarantee makes the first refused record fatal for the client.
- A record that is refused locally was never queued, so the client does not know it: ``send`` raises, and from then on
  ``flush`` and ``commit`` refuse too, until ``abort``.
- Offsets come from one delivery report per partition and ``send``: that of its last record. Order within a partition is
  kept (idempotence), so if the last one is acknowledged, all are.
- After anything whose outcome is uncertain the handle is retired. If the connection broke during a commit that
  returned, or if the commit took more than half the socket timeout, a second request may be on its way that would end
  the *next* transaction. The commit counts as done, but this handle begins no further transaction.
- Many records in columns are queued in the background, while the caller goes on. Every other call waits for that first. What
  it raises is raised by the next ``send``, ``flush``, ``send_offsets`` or ``commit``: nothing is committed before.
- A transactional call that does not return within its time is left behind (``bounded_calls``), and the handle is
  retired: the next producer of the same id fences whatever it still does.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

from penstock.state.errors import PenstockError, RetriableError, SerdeError, TaskMigratedError
from penstock.state.failpoints import failpoint
from penstock.state.log import Headers, TopicPartition
from penstock.streams.kafka.background_call import BackgroundCall
from penstock.streams.kafka.bounded_calls import BoundedCalls, StuckError
from penstock.streams.kafka.catchable import CATCHABLE
from penstock.streams.kafka.client_log import client_logger
from penstock.streams.kafka.client_partitions import to_commit
from penstock.streams.kafka.errors import RETRIABLE, error_of, missing_right, not_opened, show, translate, translated
from penstock.streams.kafka.native import open_writer
from penstock.streams.kafka.outgoing import ANY_PARTITION, Outgoing
from penstock.streams.ports.log import AbortableError, OffsetAndMetadata, ProducerRetiredError, UnknownOutcomeError
from penstock.topologies.operator_api.columns import Column, Ints

BACKGROUND_MIN = 500
"""Fewer records are queued sooner than a thread has taken them over."""
_FULL_QUEUE_POLL_S = 0.01
_FATAL_SAID_S = 0.5
_SOCKET_TIMEOUT_MS = 60_000
# The client drops what is queued when the transaction has failed; the verdict says why it failed.
_DROPPED = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})
# What the compiled writer raises, before it queues anything, for columns that it does not take.
_NOT_COLUMNS = (TypeError, ValueError, LookupError, OverflowError, BufferError, RuntimeError)


class KafkaProducer:
    """``LogProducer`` on a real cluster. ``config`` comes from ``client_config.producer_config``.

    ``full_queue_timeout_s`` bounds how long ``send`` waits for room while no broker takes records. ``native``: see
    ``native.open_writer``.
    """

    def __init__(self, config: Mapping[str, Any], *, full_queue_timeout_s: float = 120.0, native: str = "auto") -> None:
        self._transactional_id: str | None = config.get("transactional.id")
        self._full_queue_timeout_s = full_queue_timeout_s
        self._slow_commit_s = int(config.get("socket.timeout.ms", _SOCKET_TIMEOUT_MS)) / 2000
        self._config = dict(config)
        self._in_transaction = False
        self._retired: str | None = None
        self._refused: PenstockError | None = None
        self._dropped = False  # what refused is known only as the client's dropping of records
        self._disconnects = 0
        self._acked: dict[TopicPartition, int] = {}
        self._groups: dict[str, Any] = {}
        self._calls = BoundedCalls()
        self._queueing = BackgroundCall("penstock-send")
        try:
            self._client: Producer | None = Producer({**config, "error_cb": self._on_error}, logger=client_logger())
        except (KafkaException, ValueError, TypeError) as exc:
            raise not_opened(exc, "opening a producer") from exc
        self._writer = open_writer(self._client, config, native)

    @property
    def is_native(self) -> bool:
        """Whether the compiled writer is used."""
        return self._writer is not None

    # --- callbacks, served inside poll, flush and the transaction calls

    def _on_error(self, err: KafkaError) -> None:
        if err.code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):
            self._disconnects += 1

    def _on_delivery(self, err: KafkaError | None, message: Message) -> None:
        if err is None:
            tp = TopicPartition(message.topic() or "", message.partition() or 0)
            self._acked[tp] = (message.offset() or 0) + 1
        elif self._refused is None or self._dropped:
            where = f"{message.topic()} [{message.partition()}]"
            self._refused = _refusal(err, f"a record sent to {where} was refused")
            self._dropped = err.code() in _DROPPED

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
        """See the port. Serves delivery reports once per call."""
        records = Outgoing(topic, keys, values, timestamps, headers, partition)
        if not records.count:
            return
        self._queueing.finish()
        client = self._usable(topic)
        if self._writer is not None and records.count >= BACKGROUND_MIN and records.are_columns():
            self._queueing.start(lambda: self._send_all(client, records))
        else:
            self._send_all(client, records)

    def _send_all(self, client: Producer, records: Outgoing) -> None:
        start = 0
        for last in records.reported():
            self._queue(client, records, start, last)
            self._produce(client, records, last, last + 1, self._on_delivery)
            start = last + 1
        self._queue(client, records, start, records.count)
        self._serve(client, f"sending to {records.topic}")

    def _queue(self, client: Producer, records: Outgoing, start: int, stop: int) -> None:
        """Queue the records ``[start, stop)`` without reports. If the compiled writer cannot queue some, the client
        sends them, and waits for room or reports why the record is refused."""
        if start == stop:
            return
        if self._writer is None:
            self._produce(client, records, start, stop)
            return
        columns = records.columns()
        while start < stop:
            try:
                start += self._writer.send(records.topic, *columns, start, stop)
            except _NOT_COLUMNS:
                self._produce(client, records, start, stop)
                return
            if start < stop:
                self._produce(client, records, start, start + 1)
                start += 1

    def _produce(self, client: Producer, records: Outgoing, start: int, stop: int, on_delivery: Any = None) -> None:
        """Queue records through the client. This is the hot path: ``produce`` is called by position and from C. After a
        call raised, the calls can continue; it is the one after those that returned."""
        try:
            rows = records.listed(start, stop)
        except SerdeError as exc:
            self._refused = exc
            raise
        columns = rows.arguments(records.topic, on_delivery)
        calls = map(client.produce, *columns)
        done: list[Any] = []
        while True:
            try:
                done.extend(calls)
                return
            except BufferError:
                at = len(done)
                headers = None if rows.headers is None else rows.headers[at]
                self._wait_for_room(
                    client,
                    (
                        records.topic,
                        rows.values[at],
                        rows.keys[at],
                        rows.partition(at),
                        on_delivery,
                        None,
                        rows.timestamps[at],
                        headers,
                    ),
                )
                done.append(None)
            except (KafkaException, SystemError) as exc:
                at = len(done)
                raise self._refuse(exc, records.topic, rows.partition(at), rows.keys[at], rows.values[at]) from exc

    def _wait_for_room(self, client: Producer, record: tuple[Any, ...]) -> None:
        """Send one record again and again until the full queue takes it."""
        topic, value, key, p = record[:4]
        produce: Any = client.produce
        until = time.monotonic() + self._full_queue_timeout_s
        while True:
            self._serve(client, f"sending to {topic}", _FULL_QUEUE_POLL_S)
            try:
                produce(*record)
                return
            except BufferError as exc:
                if time.monotonic() > until:
                    self._refused = AbortableError(
                        f"the producer's queue stayed full for {self._full_queue_timeout_s} s while sending to {topic}: "
                        "no broker takes records; abort, then check that the brokers are reachable"
                    )
                    raise self._refused from exc
            except (KafkaException, SystemError) as exc:
                raise self._refuse(exc, topic, p, key, value) from exc

    def _refuse(
        self, exc: BaseException, topic: str, partition: int | None, key: bytes | None, value: bytes | None
    ) -> PenstockError:
        """Remember and raise a record's refusal: it was not queued, so the client does not know it."""
        size = len(key or b"") + len(value or b"")
        where = "by its key" if partition in (None, ANY_PARTITION) else f"[{partition}]"
        what = f"a record of {size} bytes sent to {topic} {where} was refused"
        err = error_of(exc)
        # In a transaction that has failed already the client only says "erroneous state"; the verdict has the reason.
        verdict = self._verdict() if err is not None and err.code() == KafkaError._STATE else None
        if err is not None and err.code() == KafkaError._FATAL:
            verdict = self._fatal(what)
        self._refused = verdict or (translated(exc, what) if err is None else _refusal(err, what))
        return self._refused

    def _fatal(self, doing: str) -> PenstockError | None:
        """Return what made the client unusable, if it says so. It says it once, or reports it of a record."""
        client, until = self._open(), time.monotonic() + _FATAL_SAID_S
        while self._refused is None and time.monotonic() < until:
            try:
                with CATCHABLE:
                    client.poll(_FULL_QUEUE_POLL_S)
            except (KafkaException, SystemError) as exc:
                if (err := error_of(exc)) is not None:
                    return _refusal(err, doing)
        return self._refused

    def _usable(self, topic: str) -> Producer:
        client = self._open()
        self._raise_refusal()
        if self._transactional_id is not None and not self._in_transaction:
            raise PenstockError(f"send to {topic} outside a transaction: call begin first")
        return client

    def _raise_refusal(self) -> None:
        if self._dropped:
            self._refused, self._dropped = self._verdict() or self._refused, False
        if self._refused is not None:
            raise self._refused

    def _serve(self, client: Producer, doing: str, timeout_s: float = 0.0) -> None:
        try:
            with CATCHABLE:
                client.poll(timeout_s)
        except (KafkaException, SystemError) as exc:
            self._fail(exc, doing)

    def _fail(self, exc: BaseException, doing: str) -> None:
        """Keep and raise a fatal error of the client.

        A delivery report that is served while that error is raised can swallow it; the report then gives the reason.
        Without a report, the records in between cannot be confirmed.
        """
        if error_of(exc) is not None:
            error = translated(exc, doing)
        else:
            error = self._refused or AbortableError(f"{doing}: {exc}; abort, drop uncommitted work, use a new producer")
        if not isinstance(error, RetriableError):
            self._refused = error
        raise error from exc

    def flush(self, timeout_s: float) -> dict[TopicPartition, int]:
        """See the port."""
        self._queueing.finish()
        client = self._open()
        self._raise_refusal()
        try:
            with CATCHABLE:
                left = client.flush(timeout_s)
        except (KafkaException, SystemError) as exc:
            self._fail(exc, "waiting for acknowledgements")
        if self._refused is None:
            self._refused = self._verdict()
        self._raise_refusal()
        if left:
            raise RetriableError(
                f"{left} records were not acknowledged in {timeout_s} s; flush again, or check that the "
                "brokers are reachable"
            )
        acked, self._acked = self._acked, {}
        return acked

    def unacknowledged(self) -> int:
        """See the port. Serves delivery reports."""
        self._queueing.finish()
        client = self._open()
        self._serve(client, "waiting for acknowledgements")
        return len(client)

    # --- transactions

    def init_transactions(self, timeout_s: float) -> None:
        """See the port."""
        failpoint("producer.opening")
        self._call("init_transactions", "initialising transactions", timeout_s, limit_s=timeout_s)
        failpoint("producer.opened")

    def begin(self) -> None:
        """See the port."""
        self._queueing.finish()
        if self._refused is not None:
            raise ProducerRetiredError(f"this producer has failed ({self._refused}); open a new one")
        self._call("begin_transaction", "beginning a transaction")
        self._in_transaction = True

    def send_offsets(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: Any, timeout_s: float) -> None:
        """See the port."""
        self._queueing.finish()
        self._raise_refusal()
        if not offsets:
            return
        native = to_commit(offsets)
        token = self._plain_group(group) if isinstance(group, str) else group
        doing = "adding positions to the transaction"
        self._call("send_offsets_to_transaction", doing, native, token, timeout_s, limit_s=timeout_s)

    def commit(self, timeout_s: float) -> None:
        """See the port. Raises ``AbortableError`` if the client knows that nothing was committed."""
        self._queueing.finish()
        self._raise_refusal()
        client = self._open()
        before, started = self._disconnects, time.monotonic()
        try:
            self._calls.call(client.commit_transaction, timeout_s, limit_s=timeout_s)
            failpoint("commit.end_answered")
        except StuckError as exc:
            stuck = self._left_behind("committing the transaction", timeout_s)
            raise UnknownOutcomeError(f"{stuck}; retire the producer and read the committed positions") from exc
        except (KafkaException, SystemError) as exc:
            error = translated(exc, "committing the transaction")
            if isinstance(error, (AbortableError, TaskMigratedError)) or _not_committed(exc):
                self._refused = error
                raise error from exc
            self._retire("the outcome of its last commit is not known")
            raise UnknownOutcomeError(f"{error}; retire the producer and read the committed positions") from exc
        self._in_transaction = False
        took = time.monotonic() - started
        self._serve(client, "committing the transaction")
        if took > self._slow_commit_s or self._disconnects != before:
            self._retire(f"its last commit took {took:.1f} s or lost a connection on the way")

    def abort(self, timeout_s: float) -> None:
        """See the port. Allowed if the transaction never got a record or is aborted already."""
        self._queueing.forget()
        client = self._open()
        if not self._in_transaction:
            return
        failpoint("abort.asked")
        try:
            self._calls.call(client.abort_transaction, timeout_s, limit_s=timeout_s)
            failpoint("abort.answered")
        except StuckError as exc:
            raise self._left_behind("aborting the transaction", timeout_s) from exc
        except (KafkaException, SystemError) as exc:
            error = translated(exc, "aborting the transaction")
            self._retire("its transaction could not be aborted")
            raise error from exc
        self._in_transaction = False
        self._acked.clear()
        if self._refused is not None:
            # After a refused record the same handle runs out of sequence.
            self._retire(f"a record was refused ({self._refused})")

    def _call(self, method: str, doing: str, *args: Any, limit_s: float | None = None) -> None:
        function = getattr(self._open(), method)
        try:
            if limit_s is None:
                function(*args)
            else:
                self._calls.call(function, *args, limit_s=limit_s)
        except StuckError as exc:
            raise self._left_behind(doing, limit_s or 0.0) from exc
        except (KafkaException, SystemError) as exc:
            error = translated(exc, doing)
            if not isinstance(error, RetriableError):
                self._refused = error
            raise error from exc

    def _left_behind(self, doing: str, limit_s: float) -> RetriableError:
        """Retire the handle, whose call goes on without us."""
        self._retire(f"{doing} did not return within {limit_s:.1f} s")
        return RetriableError(f"{doing}: the client did not return, {limit_s:.1f} s and a grace after it was asked")

    def _verdict(self) -> PenstockError | None:
        """Return why the transaction must be aborted, or ``None``. The client reports it only by refusing: beginning a
        transaction inside another is always refused, with the reason of the failure if there was one."""
        if not self._in_transaction:
            return None
        try:
            self._open().begin_transaction()
        except KafkaException as exc:
            err = error_of(exc)
            if err is not None and (err.txn_requires_abort() or err.fatal()):
                return translate(err, "the transaction has failed")
        return None

    def _plain_group(self, group: str) -> Any:
        """Return a token that names a group without a member. The client creates one only from a consumer, which need
        not join anything."""
        if group not in self._groups:
            shared = {
                k: v for k, v in self._config.items() if k.split(".")[0] in ("bootstrap", "sasl", "ssl", "security")
            }
            consumer = Consumer({**shared, "group.id": group})
            try:
                self._groups[group] = consumer.consumer_group_metadata()
            finally:
                consumer.close()
        return self._groups[group]

    # --- life

    def _retire(self, why: str) -> None:
        self._retired = why

    def _open(self) -> Producer:
        if self._client is None:
            raise ProducerRetiredError("this producer is closed; open a new one")
        if self._retired is not None:
            raise ProducerRetiredError(f"this producer is retired: {self._retired}; open a new one")
        return self._client

    def close(self) -> None:
        """See the port. The client's own close would wait for queued records and abort what may be committed, so the
        queue is purged and the handle dropped."""
        self._queueing.forget()
        self._queueing.close()
        client, self._client = self._client, None
        self._calls.close()
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
        if client is not None:
            client.purge()
            try:
                with CATCHABLE:
                    client.poll(0)
            except (KafkaException, SystemError):
                # A closing handle only reports records that were dropped on purpose.
                return


def _not_committed(exc: BaseException) -> bool:
    """Whether the client knows that the transaction was not committed."""
    err = error_of(exc)
    return err is not None and err.txn_requires_abort()


def _refusal(err: KafkaError, what: str) -> PenstockError:
    """Return the error for a failed record: whatever the code, the work since the last commit must be dropped."""
    error = translate(err, what)
    if isinstance(error, TaskMigratedError) or missing_right(err) is not None:
        return error
    advice = ""
    if err.code() in (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_MSG_SIZE, KafkaError.RECORD_LIST_TOO_LARGE):
        advice = (
            "; make the record smaller, or raise the topic's max.message.bytes and the producer's message.max.bytes "
            "(a topic with a low limit needs a batch.size below it)"
        )
    elif err.code() in RETRIABLE:
        advice = "; check that the brokers are reachable"
    return AbortableError(f"{what}: {show(err)}{advice}; abort and drop uncommitted work")
