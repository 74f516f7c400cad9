"""``penstock groups``, ``lag`` and ``apps`` against a real cluster."""

from __future__ import annotations

import uuid

import orjson
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from penstock.streams.cli.main import main
from penstock.streams.kafka.topics import Topics


def test_lag_groups_and_apps_say_what_a_group_has_done(kafka: str, capsys: pytest.CaptureFixture[str]) -> None:
    name = f"app-{uuid.uuid4().hex[:8]}"
    topics = Topics(kafka, {})
    for topic in (f"{name}-in", f"{name}-n-changelog"):
        topics.create(topic, partitions=2, replication_factor=1, configs={})
    producer = Producer({"bootstrap.servers": kafka})
    for n in range(10):
        producer.produce(f"{name}-in", str(n).encode(), partition=0)
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": name, "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition(f"{name}-in", 0, 4)], asynchronous=False)
    consumer.close()

    def said(*args: str) -> list[dict[str, object]]:
        assert main([*args, "--json", "--bootstrap-server", kafka]) == 0
        found: list[dict[str, object]] = orjson.loads(capsys.readouterr().out)
        return found

    assert said("lag", name) == [
        {"topic": f"{name}-in", "partition": 0, "position": 4, "end": 10, "owner": None, "lag": 6},
        {"topic": f"{name}-in", "partition": 1, "position": None, "end": 0, "owner": None, "lag": None},
    ]
    assert {"group": name, "state": "empty", "members": []} in said("groups")
    own = {"name": name, "members": 0, "changelogs": 1, "repartitions": 0, "journals": 0}
    assert own in said("apps")
    assert main(["lag", f"{name}-other", "--bootstrap-server", kafka]) == 2
    assert "penstock groups" in capsys.readouterr().err
