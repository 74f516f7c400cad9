"""The workloads that were made to run on faust-streaming, one worker with RocksDB tables: ``app.py wordcount | count``;
orders come from the environment."""

from __future__ import annotations

import os
import sys
from typing import Any

import faust

PARTITIONS = 4


def application() -> faust.App:
    """Settings as its documentation gives them, with the benchmark's commit interval and codec."""
    os.makedirs(os.environ["STATE_DIR"], exist_ok=True)
    return faust.App(
        os.environ["APP_ID"],
        broker="kafka://" + os.environ["BOOTSTRAP"],
        store="rocksdb://?driver=rocksdict",
        datadir=os.environ["STATE_DIR"],
        topic_partitions=PARTITIONS,
        topic_replication_factor=1,
        web_enabled=False,
        broker_commit_interval=int(os.environ["COMMIT_MS"]) / 1000,
        consumer_auto_offset_reset="earliest",
        producer_compression_type="lz4",
        producer_linger=0.005,
        stream_wait_empty=False,
    )


def raw_topic(app: faust.App, name: str, **more: Any) -> Any:
    """A topic whose keys and values stay bytes."""
    raw = {"key_type": bytes, "value_type": bytes, "key_serializer": "raw", "value_serializer": "raw"}
    return app.topic(name, **raw, **more)


def build(app: faust.App, workload: str) -> None:
    """Add the workload's agents to the application."""
    counts = app.Table("counts", default=int, partitions=PARTITIONS, key_type=str, value_type=int)
    source = raw_topic(app, os.environ["TOPIC_IN"])
    if workload == "count":

        async def count(stream: Any) -> None:
            async for key, _ in stream.items():
                counts[key.decode()] += 1

        app.agent(source)(count)
    elif workload == "wordcount":
        out = raw_topic(app, os.environ["TOPIC_OUT"])
        name = os.environ["APP_ID"] + "-words-repartition"
        words = raw_topic(app, name, partitions=PARTITIONS, internal=True)

        async def split(stream: Any) -> None:
            async for line in stream:
                for word in line.lower().split():
                    await words.send(key=word, value=word)

        async def tally(stream: Any) -> None:
            async for word in stream:
                text = word.decode()
                counts[text] += 1
                await out.send(key=word, value=b"%d" % counts[text])

        app.agent(source)(split)
        app.agent(words)(tally)
    else:
        raise SystemExit(f"no such workload: {workload}")


if __name__ == "__main__":
    app = application()
    build(app, sys.argv[1])
    sys.argv = [sys.argv[0], "worker", "-l", "warn", "--without-web"]
    app.main()
