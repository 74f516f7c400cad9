"""What needs neither a session nor a broker: shipping, options, errors, the place where two histories part."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.state.errors import EnvironmentFault, ProcessingError, SettingsError, TopologyError
from penstock.state.log import TaskId, TopicPartition
from penstock.streams.batch.cluster import CommittedInput
from penstock.streams.batch.replay_plan import ReplayPlan, journal_bounds, recompute_levels
from penstock.streams.batch.trace import TracedRecord, departure
from penstock.streams.kafka import embedded
from penstock.streams.spark import session
from penstock.streams.spark.connection import Connection
from penstock.streams.spark.failures import translate
from penstock.streams.spark.read import KafkaSource, java_options
from penstock.streams.spark.session import compiled_modules, package_zip
from penstock.streams.spark.shipping import ship
from penstock.streams.task.commit_metadata import CommitMetadata
from penstock.streams.task.journal import Answers, ClockFiring, Cut, JournalEntry
from penstock.streams.topology_loading import load_topology
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.graph.topology import Topology


def two_stages() -> Topology:
    b = StreamsBuilder(key=bytes, value=bytes)
    b.stream("in").select_key(lambda k, v: v).group_by_key().count(name="n").to_stream().to("out")
    return b.build()


def test_a_topology_travels_as_a_name_a_file_or_a_function(tmp_path: Path) -> None:
    assert (
        ship("penstock.topologies.examples.word_count").load() != ship("penstock.topologies.examples.ysb:build").load()
    )
    (tmp_path / "mine.py").write_text("from penstock.topologies.examples.word_count import build as topology\n")
    assert len(ship(f"{tmp_path}/mine.py").load().subtopologies) == 2
    assert len(ship(two_stages).load().subtopologies) == 2
    with pytest.raises(TopologyError, match="MODULE:NAME"):
        load_topology("word_count")
    with pytest.raises(TopologyError, match="gives a int"):
        load_topology(lambda: 3)
    with pytest.raises(TopologyError, match="cannot be sent"):
        ship(two_stages())  # type: ignore[arg-type]  # what is wrong with it is the test


def test_the_zip_can_be_imported_by_a_python_that_has_nothing_else_of_ours(tmp_path: Path) -> None:
    archive = package_zip(tmp_path)
    code = f"import sys; sys.path[:0] = [{str(archive)!r}]; import penstock.streams.task.task as t; print(t.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path, env={}
    )
    assert done.stdout.startswith(str(archive))


@pytest.mark.skipif(importlib.util.find_spec("penstock_native") is None, reason="the compiled part was not built")
def test_the_compiled_part_that_executors_get_is_one_that_they_can_load(tmp_path: Path) -> None:
    (module,) = compiled_modules()
    there = tmp_path / module.name
    there.write_bytes(module.read_bytes())
    code = f"import sys; sys.path = [{str(tmp_path)!r}, *sys.path]; import penstock_native as n; print(n.__file__)"
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True, env={})
    assert done.stdout.strip() == str(there)


def test_options_that_would_make_the_result_inexact_are_refused_and_secrets_are_not_shown() -> None:
    for name in (
        "failOnDataLoss",
        "minPartitions",
        "maxRecordsPerPartition",
        "kafka.isolation.level",
        "startingOffsets",
        "startingOffsetsByTimestamp",
        "startingTimestamp",
        "endingOffsets",
        "endingOffsetsByTimestamp",
        "endingTimestamp",
    ):
        with pytest.raises(SettingsError, match=name):
            KafkaSource("b:1", {name: "false"})
    connection = Connection("b:1", {"sasl.password": "hunter2"}, {"kafka.sasl.jaas.config": "hunter2"})
    assert "hunter2" not in repr(connection) + repr(connection.source())


def test_a_connection_without_servers_takes_what_commands_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_BOOTSTRAP_SERVERS", raising=False)
    monkeypatch.setattr(embedded, "running_bootstrap_servers", lambda: "running:1")
    assert Connection(client={"linger.ms": "5"}).bootstrap_servers == "running:1"
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP_SERVERS", "named:1")
    assert Connection() == Connection("named:1")
    monkeypatch.delenv("PENSTOCK_BOOTSTRAP_SERVERS")
    monkeypatch.setattr(embedded, "running_bootstrap_servers", lambda: None)
    with pytest.raises(SettingsError, match=r"penstock up.*Connection\('HOST:PORT'\)"):
        Connection()


def test_security_settings_of_librdkafka_are_said_in_java() -> None:
    said = java_options(
        {
            "security.protocol": "sasl_ssl",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "me",
            "sasl.password": 'a"b\\c',
            "ssl.ca.location": "/ca.pem",
            "linger.ms": "5",
        }
    )
    assert said["kafka.security.protocol"] == "SASL_SSL"
    assert said["kafka.ssl.truststore.location"] == "/ca.pem" and said["kafka.ssl.truststore.type"] == "PEM"
    assert 'username="me" password="a\\"b\\\\c";' in said["kafka.sasl.jaas.config"]
    assert not any("linger" in k for k in said)
    with pytest.raises(SettingsError, match="GSSAPI"):
        java_options({"sasl.mechanism": "GSSAPI"})


def test_an_error_in_an_executor_comes_out_as_it_was() -> None:
    text = "Traceback\n  File x\npenstock.state.errors.ProcessingError: task 0_1 stopped at topic a\n"
    error = translate(text, "the replay")
    assert type(error) is ProcessingError and str(error) == "task 0_1 stopped at topic a"
    lost = translate("KafkaIllegalStateException: Some data may have been lost because", "the replay")
    assert type(lost) is EnvironmentFault and "no longer in Kafka" in str(lost)


def seen(value: bytes, offset: int) -> TracedRecord:
    return TracedRecord(
        subtopology=0, task=0, name="s", seq=None, key=b"k", value=value, timestamp_ms=offset, input=("a", 0, offset)
    )


@pytest.mark.parametrize(
    ("live", "expected"),
    [
        ([b"1", b"3"], 4),  # agreed so far, and the batch made one more
        ([b"1", b"wrong"], 2),
        ([b"wrong"], 1),
        ([b"1", b"3", b"4", b"wrong"], 4),
        ([], 1),
    ],
)
def test_the_place_where_two_histories_part(live: list[bytes], expected: int) -> None:
    made = [seen(b"%d" % i, i) for i in range(1, 5)]
    assert departure([(v, None) for v in live], made) == ("a", 0, expected)


def test_sub_topologies_are_recomputed_after_those_that_feed_them() -> None:
    assert [[s.number for s in level] for level in recompute_levels(two_stages())] == [[0], [1]]


def journal_of(
    start: tuple[int, int], stop: tuple[int, int], wall: tuple[int, int], entries: list[JournalEntry]
) -> list[JournalEntry]:
    task = TaskId(0, 0)
    a, b = TopicPartition("a", 0), TopicPartition("b", 0)
    metadata = CommitMetadata(version=1, wall_ms=wall[0])
    plan = ReplayPlan(
        topology=two_stages(),
        application_id="app",
        started_from="start",
        tasks=(task,),
        counts={},
        ranges={a: (start[0], stop[0]), b: (start[1], stop[1])},
        starts={task: {"a": (start[0], metadata), "b": (start[1], metadata)}},
        ends={a: CommittedInput(stop[0], CommitMetadata(version=1, wall_ms=wall[1]))},
        bases={},
        recomputed=False,
        cautions=(),
    )
    return list(journal_bounds(plan, task).within(entries))


def test_of_the_journal_only_what_lies_within_the_range_is_replayed() -> None:
    early, inside, late = Cut({"a": 1, "b": 1}), Cut({"a": 5, "b": 2}), Cut({"a": 8, "b": 9})
    fired_before, fired_after = ClockFiring({"a": 2, "b": 2}, 0, 100), ClockFiring({"a": 2, "b": 2}, 100, 200)
    fired_last, fired_later = ClockFiring({"a": 8, "b": 8}, 200, 300), ClockFiring({"a": 8, "b": 8}, 300, 400)
    entries: list[JournalEntry] = [early, fired_before, fired_after, inside, fired_last, fired_later, late]
    assert journal_of((2, 2), (8, 8), (100, 300), entries) == [fired_after, inside, fired_last]


def test_answers_to_a_firing_right_after_the_commit_at_the_begin_are_replayed() -> None:
    """Those that the commit itself asked for are not, though both stand at the same offsets."""
    at, later = {"a": 2, "b": 2}, {"a": 3, "b": 2}
    asked_by_commit, asked_after = Answers(at, "ask", [b"\x00"]), Answers(at, "ask", [b"\x011"])
    fired, asked_later = ClockFiring(at, 100, 200), Answers(later, "ask", [b"\x012"])
    entries: list[JournalEntry] = [asked_by_commit, fired, asked_after, asked_later]
    assert journal_of((2, 2), (8, 8), (100, 300), entries) == [fired, asked_after, asked_later]
    assert journal_of((2, 2), (8, 8), (100, 300), [asked_by_commit, asked_later]) == [asked_later]


def test_a_local_session_shuffles_into_twice_its_threads() -> None:
    cores = os.cpu_count() or 1
    masters = ["local[2]", "local[3,4]", "local[*]", None]
    assert [session._shuffle_partitions(master) for master in masters] == [4, 6, 2 * cores, 2 * cores]
