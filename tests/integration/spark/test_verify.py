"""Verify against real Kafka: silent when stream and batch agree, precise when they do not."""

from __future__ import annotations

import random

from pyspark.sql import SparkSession

from penstock.streams.spark.cluster import Connection
from penstock.streams.spark.verification import VerifyResult, verify
from tests.integration.spark.live import App, Live
from tests.integration.spark.topologies import joined, windowed


def feed_joined(live: Live, app: App, seed: int, rounds: int = 3) -> None:
    """Both inputs in bursts whose times overlap, so that the live order has cuts."""
    rng = random.Random(seed)
    for k in range(rounds):
        rows = [(b"k%d" % rng.randrange(20), b"%d" % i, 1000 * k + rng.randrange(2000)) for i in range(200)]
        live.produce(live.topic("t"), rows[:50])
        live.produce(live.topic("a"), rows[50:])
        app.run(commit_every=60)


def by_name(result: VerifyResult) -> dict[str, tuple[str, int]]:
    return {c.name: (c.mode, c.differences) for c in result.comparisons}


def test_a_join_with_cuts_agrees_and_altered_records_are_found(
    spark: SparkSession, connection: Connection, live: Live
) -> None:
    live.create(2, live.topic("a"), live.topic("t"), live.topic("out"))
    build = joined(live.application_id)
    with App(live, build()) as app:
        feed_joined(live, app, 7)
        assert live.read(f"{live.application_id}-0-journal")
        agreed = verify(build, application_id=live.application_id, connection=connection)
        assert agreed.same, agreed
        assert by_name(agreed) == {live.topic("out"): ("sequence", 0), "seen": ("last value", 0)}
        assert all(c.stream_rows == c.batch_rows > 0 for c in agreed.comparisons)

        # The stream writes wrongly once: an output that is not there in the batch, and a store's value.
        before = len(live.read(live.topic("a")))
        live.produce(live.topic("a"), [(b"k1", b"fine", 9000)])
        app.run()
        live.produce(live.topic("out"), [(b"k1", b"wrong", 9000)])
        live.produce(f"{live.application_id}-seen-changelog", [(b"k7", b"wrong", 1)])
        live.produce(live.topic("a"), [(b"k1", b"more", 9001)])
        live.produce(live.topic("a"), [(b"k2", b"more", 9001)])
        app.run()
        found = verify(build, application_id=live.application_id, connection=connection)
    assert before and not found.same
    print(found)
