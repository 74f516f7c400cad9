"""Two homes of the ports behind one face: the in-memory log and a real cluster."""

from __future__ import annotations

import importlib.util
import itertools
import random
import time
from collections.abc import Mapping
from typing import Any, Protocol

from penstock.state.log import TopicPartition
from penstock.streams.kafka.admin import KafkaAdmin
from penstock.streams.kafka.client_config import admin_config, consumer_config, producer_config
from penstock.streams.kafka.consumer import KafkaConsumer
from penstock.streams.kafka.producer import KafkaProducer
from penstock.streams.ports.log import LogAdmin, LogConsumer, LogProducer, TopicSpec
from penstock.streams.testing.memory_clients import MemoryAdmin, MemoryConsumer, MemoryProducer
from penstock.streams.testing.memory_log import MemoryLog

HASTY_MS = 3_000
"""After so long without a poll a hasty member is given up; any other has a minute, so that no stall of the machine takes
its partitions."""
PATIENT_MS = 60_000
MESSAGE_MAX_BYTES = 100_000
QUEUE_MAX_RECORDS = 10
NATIVE_MODES = ["off", *(["require"] if importlib.util.find_spec("penstock_native") else [])]
"""How Kafka's clients are tried: plainly, and natively where the native part was built."""
BROKER_MAX_BYTES = "20000"
TOO_LARGE = random.Random(1).randbytes(50_000)
"""Taken by the client and refused by a topic with ``BROKER_MAX_BYTES``, which counts compressed bytes."""


class World(Protocol):
    """What a contract test may ask for. Everything that is opened is closed with the world."""

    def consumer(self, group: str, *, hasty: bool = False) -> LogConsumer:
        """``hasty``: ``stop_polling`` has an effect on it."""

    def producer(self, transactional_id: str | None = None) -> LogProducer:
        """Takes records up to ``MESSAGE_MAX_BYTES`` and queues at most ``QUEUE_MAX_RECORDS``."""

    def admin(self) -> LogAdmin: ...

    def delete_before(self, place: TopicPartition, offset: int) -> None:
        """What retention does."""

    def stop_polling(self) -> None:
        """Let the poll interval of every hasty consumer run out."""

    def name(self, stem: str) -> str:
        """A name that no other test uses."""


class Names:
    """Fresh names, and topics under them."""

    def __init__(self) -> None:
        self._count = itertools.count()
        self._run = f"{time.time_ns():x}"
        self._opened: list[Any] = []

    def name(self, stem: str) -> str:
        """See ``World``."""
        return f"{stem}-{self._run}-{next(self._count)}"

    def keep(self, client: Any) -> Any:
        """Close it with the world."""
        self._opened.append(client)
        return client

    def close(self) -> None:
        """Close what was opened, last first."""
        while self._opened:
            self._opened.pop().close()


class MemoryWorld(Names):
    """Everything in this process."""

    def __init__(self) -> None:
        super().__init__()
        self.log = MemoryLog()

    def consumer(self, group: str, *, hasty: bool = False) -> LogConsumer:
        interval_ms = HASTY_MS if hasty else PATIENT_MS
        made: LogConsumer = self.keep(MemoryConsumer(self.log, group, poll_interval_max_ms=interval_ms))
        return made

    def producer(self, transactional_id: str | None = None) -> LogProducer:
        made: LogProducer = self.keep(
            MemoryProducer(
                self.log,
                transactional_id=transactional_id,
                message_max_bytes=MESSAGE_MAX_BYTES,
                queue_max_records=QUEUE_MAX_RECORDS,
            )
        )
        return made

    def admin(self) -> LogAdmin:
        return MemoryAdmin(self.log)

    def delete_before(self, place: TopicPartition, offset: int) -> None:
        self.log.partition(place).delete_before(offset)

    def stop_polling(self) -> None:
        self.log.advance(HASTY_MS + 1)


class KafkaWorld(Names):
    """Real clients on a real cluster. ``native``: see ``native.open_reader``."""

    def __init__(self, bootstrap_servers: str, common: Mapping[str, Any] | None = None, native: str = "auto") -> None:
        super().__init__()
        self.native = native
        self._bootstrap_servers = bootstrap_servers
        self._common = dict(common or {})

    def consumer(self, group: str, *, hasty: bool = False) -> LogConsumer:
        interval_ms = HASTY_MS if hasty else PATIENT_MS
        config = consumer_config(
            self._bootstrap_servers,
            group,
            {**self._common, "max.poll.interval.ms": interval_ms},
            session_timeout_ms=interval_ms,
        )
        made: LogConsumer = self.keep(KafkaConsumer(config, request_timeout_s=60.0, native=self.native))
        return made

    def producer(self, transactional_id: str | None = None) -> LogProducer:
        keys = {"message.max.bytes": MESSAGE_MAX_BYTES, "queue.buffering.max.messages": QUEUE_MAX_RECORDS}
        config = producer_config(
            self._bootstrap_servers,
            {**self._common, **keys, "batch.size": MESSAGE_MAX_BYTES},
            transactional_id=transactional_id,
            transaction_timeout_ms=PATIENT_MS,
        )
        made: LogProducer = self.keep(KafkaProducer(config, native=self.native))
        return made

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


def topic(world: World, partitions: int = 1, **config: str) -> str:
    """A new topic; records keep their timestamps whatever they are."""
    name = world.name("topic")
    keys = {key.replace("_", "."): value for key, value in config.items()}
    world.admin().create_topics([TopicSpec(name, partitions, config={"retention.ms": "-1", **keys})])
    return name
