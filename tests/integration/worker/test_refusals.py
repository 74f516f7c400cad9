"""What a worker refuses: at the start, with what to do; and bad records while it runs."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from penstock.state.errors import IncompatibleError, PenstockError, ProcessingError, SettingsError
from penstock.streams.ports.log import AbortableError
from penstock.streams.task.error_policies import Policies
from penstock.streams.worker.load_settings import load_settings
from penstock.streams.worker.settings import WorkerSettings
from penstock.streams.worker.worker import Worker
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.examples import enrich, word_count
from penstock.topologies.graph.topology import Topology
from tests.integration.worker.application import SESSION_TIMEOUT_MS, Cluster, until

MARKER = "hunter2-canary"


def settings(cluster: Cluster, tmp_path: Path, **more: Any) -> WorkerSettings:
    given = {
        "application_id": cluster.name,
        "bootstrap_servers": cluster.bootstrap_servers,
        "state_dir": str(tmp_path),
        "guarantee": "exactly_once",
        "session_timeout_ms": SESSION_TIMEOUT_MS,
        **more,
    }
    return load_settings(env={}, **given)


def start_and_stop(topology: Topology, given: WorkerSettings) -> None:
    Worker(topology, given).start().stop()


def tenths(source: str, output: str) -> Topology:
    """Ten divided by each number; 0 makes it raise."""
    builder = StreamsBuilder("tenths", value="json")
    builder.stream(source).map_values(lambda n: 10 // n, name="divide").to(output)
    return builder.build()


def ended(worker: Worker) -> PenstockError:
    """The error that the running worker ends with, which ``stop`` raises."""
    until("the worker ended", lambda: not worker.running)
    with pytest.raises(PenstockError) as caught:
        worker.stop()
    return caught.value


# -- at the start --------------------------------------------------------------------------------------------------


def test_unknown_topics_are_named_with_the_command(kafka: str, tmp_path: Path) -> None:
    """All at once, that of the dead letters too."""
    cluster = Cluster(kafka, "unknown")
    given = settings(cluster, tmp_path, policies=Policies(dead_letter_topic="dead"))
    with pytest.raises(IncompatibleError, match=r"do not exist: missing, dead; .*penstock topics create missing"):
        start_and_stop(word_count.build("missing", cluster.create("out")), given)


def test_unequal_partition_counts_are_named(kafka: str, tmp_path: Path) -> None:
    cluster = Cluster(kafka, "unequal")
    clicks, users, out = cluster.create("clicks", 4), cluster.create("users", 3), cluster.create("out")
    with pytest.raises(IncompatibleError, match=r"has 4.*has 3.*repartition"):
        start_and_stop(enrich.build(clicks, users, out), settings(cluster, tmp_path))


def test_state_of_another_application_is_refused(kafka: str, tmp_path: Path) -> None:
    cluster = Cluster(kafka, "other")
    topology = word_count.build(cluster.create("in"), cluster.create("out"))
    given = settings(cluster, tmp_path)
    start_and_stop(topology, given)
    other = settings(cluster, tmp_path, application_id=f"{cluster.name}-2")
    (tmp_path / given.application_id).rename(tmp_path / other.application_id)
    with pytest.raises(IncompatibleError, match=r"holds the state of application.*use another state_dir"):
        start_and_stop(topology, other)


def test_changed_topology_is_refused(kafka: str, tmp_path: Path) -> None:
    cluster = Cluster(kafka, "changed")
    source, out = cluster.create("in"), cluster.create("out")
    start_and_stop(word_count.build(source, out), settings(cluster, tmp_path))
    builder = StreamsBuilder("changed", value=str)
    builder.stream(source).group_by_key().count(name="something-else").to(out)
    with pytest.raises(IncompatibleError, match=r"holds the state of topology.*remove"):
        start_and_stop(builder.build(), settings(cluster, tmp_path))


def test_state_of_another_cluster_is_refused(kafka: str, tmp_path: Path) -> None:
    cluster = Cluster(kafka, "cluster")
    topology = word_count.build(cluster.create("in"), cluster.create("out"))
    start_and_stop(topology, settings(cluster, tmp_path))
    identity = tmp_path / cluster.name / "identity.json"
    identity.write_bytes(orjson.dumps({**orjson.loads(identity.read_bytes()), "cluster_id": "elsewhere"}))
    with pytest.raises(IncompatibleError, match="holds the state of cluster 'elsewhere'"):
        start_and_stop(topology, settings(cluster, tmp_path))


def test_changelog_with_another_partition_count_is_refused(kafka: str, tmp_path: Path) -> None:
    cluster = Cluster(kafka, "recount")
    topology = word_count.build(cluster.create("in"), cluster.create("out"))
    cluster.create("counts-changelog", 3)
    with pytest.raises(IncompatibleError, match="has 3 partitions, the topology needs 4"):
        start_and_stop(topology, settings(cluster, tmp_path))


def test_fixed_partitions_and_the_group_keep_each_other_out(kafka: str, tmp_path: Path) -> None:
    cluster = Cluster(kafka, "owner")
    topology = word_count.build(cluster.create("in"), cluster.create("out"))
    given = settings(cluster, tmp_path)
    member = Worker(topology, given).start()
    until("it is a member", lambda: cluster.admin.group_members(cluster.name))
    with pytest.raises(SettingsError, match=r"has 1 members.*without --partitions"):
        Worker(topology, given, partitions=[0]).start()
    member.stop()
    fixed = Worker(topology, given, partitions=[0, 1]).start()
    with pytest.raises(SettingsError, match=r"1 workers run fixed partitions.*with --partitions"):
        Worker(topology, given).start()
    second = Worker(topology, given, partitions=[2, 3]).start()
    second.stop()
    fixed.stop()
    start_and_stop(topology, given)


def test_partition_that_does_not_exist_is_refused(kafka: str, tmp_path: Path) -> None:
    cluster = Cluster(kafka, "fixed")
    topology = word_count.build(cluster.create("in"), cluster.create("out"))
    with pytest.raises(SettingsError, match=r"partition 4 does not exist.*0 to 3"):
        Worker(topology, settings(cluster, tmp_path), partitions=[0, 4]).start()


def test_switching_combining_off_with_partials_unread_is_refused_until_they_are_read(
    kafka: str, tmp_path: Path
) -> None:
    cluster = Cluster(kafka, "switched")
    source, out = cluster.create("in"), cluster.create("out")

    def counted(*, combine: bool) -> Topology:
        builder = StreamsBuilder("switched", value=str, emission="per_commit")
        words = builder.stream(source).group_by(lambda key, value: value)
        words.count(name="counts", combine=combine).to_stream().to(out, value=int)
        return builder.build()

    def count() -> int:
        return max((int.from_bytes(w.value, "big") for w in cluster.read(out) if w.value is not None), default=0)

    given = settings(cluster, tmp_path)
    cluster.write(source, [b"word"] * 100)
    worker = Worker(counted(combine=True), given).start()
    until("the first records are counted", lambda: count() == 100)
    worker.stop()
    # stopped before its first commit, so that what it holds is sent by its last one
    slow = settings(cluster, tmp_path, commit_interval_ms=60_000, transaction_timeout_ms=120_000)
    worker = Worker(counted(combine=True), slow).start()
    cluster.write(source, [b"word"] * 50)
    runtime = worker.runtime
    assert runtime is not None
    until("more were taken", lambda: runtime.records >= 50)
    worker.stop()
    assert count() == 100
    with pytest.raises(IncompatibleError, match=r"partials-repartition, partition \d, holds records from offset"):
        start_and_stop(counted(combine=False), given)
    worker = Worker(counted(combine=True), given).start()
    until("they are read", lambda: count() == 150)
    worker.stop()
    cluster.write(source, [b"word"] * 25)
    worker = Worker(counted(combine=False), given).start()
    until("the switch has lost nothing", lambda: count() == 175)
    worker.stop()


# -- bad records ---------------------------------------------------------------------------------------------------


def test_poison_record_stops_with_its_place_and_nothing_is_committed_past_it(kafka: str, tmp_path: Path) -> None:
    cluster = Cluster(kafka, "poison")
    source, out = cluster.create("in", 2), cluster.create("out", 2)
    cluster.write(source, [b"%d" % n for n in (5, 2, 1)], partition=1)
    worker = Worker(tenths(source, out), settings(cluster, tmp_path)).start()
    until("the good ones are committed", lambda: len(cluster.read(out, 2)) == 3)
    cluster.write(source, [b"%d" % n for n in (10, 0, 1)], partition=1)
    error = ended(worker)
    assert isinstance(error, ProcessingError)
    for word in (
        f"topic {source}",
        "partition 1",
        "offset 4",
        "divide",
        "ZeroDivisionError",
        "Nothing from that record",
    ):
        assert word in str(error)
    assert len(cluster.read(out, 2)) in (3, 4)
    assert cluster.committed(cluster.name, source, 2) in (3, 4)
    again = Worker(tenths(source, out), settings(cluster, tmp_path)).start()
    assert "offset 4" in str(ended(again))


def test_undecodable_bytes_go_to_the_dead_letters_whole(kafka: str, tmp_path: Path) -> None:
    cluster = Cluster(kafka, "letters")
    source, out, letters = cluster.create("in", 1), cluster.create("out", 1), cluster.create("letters", 1)
    cluster.write(
        source,
        [b"5", b"\xff\x00five", b"0", b"2"],
        keys=[b"a", b"b", b"c", b"d"],
        headers=[(), (("trace", b"\x01\x02"),), (), ()],
    )
    policies = Policies(deserialization="dead_letter", processing="dead_letter", dead_letter_topic=letters)
    worker = Worker(tenths(source, out), settings(cluster, tmp_path, policies=policies)).start()
    until("all is committed", lambda: cluster.committed(cluster.name, source, 1) >= 4)
    worker.stop()
    assert [w.value for w in cluster.read(out, 1)] == [b"2", b"5"]
    first, second = cluster.read(letters, 1)
    assert (first.key, first.value) == (b"b", b"\xff\x00five")
    assert first.headers[0] == ("trace", b"\x01\x02")
    told = dict(first.headers)
    assert told["penstock.topic"] == source.encode()
    assert (told["penstock.partition"], told["penstock.offset"]) == (b"0", b"1")
    assert (second.key, second.value) == (b"c", b"0")
    assert b"ZeroDivisionError" in (dict(second.headers)["penstock.error"] or b"")


def test_dead_letters_of_a_transaction_that_is_aborted_are_never_seen(kafka: str, tmp_path: Path) -> None:
    """The letter is sent, then a record after it stops the worker: neither its effects nor the letter are committed."""
    cluster = Cluster(kafka, "aborted")
    source, out, letters = cluster.create("in", 1), cluster.create("out", 1), cluster.create("letters", 1)
    policies = Policies(deserialization="dead_letter", dead_letter_topic=letters)
    # No commit falls between the three, however slow the machine is.
    never = {"commit_interval_ms": 60_000, "transaction_timeout_ms": 120_000}
    given = settings(cluster, tmp_path, policies=policies, batch_max_records=1, **never)
    worker = Worker(tenths(source, out), given).start()
    cluster.write(source, [b"five", b"5", b"0"])
    assert "offset 2" in str(ended(worker))
    assert cluster.read(letters, 1) == []
    assert cluster.read(out, 1) == []
    assert cluster.committed(cluster.name, source, 1) == 0


@pytest.mark.parametrize(
    ("limits", "kind", "words"),
    [
        ({"policies": Policies(max_record_bytes=1_000)}, ProcessingError, ["offset 1", "over max_record_bytes=1000"]),
        ({"producer": {"message.max.bytes": 20_000}}, AbortableError, ["was refused", "MSG_SIZE_TOO_LARGE"]),
        ({"producer": {"compression.type": "none"}}, AbortableError, ["MSG_SIZE_TOO_LARGE"]),
    ],
    ids=["policy", "producer", "broker"],
)
def test_too_large_output_ends_the_run_with_nothing_committed(
    kafka: str, tmp_path: Path, limits: dict[str, Any], kind: type[PenstockError], words: list[str]
) -> None:
    cluster = Cluster(kafka, "large")
    source = cluster.create("in", 1)
    out = cluster.create("out", 1, max_message_bytes="10000" if kind is AbortableError else "1048588")
    builder = StreamsBuilder("large", value=bytes)
    builder.stream(source).map_values(lambda v: v * 1_000, name="blow-up").to(out)
    worker = Worker(builder.build(), settings(cluster, tmp_path, **limits)).start()
    cluster.write(source, [b"a", b"b" * 50])
    error = ended(worker)
    assert isinstance(error, kind)
    for word in words:
        assert word in str(error)
    committed = cluster.committed(cluster.name, source, 1)
    assert committed <= 1
    assert len(cluster.read(out, 1)) == committed


def test_timestamp_far_ahead_of_the_clock_stops_a_live_run(kafka: str, tmp_path: Path) -> None:
    cluster = Cluster(kafka, "future")
    source = cluster.create("in", 1, message_timestamp_after_max_ms=str(10**13))
    worker = Worker(tenths(source, cluster.create("out", 1)), settings(cluster, tmp_path)).start()
    ahead = int(time.time() * 1000) + 2 * 3_600_000
    cluster.write(source, [b"1", b"2"], timestamps=[int(time.time() * 1000), ahead])
    error = ended(worker)
    assert isinstance(error, ProcessingError)
    for word in ("offset 1", "ahead", 'timestamp = "skip"'):
        assert word in str(error)


# -- secrets -------------------------------------------------------------------------------------------------------


def canaries(cluster: Cluster, tmp_path: Path) -> list[Callable[[], object]]:
    """Ways to fail with a password among the settings."""
    topology = word_count.build("missing", "missing-too")
    secret = {"sasl.password": MARKER, "ssl.key.password": MARKER}
    sasl = {**secret, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "me"}

    def made(**more: Any) -> WorkerSettings:
        return settings(cluster, tmp_path, **more)

    return [
        lambda: start_and_stop(topology, made(common=secret)),
        lambda: start_and_stop(topology, made(common={**secret, "no.such.key": "1"})),
        lambda: start_and_stop(topology, made(common={**secret, "socket.timeout.ms": "many"})),
        lambda: start_and_stop(topology, made(common={**secret, "group.id": "mine"})),
        lambda: start_and_stop(topology, made(common={"ssl.key.pem": MARKER, "security.protocol": "SSL"})),
        lambda: start_and_stop(topology, made(common={**sasl, "sasl.mechanism": "NONE"})),
        lambda: made(common=secret, session_timeout_ms="never"),
        lambda: made(common=secret, no_such_setting=1),
    ]


def test_secrets_are_nowhere_to_be_seen(
    kafka: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    cluster = Cluster(kafka, "secret")
    given = settings(cluster, tmp_path, common={"sasl.password": MARKER}, snapshots=f"memory://me:{MARKER}@host/folder")
    assert MARKER not in repr(given)
    assert MARKER not in str(given)
    assert MARKER not in repr(Worker(tenths("a", "b"), given))
    for fail in canaries(cluster, tmp_path):
        with pytest.raises(PenstockError) as caught:
            fail()
        error: BaseException | None = caught.value
        while error is not None:
            assert MARKER not in f"{error!r} {error}"
            error = error.__cause__ or error.__context__
    out, err = capfd.readouterr()
    assert MARKER not in caplog.text + out + err
    for file in tmp_path.rglob("*"):
        assert not file.is_file() or MARKER.encode() not in file.read_bytes()
