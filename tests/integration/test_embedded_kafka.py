"""Embedded clusters as a user meets them: the commands, the library, and the faults of a machine."""

from __future__ import annotations

import io
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

import penstock
from penstock.state.errors import EnvironmentFault, SettingsError, UserError
from penstock.state.serdes.partitioner import partition_for
from penstock.streams.cli.main import main
from penstock.streams.kafka.console import NewRecord, produce_lines, produce_records
from penstock.streams.kafka.embedded import (
    ClusterSettings,
    EmbeddedKafka,
    launch,
    start_detached,
    status_of,
    stop_detached,
)
from penstock.streams.kafka.embedded.jars import KAFKA_VERSION
from penstock.streams.kafka.embedded.java import find_java
from penstock.streams.kafka.embedded.processes import ProcessHandle, process_identity
from penstock.streams.kafka.embedded.resolve import kafka_jars
from penstock.streams.kafka.topics import Topics
from tests.integration.worker.application import until

HEAP = "320m"
LIMIT_S = 120.0
PASSING = frozenset({KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE})
"""What a client says while it connects again."""
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command in this process: exit code, output, errors."""

    def command(*argv: str, stdin: bytes = b"") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = main(argv)
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return command


@pytest.fixture
def name() -> Iterator[str]:
    """A name for a cluster, which is stopped at the end whatever happened."""
    unique = f"test-{uuid.uuid4().hex[:8]}"
    yield unique
    stop_detached(unique)


@pytest.fixture
def topic() -> str:
    """A name for a topic."""
    return f"t-{uuid.uuid4().hex[:8]}"


def values(servers: str, topic: str, count: int) -> list[bytes | None]:
    """The first ``count`` values of partition 0."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "test", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        return taken(consumer, count)
    finally:
        consumer.close()


def taken(consumer: Consumer, count: int) -> list[bytes | None]:
    """The next values that a consumer gives; fewer when they do not come in time."""
    found: list[bytes | None] = []
    until = time.monotonic() + LIMIT_S
    while len(found) < count and time.monotonic() < until:
        for message in consumer.consume(count - len(found), 0.2):
            error = message.error()
            if error is None:
                found.append(message.value())
            else:
                assert error.code() in PASSING, error
    return found


def test_a_cluster_outlives_the_command_and_is_found_by_name(run: Run, name: str, tmp_path: Path) -> None:
    path = str(Path(penstock.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-m", "penstock.streams.cli.main", "up", "--name", name, "--heap", HEAP],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f"penstock down --name {name}" in done.stdout
    record = status_of(name).record
    assert record is not None
    assert record.bootstrap_servers in done.stdout

    code, out, _ = run("status", "--name", name)
    assert (code, "is running" in out, record.bootstrap_servers in out) == (0, True, True)
    code, _, err = run("up", "--name", name)
    assert (code, "is running already" in err, f"penstock down --name {name}" in err) == (2, True, True)
    code, out, _ = run("topics", "list", "--name", name)
    assert (code, out) == (0, "topic  partitions  replication factor\n")

    os.kill(record.brokers[0].process.pid, signal.SIGKILL)
    while record.running:
        time.sleep(0.02)
    code, out, _ = run("status", "--name", name)
    assert (code, "is dead" in out, "has ended" in out) == (3, True, True)
    code, out, _ = run("down", "--name", name)
    assert (code, "had ended by itself" in out) == (0, True)
    assert not record.data_dir.exists()
    assert run("status", "--name", name)[0] == 3


def test_down_stops_the_brokers_and_keeps_chosen_data_for_the_next_up(run: Run, name: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert run("up", "--name", name, "--data", str(data), "--heap", HEAP)[0] == 0
    first = status_of(name).record
    assert first is not None
    assert run("topics", "create", "kept", "--name", name)[0] == 0
    assert run("produce", "kept", "--name", name, stdin=b"one\n")[0] == 0
    code, out, _ = run("down", "--name", name)
    assert (code, f"kept in {data}" in out) == (0, True)
    assert not first.running

    code, _, err = run("up", "--name", name, "--data", str(data), "--brokers", "3")
    assert (code, "holds the data of 1 broker" in err) == (2, True)

    assert run("up", "--name", name, "--data", str(data), "--heap", HEAP)[0] == 0
    code, out, _ = run("consume", "kept", "--from-beginning", "--max-messages", "1", "--name", name)
    assert (code, out) == (0, "one\n")


def test_a_second_cluster_on_the_same_data_is_refused(name: str, tmp_path: Path) -> None:
    with EmbeddedKafka(data_dir=tmp_path, heap=HEAP) as first:
        with pytest.raises(EnvironmentFault, match=rf"another broker, process {first.pid(0)}, uses .*penstock down"):
            start_detached(ClusterSettings(data_dir=tmp_path, heap=HEAP), name)
        assert status_of(name).state == "down"
        assert AdminClient({"bootstrap.servers": first.bootstrap_servers}).list_topics(timeout=LIMIT_S).brokers


def test_topics_are_created_listed_described_and_deleted(kafka: str, run: Run, topic: str) -> None:
    at = ("--bootstrap-server", kafka)
    created = run(
        "topics", "create", topic, "--partitions", "3", "--replication-factor", "1", "--retention", "1d",
        "--config", "cleanup.policy=compact,delete", *at,
    )  # fmt: skip
    assert created == (0, f"created topic {topic}\n", "")
    code, _, err = run("topics", "create", topic, *at)
    assert (code, f"topic {topic} exists already" in err) == (2, True)
    listed = [line.split() for line in run("topics", "list", *at)[1].splitlines()]
    assert [topic, "3", "1"] in listed

    assert run("produce", topic, "--key-separator", ":", *at, stdin=b"a:1\nb:2\nc:3\nd:4\n")[0] == 0
    code, out, _ = run("topics", "describe", topic, *at)
    assert code == 0
    assert f"topic {topic}: 3 partitions, 4 offsets in use" in out
    assert "  retention.ms=86400000" in out.splitlines()
    assert "  cleanup.policy=compact,delete" in out.splitlines()
    ends = [int(line.split()[-1]) for line in out.splitlines()[-3:]]
    assert ends == [sum(partition_for(key, 3) == p for key in (b"a", b"b", b"c", b"d")) for p in range(3)]

    assert run("topics", "delete", topic, *at) == (0, f"deleted topic {topic}\n", "")
    for command in (("topics", "describe"), ("topics", "delete"), ("consume",), ("produce",)):
        code, _, err = run(*command, topic, *at)
        assert (code, f"penstock topics create {topic}" in err) == (2, True)


def test_a_setting_that_kafka_refuses_is_one_message(kafka: str, run: Run, topic: str) -> None:
    code, out, err = run("topics", "create", topic, "--config", "nonsense=1", "--bootstrap-server", kafka)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "nonsense" in err
    code, _, err = run("topics", "create", topic, "--replication-factor", "3", "--bootstrap-server", kafka)
    assert (code, "lower replication_factor to the number of brokers" in err) == (2, True)


def test_lines_go_in_and_come_out(kafka: str, run: Run, topic: str) -> None:
    at = ("--bootstrap-server", kafka)
    run("topics", "create", topic, *at)
    lines = b"k1\tv1\nNULL\tx\nk2\tNULL\n\t\n\xff\t\xc3\xa4"
    code, out, err = run("produce", topic, "--key-separator", "\\t", "--null-marker", "NULL", *at, stdin=lines)
    assert (code, out, err) == (0, "", f"produced 5 records to {topic}\n")
    code, out, _ = run(
        "consume",
        topic,
        "--from-beginning",
        "--max-messages",
        "5",
        "--format",
        "{partition}/{offset} {key}={value}",
        *at,
    )
    assert code == 0
    assert out.splitlines() == ["0/0 k1=v1", "0/1 null=x", "0/2 k2=null", "0/3 =", "0/4 \\xff=ä"]
    code, out, _ = run("consume", topic, "--from-beginning", "--max-messages", "2", *at)
    assert (code, out) == (0, "v1\nx\n")
    assert run("consume", topic, "--timeout", "0.5", *at)[:2] == (0, "")


def test_a_line_without_its_key_is_an_error_after_the_lines_before_it(kafka: str, run: Run, topic: str) -> None:
    at = ("--bootstrap-server", kafka)
    run("topics", "create", topic, *at)
    code, _, err = run("produce", topic, "--key-separator", ":", *at, stdin=b"a:1\nb\nc:3\n")
    assert (code, "line 2 has no key separator ':'" in err) == (2, True)
    assert values(kafka, topic, 1) == [b"1"]


def test_a_record_that_the_broker_refuses_is_an_error(kafka: str, run: Run, topic: str) -> None:
    at = ("--bootstrap-server", kafka)
    run("topics", "create", topic, "--config", "max.message.bytes=200", *at)
    # Uncompressed, because what counts is the size of the compressed batch.
    code, _, err = run("produce", topic, "--client-config", "compression.type=none", *at, stdin=b"x" * 1000 + b"\n")
    assert (code, "MSG_SIZE_TOO_LARGE" in err, "0 records acknowledged" in err) == (1, True, True)


def test_headers_timestamps_and_the_zero_timestamp_are_shown(kafka: str, run: Run, topic: str) -> None:
    at = ("--bootstrap-server", kafka)
    run("topics", "create", topic, *at)
    producer = Producer({"bootstrap.servers": kafka})
    producer.produce(topic, value=b"a", timestamp=1234, headers=[("h", b"1"), ("n", None)])
    producer.produce(topic, value=b"b", headers=[("penstock.ts", b"0"), ("h", b"2")])
    assert producer.flush(LIMIT_S) == 0
    code, out, _ = run(
        "consume", topic, "--from-beginning", "--max-messages", "2", "--format", "{timestamp} [{headers}] {value}", *at
    )
    assert (code, out) == (0, "1234 [h:1,n:null] a\n0 [h:2] b\n")


def test_uncommitted_records_are_not_consumed(kafka: str, run: Run, topic: str) -> None:
    at = ("--bootstrap-server", kafka)
    run("topics", "create", topic, *at)
    producer = Producer({"bootstrap.servers": kafka, "transactional.id": topic})
    producer.init_transactions(LIMIT_S)
    producer.begin_transaction()
    producer.produce(topic, value=b"aborted")
    producer.flush(LIMIT_S)
    producer.abort_transaction(LIMIT_S)
    assert run("produce", topic, *at, stdin=b"committed\n")[0] == 0
    assert run("consume", topic, "--from-beginning", "--max-messages", "1", *at)[1] == "committed\n"


@pytest.mark.usefixtures("interruptible")
def test_a_consumer_that_waits_prints_what_comes(kafka: str, topic: str) -> None:
    Topics(kafka, {}).create(topic, partitions=1, replication_factor=1, configs={})
    path = str(Path(penstock.__file__).parents[1])
    command = [sys.executable, "-m", "penstock.streams.cli.main", "consume", topic, "--from-beginning"]
    child = subprocess.Popen(
        [*command, "--bootstrap-server", kafka],
        env=os.environ | {"PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout is not None
        for line in (b"one\n", b"two\n"):
            produce_lines(kafka, {}, topic, [line])
            assert child.stdout.readline() == line.decode()
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=LIMIT_S)
        assert (child.returncode, err) == (130, "")
    finally:
        child.kill()
        child.communicate()


def test_topics_are_never_created_by_themselves(kafka: str, topic: str) -> None:
    with pytest.raises(UserError, match=f"there is no topic '{topic}'"):
        produce_lines(kafka, {}, topic, [b"x\n"])
    assert topic not in AdminClient({"bootstrap.servers": kafka}).list_topics(timeout=LIMIT_S).topics


def test_both_group_protocols_work_with_short_sessions(kafka: str, topic: str) -> None:
    Topics(kafka, {}).create(topic, partitions=1, replication_factor=1, configs={})
    produce_lines(kafka, {}, topic, [b"x\n"])
    for protocol, extra in (("classic", {"session.timeout.ms": 1000}), ("consumer", {})):
        config = {"bootstrap.servers": kafka, "group.id": f"{topic}-{protocol}", "auto.offset.reset": "earliest"}
        consumer = Consumer({**config, "group.protocol": protocol, **extra})
        consumer.subscribe([topic])
        found = taken(consumer, 1)
        consumer.close()
        assert found == [b"x"], protocol


def test_a_busy_port_is_one_message_and_nothing_is_left(run: Run, name: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code, out, err = run("up", "--name", name, "--port", str(port))
    assert (code, out) == (1, "")
    assert f"port {port} on 127.0.0.1 is in use by another process. Choose another: penstock up --port N" in err
    assert status_of(name).state == "down"


def test_a_setting_that_the_broker_refuses_is_one_message_and_nothing_is_left(run: Run, name: str) -> None:
    code, _, err = run("up", "--name", name, "--config", "num.io.threads=many", "--heap", HEAP)
    assert (code, err.count("\n")) == (1, 1)
    assert "refused its settings" in err and "num.io.threads" in err
    assert status_of(name).state == "down"


def test_a_data_folder_that_is_a_file_is_one_message(run: Run, name: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    code, _, err = run("up", "--name", name, "--data", str(tmp_path / "file"))
    assert (code, "cannot make the folder" in err, "--data" in err) == (1, True, True)


def test_a_full_disk_is_one_message_and_nothing_is_left(run: Run, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "FREE_MIN_BYTES", 1 << 60)  # more than any disk has
    code, out, err = run("up", "--name", name)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "MB free on the disk of" in err and "penstock up --data DIR" in err
    assert status_of(name).state == "down"


def test_no_network_on_first_use_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(
        "<ivysettings><settings defaultResolver='gone'/><resolvers>"
        f"<ibiblio name='gone' m2compatible='true' root='http://127.0.0.1:{port}/'/></resolvers></ivysettings>"
    )
    cache = tmp_path / "cache"
    monkeypatch.setenv("PENSTOCK_CACHE", str(cache))
    monkeypatch.setenv("PENSTOCK_IVY_SETTINGS", str(settings))
    with pytest.raises(EnvironmentFault, match=r"could not fetch Apache Kafka .*needs the network.*JAVA_TOOL_OPTIONS"):
        kafka_jars(find_java().path)
    assert [path.name for path in cache.iterdir()] == [f"kafka-{KAFKA_VERSION}.lock"]


def test_a_killed_broker_comes_back_with_its_data_on_its_port(topic: str) -> None:
    with EmbeddedKafka(heap=HEAP) as cluster:
        servers, data = cluster.bootstrap_servers, cluster.data_dir
        Topics(servers, {}).create(topic, partitions=1, replication_factor=1, configs={})
        assert produce_lines(servers, {}, topic, [b"before\n"]) == 1
        before = cluster.pid(0)
        cluster.kill_broker(0)
        assert process_identity(before) is None
        with pytest.raises(KafkaException):
            AdminClient({"bootstrap.servers": servers, "log_level": 0}).list_topics(timeout=0.5)
        with pytest.raises(UserError, match=r"start_broker\(0\) first"):
            cluster.kill_broker(0)
        cluster.start_broker(0)
        assert cluster.pid(0) != before
        assert produce_lines(servers, {}, topic, [b"after\n"]) == 1
        assert values(servers, topic, 2) == [b"before", b"after"]
        with pytest.raises(UserError, match="running already"):
            cluster.start_broker(0)
        last = cluster.pid(0)
    assert process_identity(last) is None
    assert not data.exists()
    with pytest.raises(UserError, match="not started"):
        _ = cluster.bootstrap_servers


def test_records_of_long_ago_stay_where_their_topic_says_nothing(topic: str) -> None:
    """A topic that expires shows that the broker has looked."""
    expiring = f"{topic}-expiring"
    with EmbeddedKafka(heap=HEAP, configs={"log.retention.check.interval.ms": "500"}) as cluster:
        servers = cluster.bootstrap_servers
        topics = Topics(servers, {})
        for name, configs in ((topic, {}), (expiring, {"retention.ms": "1000"})):
            topics.create(name, partitions=1, replication_factor=1, configs=configs)
            produce_records(servers, {}, name, [NewRecord(None, b"old", 10)])
        until("the broker has looked", lambda: topics.describe(expiring).partitions[0].start_offset == 1)
        assert topics.describe(topic).partitions[0].start_offset == 0
        assert values(servers, topic, 1) == [b"old"]


def test_three_brokers_serve_while_one_is_down(topic: str) -> None:
    with EmbeddedKafka(3, heap="256m") as cluster:
        servers = cluster.bootstrap_servers
        assert len(set(servers.split(","))) == 3
        topics = Topics(servers, {})
        topics.create(topic, partitions=3, replication_factor=3, configs={})
        assert all(sorted(p.replicas) == [0, 1, 2] for p in topics.describe(topic).partitions)
        wait_in_sync(topics, topic)
        cluster.kill_broker(1)
        patient = {"acks": "all", "message.timeout.ms": f"{LIMIT_S * 1000:.0f}"}
        assert produce_lines(servers, patient, topic, [b"%d\n" % i for i in range(300)]) == 300
        cluster.start_broker(1)
        wait_in_sync(topics, topic)
        assert sum(p.end_offset for p in topics.describe(topic).partitions) == 300


def wait_in_sync(topics: Topics, topic: str) -> None:
    """Until all three brokers have all of the topic."""
    until = time.monotonic() + LIMIT_S
    while not all(len(p.in_sync) == 3 for p in topics.describe(topic).partitions):
        assert time.monotonic() < until, topics.describe(topic)
        time.sleep(0.2)


def test_brokers_do_not_outlive_a_python_that_was_killed() -> None:
    path = str(Path(penstock.__file__).parents[1])
    program = (
        "import time; from penstock.streams.kafka.embedded import EmbeddedKafka\n"
        f"k = EmbeddedKafka(heap={HEAP!r}); k.start(); print(k.pid(0), k.data_dir, flush=True); time.sleep(600)\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program], env=os.environ | {"PYTHONPATH": path}, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    pid, data = child.stdout.readline().split()
    identity = process_identity(int(pid))
    assert identity is not None
    child.kill()
    child.communicate()
    until = time.monotonic() + LIMIT_S
    while ProcessHandle(int(pid), identity).is_running:
        assert time.monotonic() < until, "the broker lives on"
        time.sleep(0.05)
    while Path(data).exists():
        assert time.monotonic() < until, "the broker's temporary data were left"
        time.sleep(0.05)


def test_a_broker_that_does_not_exist_is_named() -> None:
    with pytest.raises(SettingsError, match="brokers is 0"):
        EmbeddedKafka(0)
    with pytest.raises(UserError, match="not started"):
        EmbeddedKafka().kill_broker(0)
