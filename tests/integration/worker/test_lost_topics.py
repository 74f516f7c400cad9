"""Topics that go away under a running worker."""

from __future__ import annotations

import time
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from penstock.streams.ports.log import TopicSpec
from tests.integration.worker.application import PARTITIONS, Application, until


def test_changelog_that_is_made_again_ends_the_worker(kafka: str, tmp_path: Path) -> None:
    app = Application(kafka, "again", tmp_path)
    app.add_lines(100)
    with app.process() as worker:
        app.wait()
        (changelog,) = (t for t in app.admin.topics(app.name) if t.endswith("-changelog"))
        client = AdminClient({"bootstrap.servers": kafka})
        client.delete_topics([changelog])[changelog].result()
        until("the topic is there again", lambda: made(app, changelog))
        app.feed("the worker ends", lambda: not worker.alive)
        assert worker.wait() == 1
    assert "IncompatibleError" in worker.said
    assert "recreated" in worker.said


def made(app: Application, topic: str) -> bool:
    """Whether a topic, which is still being deleted at first, could be created."""
    try:
        app.admin.create_topics([TopicSpec(topic, PARTITIONS, 1, {"cleanup.policy": "compact"})])
    except (KafkaException, OSError):
        time.sleep(0.1)
    return topic in app.admin.partition_counts([topic])
