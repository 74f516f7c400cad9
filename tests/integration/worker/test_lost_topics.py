"""Topics that go away under a running worker."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from penstock.streams.events.facts import StoreQuarantined
from penstock.streams.kafka.admin import KafkaAdmin
from penstock.streams.ports.log import TopicSpec
from penstock.streams.worker.worker import Worker
from tests.integration.worker.application import PARTITIONS, UNDISTURBED, Application, until
from tests.recorder import Recorder


def test_changelog_that_is_made_again_ends_the_worker(kafka: str, tmp_path: Path) -> None:
    app = Application(kafka, "again", tmp_path)
    app.add_lines(100)
    with app.process(settings=UNDISTURBED) as worker:
        app.wait()
        # Asleep meanwhile, so that it finds another topic and not none.
        worker.signal(signal.SIGSTOP)
        (changelog,) = (t for t in app.admin.topics(app.name) if t.endswith("-changelog"))
        client = AdminClient({"bootstrap.servers": kafka})
        client.delete_topics([changelog])[changelog].result()
        until("the topic is there again", lambda: made(app, changelog))
        worker.signal(signal.SIGCONT)
        app.feed("the worker ends", lambda: not worker.alive)
        assert worker.wait() == 1
    assert "IncompatibleError" in worker.said
    assert "recreated" in worker.said


def test_broker_that_knows_a_new_changelog_late_costs_no_state(
    kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ids of topics are part of every position. One that was missing when the worker began would be missed in all of its
    state, and the next start would put that aside."""
    app = Application(kafka, "late", tmp_path)
    app.add_lines(100)
    late, known = [1], KafkaAdmin.topic_ids

    def topic_ids(self: KafkaAdmin, topics: Sequence[str]) -> dict[str, str]:
        found = known(self, topics)
        if late and len(topics) > 1:
            late.pop()
            return {topic: topic_id for topic, topic_id in found.items() if not topic.endswith("-changelog")}
        return found

    monkeypatch.setattr(KafkaAdmin, "topic_ids", topic_ids)
    first = Worker(app.topology, app.settings()).start()
    app.wait()
    first.stop()
    assert not late
    events = Recorder()
    second = Worker(app.topology, app.settings(), events=events).start()
    app.add_lines(100)
    app.wait()
    second.stop()
    assert events.of(StoreQuarantined) == []
    app.assert_exact()


def made(app: Application, topic: str) -> bool:
    """Whether a topic, which is still being deleted at first, could be created."""
    try:
        app.admin.create_topics([TopicSpec(topic, PARTITIONS, 1, {"cleanup.policy": "compact"})])
    except (KafkaException, OSError):
        time.sleep(0.1)
    return topic in app.admin.partition_counts([topic])
