"""A partition's log as its leader knows it: where it begins and ends, its epoch, and whether it still holds what an earlier
leader had.

The client asks the last question only for a consumer that seeks to a position with an epoch (KIP-320). So a consumer of its
own does that, with nothing to fetch: it is made at the first question, since a log is only asked after its leader changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException

from penstock.state.errors import RetriableError
from penstock.state.log import TopicPartition
from penstock.streams.kafka.client_log import client_logger
from penstock.streams.kafka.errors import translate
from penstock.streams.kafka.reading_errors import translating
from penstock.streams.kafka.request_retries import answered_by_successor

_LATEST = -1
_TURN_S = 0.1
T = TypeVar("T")
PROBE_CONFIG = {
    "group.id": "penstock-epochs",
    "enable.auto.commit": False,
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    "fetch.wait.max.ms": 10,
    "isolation.level": "read_uncommitted",
}


def from_leaders(timeout_s: float, ask: Callable[[float], T]) -> T:
    """Return ``ask(attempt_s)``, repeated until ``timeout_s`` is over: see ``answered_by_successor``. Raises what ``ask``
    raises: ``RetriableError`` when the time is over.

    The client itself refreshes its metadata every few seconds (``client_config``). Asking for it here would end the process
    where this is called in a callback of the client's ``poll``: the client keeps one record of a running call, a call for
    metadata would remove that of ``poll``, and its next callback would fail an assertion (``CallState_get``). From another
    thread the call would wait for ``poll``.
    """
    return answered_by_successor(ask, "", timeout_s)


def watermarks(client: Consumer, partition: TopicPartition, timeout_s: float) -> tuple[int, int]:
    """First offset still there, and the last stable one."""
    native = confluent_kafka.TopicPartition(partition.topic, partition.partition)
    with translating(f"reading the ends of {partition.topic} [{partition.partition}]"):
        found = client.get_watermark_offsets(native, timeout=timeout_s, cached=False)
    if found is None:
        raise RetriableError(
            f"timed out after {timeout_s:.0f} s reading the offsets of {partition.topic} [{partition.partition}]; "
            "check that the brokers are reachable"
        )
    return found


def leader_epochs(
    client: Consumer, partitions: Sequence[TopicPartition], timeout_s: float
) -> dict[TopicPartition, int]:
    """The epochs of the leaders now, as far as brokers tell them."""
    asked = [confluent_kafka.TopicPartition(tp.topic, tp.partition, _LATEST) for tp in partitions]
    with translating(f"asking the leaders of {len(asked)} partitions"):
        found = client.offsets_for_times(asked, timeout=timeout_s) if asked else []
    out = {}
    for native in found:
        if native.error is not None:
            raise translate(native.error, f"asking the leader of {native.topic} [{native.partition}]")
        if native.leader_epoch is not None and native.leader_epoch >= 0:
            out[TopicPartition(native.topic, native.partition)] = native.leader_epoch
    return out


class EpochProbe:
    """Asks whether logs still hold what earlier leaders had. ``config``: of the consumer that it is for."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = {
            k: v for k, v in config.items() if not k.startswith(("group.", "partition.assignment", "statistics."))
        }
        self._client: Consumer | None = None

    def holds(self, partition: TopicPartition, offset: int, epoch: int, timeout_s: float) -> bool:
        """See the port."""
        if offset <= 0:
            return True
        if self._client is None:
            without = {k: v for k, v in self._config.items() if k != "stats_cb"}
            self._client = Consumer({**without, **PROBE_CONFIG}, logger=client_logger())
        place = partition.topic, partition.partition
        at = confluent_kafka.TopicPartition(*place, offset)
        with translating(f"asking whether {partition.topic} [{partition.partition}] has lost records"):
            self._client.incremental_assign([at])
            try:
                self._client.pause([at])
                return self._asked(confluent_kafka.TopicPartition(*place, offset, leader_epoch=epoch), timeout_s)
            finally:
                self._client.incremental_unassign([at])

    def _asked(self, at: confluent_kafka.TopicPartition, timeout_s: float) -> bool:
        assert self._client is not None
        until_s = time.monotonic() + timeout_s
        self._seek(at, until_s)
        self._client.resume([at])
        while time.monotonic() < until_s:
            message = self._client.poll(_TURN_S)
            if message is None or (message.topic(), message.partition()) != (at.topic, at.partition):
                continue
            error = message.error()
            if error is None or error.code() == KafkaError._PARTITION_EOF:
                return True
            if error.code() in (KafkaError._LOG_TRUNCATION, KafkaError._AUTO_OFFSET_RESET):
                return False
            if not error.retriable():
                raise translate(error, f"asking for the epoch {at.leader_epoch} of {at.topic} [{at.partition}]")
        raise RetriableError(
            f"{at.topic} [{at.partition}] has not said within {timeout_s:.0f} s whether it has lost records; see the brokers"
        )

    def _seek(self, at: confluent_kafka.TopicPartition, until_s: float) -> None:
        """The client cannot seek while a partition is still being started."""
        assert self._client is not None
        while True:
            try:
                self._client.seek(at)
                return
            except KafkaException as exc:
                if exc.args[0].code() != KafkaError._STATE or time.monotonic() > until_s:
                    raise
            self._client.poll(_TURN_S / 10)

    def close(self) -> None:
        """Idempotent."""
        client, self._client = self._client, None
        if client is not None:
            client.close()
