"""``penstock topics alter`` against a real broker."""

from __future__ import annotations

import uuid

import pytest

from penstock.streams.cli.main import main
from penstock.streams.kafka.topics import Topics


def test_settings_and_partitions_of_a_topic_change(kafka: str, capsys: pytest.CaptureFixture[str]) -> None:
    topic, topics = f"alter-{uuid.uuid4().hex[:8]}", Topics(kafka, {})
    topics.create(topic, partitions=1, replication_factor=1, configs={"segment.ms": "60000"})
    alter = ["topics", "alter", topic, "--bootstrap-server", kafka]
    assert main([*alter, "--retention", "2d", "--config", "max.message.bytes=2000", "--partitions", "3"]) == 0
    found = topics.describe(topic)
    assert found.configs == {"max.message.bytes": "2000", "retention.ms": "172800000", "segment.ms": "60000"}
    assert len(found.partitions) == 3
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
