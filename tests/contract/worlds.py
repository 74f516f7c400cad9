"""Our logs, for the contract: the in-memory one and a real cluster."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Mapping
from typing import Any

from opentelemetry.sdk.trace import TracerProvider

from penstock.state.log import TopicPartition
from penstock.streams.kafka.admin import KafkaAdmin
from penstock.streams.kafka.client_config import admin_config, consumer_config, producer_config
from penstock.streams.kafka.consumer import KafkaConsumer
from penstock.streams.kafka.producer import KafkaProducer
from penstock.streams.ports.log import LogAdmin, LogConsumer, LogProducer
from penstock.streams.testing.contracts.log_world import (
    HASTY_MS,
    MESSAGE_MAX_BYTES,
    PATIENT_MS,
    QUEUE_MAX_RECORDS,
    World,
)
from penstock.streams.testing.memory_clients import MemoryAdmin, MemoryConsumer, MemoryProducer
from penstock.streams.testing.memory_incremental_clients import IncrementalConsumer
from penstock.streams.testing.memory_log import MemoryLog
from penstock.streams.worker.record_spans import RecordSpans
from penstock.streams.worker.traced_log import TracedConsumer, TracedProducer

NATIVE_MODES = ["off", *(["require"] if importlib.util.find_spec("penstock_native") else [])]
"""How Kafka's clients are tried: plainly, and natively where the native part was built."""


class MemoryWorld(World):
    """Everything in this process. ``protocol``: of its groups."""

    def __init__(self, protocol: str = "classic") -> None:
        super().__init__()
        self.log = MemoryLog()
        self._consumer = IncrementalConsumer if protocol == "consumer" else MemoryConsumer

    def consumer(self, group: str, *, hasty: bool = False, instance_id: str = "") -> LogConsumer:
        interval_ms = HASTY_MS if hasty else PATIENT_MS
        return self.keep(self._consumer(self.log, group, poll_interval_max_ms=interval_ms, instance_id=instance_id))

    def producer(self, transactional_id: str | None = None) -> LogProducer:
        return self.keep(
            MemoryProducer(
                self.log,
                transactional_id=transactional_id,
                message_max_bytes=MESSAGE_MAX_BYTES,
                queue_max_records=QUEUE_MAX_RECORDS,
            )
        )

    def admin(self) -> LogAdmin:
        return MemoryAdmin(self.log)

    def delete_before(self, place: TopicPartition, offset: int) -> None:
        self.log.partition(place).delete_before(offset)

    def stop_polling(self) -> None:
        self.log.advance(HASTY_MS + 1)


class TracedWorld(MemoryWorld):
    """That, with its consumers and producers watched for traces."""

    def __init__(self) -> None:
        super().__init__()
        self._traces = RecordSpans(TracerProvider(), "app")

    def consumer(self, group: str, *, hasty: bool = False, instance_id: str = "") -> LogConsumer:
        return TracedConsumer(super().consumer(group, hasty=hasty, instance_id=instance_id), self._traces)

    def producer(self, transactional_id: str | None = None) -> LogProducer:
        return TracedProducer(super().producer(transactional_id), self._traces)


class KafkaWorld(World):
    """Real clients on a real cluster. ``native``: see ``native.open_reader``; ``protocol``: of its groups."""

    def __init__(
        self,
        bootstrap_servers: str,
        common: Mapping[str, Any] | None = None,
        native: str = "auto",
        protocol: str = "classic",
    ) -> None:
        super().__init__()
        self._protocol = {} if protocol == "classic" else {"group.protocol": protocol}
        self.native = native
        self._bootstrap_servers = bootstrap_servers
        self._common = dict(common or {})

    def consumer(self, group: str, *, hasty: bool = False, instance_id: str = "") -> LogConsumer:
        interval_ms = HASTY_MS if hasty else PATIENT_MS
        config = consumer_config(
            self._bootstrap_servers,
            group,
            {**self._common, **self._protocol, "max.poll.interval.ms": interval_ms},
            session_timeout_ms=interval_ms,
            group_instance_id=instance_id or None,
        )
        return self.keep(KafkaConsumer(config, request_timeout_s=60.0, native=self.native))

    def producer(self, transactional_id: str | None = None) -> LogProducer:
        keys = {"message.max.bytes": MESSAGE_MAX_BYTES, "queue.buffering.max.messages": QUEUE_MAX_RECORDS}
        config = producer_config(
            self._bootstrap_servers,
            {**self._common, **keys, "batch.size": MESSAGE_MAX_BYTES},
            transactional_id=transactional_id,
            transaction_timeout_ms=PATIENT_MS,
        )
        return self.keep(KafkaProducer(config, native=self.native))

    def admin(self) -> LogAdmin:
        return KafkaAdmin(admin_config(self._bootstrap_servers, self._common))

    def delete_before(self, place: TopicPartition, offset: int) -> None:
        import confluent_kafka
        from confluent_kafka.admin import AdminClient

        client = AdminClient({"bootstrap.servers": self._bootstrap_servers})
        asked = client.delete_records([confluent_kafka.TopicPartition(place.topic, place.partition, offset)])
        for future in asked.values():
            future.result()

    def stop_polling(self) -> None:
        time.sleep(HASTY_MS / 1000 + 3)
