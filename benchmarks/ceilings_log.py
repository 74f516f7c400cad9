"""Ceilings of the log, with the broker on the same machine: producing, fetching, committing transactions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks import ceilings_native
from benchmarks.ceiling_topic import CONSUMER, CeilingTopic, size_of
from benchmarks.measured import Ceiling, best, measure
from benchmarks.topics import Log

TIMES = 3


def log_ceilings(log: Log, count: int) -> Iterator[Ceiling]:
    """Fetch and produce for small records (clicks) and larger ones (events). Times include connecting."""
    for data_set in ("clicks", "events"):
        yield from _of_data_set(CeilingTopic(log, data_set, count))


def _of_data_set(of: CeilingTopic) -> Iterator[Ceiling]:
    size = size_of(of.made)

    def produced(name: str, work: Callable[[Producer], float]) -> Ceiling:
        producer = of.producer()
        return measure("produce", f"{of.name}: {name}", "records", lambda: work(producer), bytes=size)

    def fetched(name: str, work: Callable[[Consumer], float]) -> Ceiling:
        consumer = of.consumer()
        try:
            while not consumer.consume(1, 1.0):
                pass
            return measure("fetch", f"{of.name}: {name}", "records", lambda: work(consumer), bytes=size)
        finally:
            consumer.close()

    of.one_by_one(of.producer())  # a broker that has just started compiles itself first
    yield best(TIMES, lambda: produced("produce_batch, no timestamps", of.by_batches))
    yield best(TIMES, lambda: produced("produce with timestamp", of.one_by_one))
    yield best(TIMES, lambda: fetched("consume, nothing read", of.bare))
    yield best(TIMES, lambda: fetched("consume, fields read", of.read))
    yield from ceilings_native.of_log(of, size)
    of.log.delete([of.topic])


def transactions(log: Log, count: int) -> Iterator[Ceiling]:
    """Commits of one record per partition and the group's positions: without a transaction, in one, and in one whose
    client asks again after 10 ms instead of 100 when the coordinator still ends the one before."""
    topic = "roofline-transactions"
    log.create(topic)
    consumer = Consumer({"bootstrap.servers": log.bootstrap, "group.id": topic, **CONSUMER})
    metadata = consumer.consumer_group_metadata()
    config = {"bootstrap.servers": log.bootstrap, "linger.ms": 0, "enable.idempotence": True}

    def write(producer: Producer, turn: int) -> list[TopicPartition]:
        for partition in range(log.variant.partitions):
            producer.produce(topic, b"value", b"key", partition)
        return [TopicPartition(topic, partition, turn) for partition in range(log.variant.partitions)]

    def flush(producer: Producer) -> float:
        for turn in range(count):
            positions = write(producer, turn)
            producer.flush()
            consumer.commit(offsets=positions, asynchronous=False)
        return count

    def commit(producer: Producer) -> float:
        for turn in range(count):
            producer.begin_transaction()
            positions = write(producer, turn)
            producer.send_offsets_to_transaction(positions, metadata)
            producer.commit_transaction()
        return count

    try:
        plain = Producer(config)
        without = measure("commit", "flush and commit of positions", "commits", lambda: flush(plain))
        yield without
        for name, more in (("transaction", {}), ("transaction, retry.backoff.ms=10", {"retry.backoff.ms": 10})):
            producer = Producer({**config, **more, "transactional.id": f"{topic}-{name}"})
            producer.init_transactions()
            found = measure("commit", name, "commits", partial(commit, producer))
            extra_ms = (1 / found.per_s - 1 / without.per_s) * 1e3
            yield found._replace(note=f"{extra_ms:+.1f} ms against the one without")
    finally:
        consumer.close()
        log.delete([topic])
