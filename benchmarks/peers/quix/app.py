"""The workloads on Quix Streams, one process: ``app.py ysb | wordcount | enrich | count | pass-through | filter |
project``; orders come from the environment."""

from __future__ import annotations

import os
import sys
from typing import Any

from quixstreams import Application, State
from quixstreams.dataframe import StreamingDataFrame

GUARANTEES = {"at_least_once": "at-least-once", "exactly_once_v2": "exactly-once"}
DAY_MS = 86_400_000


def application() -> Application:
    """Settings as its documentation gives them, with the benchmark's commit interval, codec and partitioner."""
    consumer: dict[str, Any] = {}
    producer: dict[str, Any] = {}
    if session_ms := os.environ.get("SESSION_TIMEOUT_MS"):
        consumer["session.timeout.ms"] = int(session_ms)
    if transaction_ms := os.environ.get("TRANSACTION_TIMEOUT_MS"):
        producer["transaction.timeout.ms"] = int(transaction_ms)
    if queued := os.environ.get("QUEUED_MESSAGES"):
        consumer |= {"queued.min.messages": int(queued), "fetch.queue.backoff.ms": 2}
    return Application(
        broker_address=os.environ["BOOTSTRAP"],
        consumer_group=os.environ["APP_ID"],
        state_dir=os.environ["STATE_DIR"],
        auto_offset_reset="earliest",
        commit_interval=int(os.environ["COMMIT_MS"]) / 1000,
        processing_guarantee=GUARANTEES[os.environ["GUARANTEE"]],
        loglevel="WARNING",
        consumer_extra_config=consumer,
        producer_extra_config={
            "compression.type": "lz4",
            "linger.ms": int(os.environ.get("LINGER_MS", "5")),
            "partitioner": "murmur2_random",
            **producer,
        },
    )


def table(app: Application) -> StreamingDataFrame:
    """The joined table."""
    return app.dataframe(app.topic(os.environ["TOPIC_TABLE"], key_deserializer="str", value_deserializer="json"))


def count(value: Any, state: State) -> int:
    """The next count of the record's key."""
    uses: int = state.get("n", 0) + 1
    state.set("n", uses)
    return uses


def with_profile(click: dict[str, Any], user: dict[str, Any]) -> dict[str, Any]:
    """The click with its user's profile in it."""
    return {**click, "profile": user}


def build(app: Application, workload: str) -> None:
    """Add the workload to the application."""
    decoder = {"wordcount": "str", "count": "bytes", "pass-through": "bytes"}.get(workload, "json")
    frame = app.dataframe(app.topic(os.environ["TOPIC_IN"], key_deserializer="str", value_deserializer=decoder))
    encoder = "bytes" if workload == "pass-through" else "json"
    out = app.topic(os.environ["TOPIC_OUT"], key_serializer="str", value_serializer=encoder)
    if workload == "count":
        frame.update(count, stateful=True)
    elif workload == "wordcount":
        words = frame.apply(lambda line: line.lower().split(), expand=True)
        words = words.group_by(lambda word: word, name="word", key_deserializer="str", key_serializer="str")
        words.apply(count, stateful=True).to_topic(out)
    elif workload == "pass-through":
        frame.to_topic(out)
    elif workload == "filter":
        frame[frame["event_type"] == "view"].to_topic(out)
    elif workload == "project":
        frame[["ad_id", "event_time"]].to_topic(out)
    elif workload == "enrich":
        frame.join_asof(table(app), how="inner", on_merge=with_profile, grace_ms=DAY_MS).to_topic(out)
    elif workload == "ysb":
        views = frame[frame["event_type"] == "view"][["event_type"]]
        campaigns = views.join_asof(
            table(app), how="inner", on_merge=lambda view, ad: ad["campaign_id"], grace_ms=DAY_MS
        )
        campaigns = campaigns.group_by(lambda c: c, name="campaign", key_deserializer="str", key_serializer="str")
        counts = campaigns.tumbling_window(int(os.environ["WINDOW_MS"]), grace_ms=3_600_000).count().current()
        counts = counts.apply(
            lambda window, key, timestamp, headers: {"k": f"{key}@{window['start']}", "n": window["value"]},
            metadata=True,
        )
        counts.to_topic(out, key=lambda row: row["k"])
    else:
        raise SystemExit(f"no such workload: {workload}")


if __name__ == "__main__":
    app = application()
    build(app, sys.argv[1])
    app.run()
