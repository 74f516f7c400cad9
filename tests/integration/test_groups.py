"""``penstock groups``, ``lag``, ``apps`` and ``reset`` against a real cluster."""

from __future__ import annotations

import uuid
from pathlib import Path

import orjson
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from penstock.state.errors import TaskMigratedError
from penstock.state.log import TopicPartition as InputPartition
from penstock.streams.batch.cluster import ClusterAddress, open_cluster, open_consumer, open_transactional
from penstock.streams.cli.main import main
from penstock.streams.kafka.topics import Topics
from penstock.streams.ports.log import OffsetAndMetadata
from penstock.streams.runtime.fixed_fence import fixed_id, mark_fixed
from penstock.streams.topology_loading import load_topology
from penstock.streams.worker.fixed_worker_lock import presence_group
from penstock.streams.worker.load_settings import load_settings
from penstock.streams.worker.worker import Worker
from tests.integration.worker.application import until


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


TOPOLOGY = """
import penstock as ps

builder = ps.StreamsBuilder(key=str, value=str)
builder.stream("{name}-in").group_by_key().count(name="n").to_stream().to("{name}-out", value=int)
topology = builder.build()
"""


def test_a_reset_application_counts_again_from_the_start(
    kafka: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"app-{uuid.uuid4().hex[:8]}"
    module = tmp_path / "topology.py"
    module.write_text(TOPOLOGY.format(name=name))
    topics = Topics(kafka, {})
    for topic in (f"{name}-in", f"{name}-out"):
        topics.create(topic, partitions=1, replication_factor=1, configs={})
    producer = Producer({"bootstrap.servers": kafka})
    for _ in range(3):
        producer.produce(f"{name}-in", b"v", b"k")
    assert producer.flush(30) == 0
    state = tmp_path / "state"
    settings = load_settings(env={}, application_id=name, bootstrap_servers=kafka, state_dir=str(state))
    reset = ["reset", str(module), "--application-id", name, "--bootstrap-server", kafka, "--state-dir", str(state)]

    def counted(times: int) -> None:
        worker = Worker(load_topology(str(module)), settings).start()
        try:
            until("outputs", lambda: topics.describe(f"{name}-out").partitions[0].end_offset >= times)
            assert main([*reset, "--yes"]) == 2
            assert "stop its workers first" in capsys.readouterr().err
        finally:
            worker.stop()

    counted(1)
    before = topics.describe(f"{name}-out").partitions[0].end_offset
    snapshots = tmp_path / "snapshots"
    (snapshots / name / "n" / "0").mkdir(parents=True)
    reset += ["--snapshots", str(snapshots)]
    assert main(reset) == 0
    said = capsys.readouterr().out
    assert "nothing was changed" in said
    assert f"delete topic      {name}-n-changelog" in said
    assert f"{name}-n-changelog" in {t.name for t in topics.list()}
    assert main([*reset, "--json", "--yes"]) == 0
    done = orjson.loads(capsys.readouterr().out)
    assert (done["done"], done["groups"], done["positions"]) == (True, [name], [])
    assert f"{name}-n-changelog" not in {t.name for t in topics.list()}
    assert not (state / name).exists()
    assert not (snapshots / name).exists()
    assert main(["lag", name, "--bootstrap-server", kafka]) == 2
    assert main(reset) == 0
    assert "nothing to reset" in capsys.readouterr().out
    counted(before + 1)
    assert last_count(kafka, name, before) <= 3, "the count began again, and did not go on from the old one"
    before = topics.describe(f"{name}-out").partitions[0].end_offset
    assert main([*reset, "--yes", "--to-offset", f"{name}-in:0=2"]) == 0
    assert f"begin at          {name}-in [0] offset 2" in capsys.readouterr().out
    assert main(["lag", name, "--json", "--bootstrap-server", kafka]) == 0
    assert [(p["position"], p["lag"]) for p in orjson.loads(capsys.readouterr().out)] == [(2, 1)]
    counted(before + 1)
    assert last_count(kafka, name, before) == 1, "one of three records was left to count"
    assert main([*reset, "--to-offset", f"{name}-in:0=9"]) == 2
    assert "the partition holds 0 to 3" in capsys.readouterr().err
    assert main([*reset, "--to", "2100-01-01"]) == 0
    assert f"begin at          {name}-in [0] offset 3" in capsys.readouterr().out


def test_who_ran_fixed_and_wakes_after_a_reset_commits_nothing(kafka: str, tmp_path: Path) -> None:
    name = f"app-{uuid.uuid4().hex[:8]}"
    module = tmp_path / "topology.py"
    module.write_text(TOPOLOGY.format(name=name))
    read = InputPartition(f"{name}-in", 0)
    Topics(kafka, {}).create(read.topic, partitions=1, replication_factor=1, configs={})
    address = ClusterAddress(kafka)
    marks = open_consumer(address, presence_group(name))
    mark_fixed(marks, [read])
    marks.close()
    frozen = open_transactional(address, fixed_id(name, 0), timeout_ms=60_000)
    try:
        frozen.init_transactions(60)
        frozen.begin()
        frozen.send_offsets({read: OffsetAndMetadata(7, "")}, name, 60)
        order = ["reset", str(module), "--application-id", name, "--bootstrap-server", kafka]
        assert main([*order, "--state-dir", str(tmp_path / "state"), "--yes"]) == 0
        with pytest.raises(TaskMigratedError):
            frozen.commit(60)
    finally:
        frozen.close()
    with open_cluster(address, name) as cluster:
        assert cluster.committed([read]) == {}


def last_count(kafka: str, name: str, offset: int) -> int:
    """The count that stands at this offset of the output."""
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": f"{name}-look", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(f"{name}-out", 0, offset)])
    last = consumer.poll(30)
    consumer.close()
    assert last is not None
    return int.from_bytes(last.value(), "big")
