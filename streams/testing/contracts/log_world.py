"""The log under test, as its contract uses it."""

from __future__ import annotations

import itertools
import random
import time
from abc import ABC, abstractmethod
from typing import Any, TypeVar

from penstock.state.log import TopicPartition
from penstock.streams.ports.log import LogAdmin, LogConsumer, LogProducer, TopicSpec

HASTY_MS = 3_000
"""After this time without a poll a hasty member is given up; any other has ``PATIENT_MS``, so that no stall of the machine
takes its partitions."""
PATIENT_MS = 60_000
MESSAGE_MAX_BYTES = 100_000
QUEUE_MAX_RECORDS = 10
BROKER_MAX_BYTES = "20000"
TOO_LARGE = random.Random(1).randbytes(50_000)
"""Taken by the client and refused by a topic with ``BROKER_MAX_BYTES``, which counts compressed bytes."""

_Client = TypeVar("_Client", bound=Any)


class World(ABC):
    """The log that is tested. A fixture ``world`` gives one and closes it; every client that it opens goes through
    ``keep``."""

    def __init__(self) -> None:
        self._count = itertools.count()
        self._run = f"{time.time_ns():x}"
        self._opened: list[Any] = []

    @abstractmethod
    def consumer(self, group: str, *, hasty: bool = False, instance_id: str = "") -> LogConsumer:
        """A consumer of committed records, given up after ``PATIENT_MS`` without a poll; ``hasty``: after ``HASTY_MS``;
        ``instance_id``: a static member."""

    @abstractmethod
    def producer(self, transactional_id: str | None = None) -> LogProducer:
        """Takes records up to ``MESSAGE_MAX_BYTES`` and queues at most ``QUEUE_MAX_RECORDS``."""

    @abstractmethod
    def admin(self) -> LogAdmin:
        """An admin client."""

    @abstractmethod
    def delete_before(self, place: TopicPartition, offset: int) -> None:
        """Delete records at the beginning of a partition, as retention does."""

    @abstractmethod
    def stop_polling(self) -> None:
        """Let the poll interval of every hasty consumer run out."""

    def name(self, stem: str) -> str:
        """A name that no other test uses."""
        return f"{stem}-{self._run}-{next(self._count)}"

    def keep(self, client: _Client) -> _Client:
        """Close a client with the world."""
        self._opened.append(client)
        return client

    def close(self) -> None:
        """Close what was opened, last first."""
        while self._opened:
            self._opened.pop().close()


def topic(world: World, partitions: int = 1, **config: str) -> str:
    """A new topic; records keep their timestamps whatever they are."""
    name = world.name("topic")
    keys = {key.replace("_", "."): value for key, value in config.items()}
    world.admin().create_topics([TopicSpec(name, partitions, config={"retention.ms": "-1", **keys})])
    return name
