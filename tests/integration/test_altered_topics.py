"""``penstock topics alter`` against a real broker."""

from __future__ import annotations

import uuid

import pytest

from penstock.streams.cli.main import main
from penstock.streams.kafka.topics import Topics
from tests.integration.worker.application import until


def test_settings_and_partitions_of_a_topic_change(kafka: str, capsys: pytest.CaptureFixture[str]) -> None:
    topic, topics = f"alter-{uuid.uuid4().hex[:8]}", Topics(kafka, {})
    topics.create(topic, partitions=1, replication_factor=1, configs={"segment.ms": "60000"})
    alter = ["topics", "alter", topic, "--bootstrap-server", kafka]
    assert main([*alter, "--retention", "2d", "--config", "max.message.bytes=2000", "--partitions", "3"]) == 0
    assert len(topics.describe(topic).partitions) == 3
    wanted = {"max.message.bytes": "2000", "retention.ms": "172800000", "segment.ms": "60000"}
    # A broker may answer with the old settings for a moment.
    until(f"the settings are {wanted}", lambda: topics.describe(topic).configs == wanted)
    capsys.readouterr()
    for words, said in (
        ([], "nothing to change; give --partitions"),
        (["--partitions", "3"], "has 3 partitions, and cannot have fewer or the same again"),
        (["--config", "no.such.setting=1"], "no.such.setting"),
        (["--retention", "soon"], "invalid retention 'soon'"),
    ):
        assert main([*alter, *words]) == 2
        assert said in capsys.readouterr().err
    assert main(["topics", "alter", "absent", "--partitions", "3", "--bootstrap-server", kafka]) == 2


def test_partitions_that_were_added_are_shown_afterwards(kafka: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that lags behind the controller shows the old ones for a while."""
    topic, topics = f"alter-{uuid.uuid4().hex[:8]}", Topics(kafka, {})
    topics.create(topic, partitions=1, replication_factor=1, configs={})
    answer = topics._metadata
    before = [answer()] * 3
    monkeypatch.setattr(topics, "_metadata", lambda: before.pop() if before else answer())
    topics.alter(topic, configs={}, partitions=3)
    assert before == []
    assert len(topics.describe(topic).partitions) == 3
