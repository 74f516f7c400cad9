"""An application runs in micro-batches in Spark: it goes on from workers, and they from it, with their answers."""

from __future__ import annotations

import dataclasses
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.spark import Application, MicroBatch, Streamed, stream
from penstock.state.errors import PenstockError, SettingsError, TaskMigratedError
from penstock.state.log import TopicPartition
from penstock.state.serdes.serde import serde_of
from penstock.streams.batch.cluster import ClusterAddress, open_cluster, open_consumer, open_transactional, retried
from penstock.streams.batch.handover import worker_exclusion
from penstock.streams.batch.handover.worker_exclusion import kept_away
from penstock.streams.events.facts import RestoreFinished
from penstock.streams.ports.log import OffsetAndMetadata
from penstock.streams.runtime.fixed_fence import fixed_id
from penstock.streams.spark.connection import Connection
from penstock.streams.spark.streaming.inputs_source import STOPS, TURN, InputsReader, InputsRequest
from penstock.streams.spark.streaming.output_hook import OutputHook
from penstock.streams.worker.fixed_worker_lock import FixedWorkerPresence, presence_group
from penstock.streams.worker.settings import WorkerSettings
from penstock.streams.worker.worker import Worker
from tests.integration.spark.live import App, Live, Row, command
from tests.integration.spark.test_catch_up import Seen
from tests.integration.spark.topologies import by_clock, visits
from tests.integration.worker.application import UNDISTURBED, until

PARTITIONS = 2
USERS = 40
number = serde_of(int).deserialize
Written = tuple[int, int, bytes | None, bytes | None]


def users(cities: str, at_ms: int) -> list[Row]:
    """Each user's city; ``-`` is a tombstone."""
    named = (cities[i % len(cities)] for i in range(USERS))
    return [(b"u%d" % i, None if c == "-" else c.encode(), at_ms) for i, c in enumerate(named)]


def seen(start: int, stop: int) -> list[Row]:
    return [(b"u%d" % (i % USERS), b"%d" % i, 1_000 + i) for i in range(start, stop)]


class Answer:
    """What the application must have written, computed without it: each record meets its user's city as of then."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._cities: dict[bytes | None, bytes | None] = {}
        self.met: list[tuple[bytes | None, bytes]] = []
        self.windows: Counter[bytes] = Counter()

    def tell(self, topic: str, rows: list[Row]) -> None:
        """Write the rows."""
        for key, value, at_ms in rows:
            if topic == "users":
                self._cities[key] = value
            elif (city := self._cities.get(key)) is not None and value is not None:
                self.met.append((key, city + b"|" + value))
                self.windows[city + b"@%d" % (at_ms // 1000 * 1000)] += 1
        self._live.produce(self._live.topic(topic), rows)

    def whole(self) -> bool:
        """Whether all of it is there."""
        return len(self._live.read(self._live.topic("cities"))) >= len(self.met)

    def check(self) -> None:
        """Nothing is doubled, nothing is missing, and each count has every value in its order."""
        met = [(key, value) for _, key, value, _ in self._live.read(self._live.topic("met"))]
        assert Counter(met) == Counter(self.met)
        by_window: dict[bytes, list[int]] = {}
        for _, key, value, _ in self._live.read(self._live.topic("cities")):
            assert key is not None and value is not None
            by_window.setdefault(key, []).append(number(value))
        assert by_window == {key: list(range(1, n + 1)) for key, n in self.windows.items()}


@contextmanager
def streaming(*args: Any, **how: Any) -> Iterator[list[Streamed]]:
    """A stream in a thread of its own; its result is in the list afterwards."""
    stop = threading.Event()
    done: list[Streamed] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            done.append(stream(*args, stop=stop, progress=print, **how))
        except BaseException as exc:
            failed.append(exc)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield done
    finally:
        stop.set()
        thread.join(300)
    assert not thread.is_alive()
    if failed:
        raise failed[0]


@contextmanager
def working(build: Any, settings: WorkerSettings) -> Iterator[Seen]:
    """A worker, and what happens to it."""
    facts = Seen()
    worker = Worker(build(), dataclasses.replace(settings, **UNDISTURBED), events=facts)
    worker.start()
    try:
        yield facts
    finally:
        worker.stop()


def settings_of(live: Live, folder: Path) -> WorkerSettings:
    return WorkerSettings(
        application_id=live.application_id,
        bootstrap_servers=live.bootstrap_servers,
        guarantee="exactly_once",
        state_dir=str(folder / "state"),
        session_timeout_ms=6_000,
    )


def restored(facts: Seen) -> list[int]:
    return [fact.records for fact in facts.facts if isinstance(fact, RestoreFinished)]


def test_it_goes_on_from_workers_and_they_from_it_whatever_dies_in_between(
    spark: SparkSession, live: Live, tmp_path: Path
) -> None:
    flag = tmp_path / "die"
    build, settings = visits(live.application_id, flag), settings_of(live, tmp_path)
    live.create(PARTITIONS, *map(live.topic, ("users", "in", "met", "cities")))
    answer = Answer(live)
    hooked: list[Written] = []

    def on_batch(batch: MicroBatch) -> None:
        rows = batch.output(live.topic("met")).select("partition", "offset", "key", "value").collect()
        hooked.extend((row[0], row[1], bytes(row[2]), bytes(row[3])) for row in rows)

    answer.tell("users", users("abc", 1))
    with App(live, build()) as app:
        answer.tell("in", seen(0, 1_000))
        app.run()
    before = len(answer.met)

    with streaming(build, settings, every="500ms", foreach_batch=on_batch) as done:
        for step, count in (("offsets_added", 3_000), ("committed", 300)):
            flag.write_text(step)
            start = len(answer.met)
            answer.tell("in", seen(start, start + count))
            until(
                f"a process died at {step}, and all is done", lambda: not flag.exists() and answer.whole(), every_s=1.0
            )
        answer.check()
        for partitions in (None, [0]):
            with pytest.raises(SettingsError, match="a job in Spark does the work"):
                Worker(build(), settings, partitions=partitions).start()
        answer.tell("users", users("a-d", 500_000))
        until("tombstones were read", lambda: _reads_to_the_end(live, "users"), every_s=0.5)
        answer.tell("in", seen(600_000, 601_000))
        until("all is done", answer.whole, every_s=1.0)
    assert done[0].micro_batches >= 4 and done[0].no_savepoint
    answer.check()
    # The function got each record that was written since the stream began, once.
    written = [row[:4] for row in live.read_with_offsets(live.topic("met"))]
    assert len(hooked) == len(set(hooked)) == len(answer.met) - before and set(hooked) <= set(written)

    # A worker goes on with the executors' stores.
    with working(build, settings) as facts:
        answer.tell("in", seen(700_000, 700_300))
        until("the worker has done it", answer.whole, every_s=1.0)
    assert restored(facts) and not any(restored(facts))
    answer.check()


def _reads_to_the_end(live: Live, topic: str) -> bool:
    """Whether the application has read what the topic holds."""
    asked = [TopicPartition(live.topic(topic), p) for p in range(PARTITIONS)]
    with open_cluster(ClusterAddress(live.bootstrap_servers), live.application_id) as cluster:
        done, ends = cluster.committed(asked), cluster.ends(asked)
    # The last offset may be a marker of a transaction.
    return all(tp in done and done[tp].offset >= end - 1 for tp, (_, end) in ends.items())


def test_all_that_there_is_is_done_and_the_clock_goes_on_without_records(
    spark: SparkSession, live: Live, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    build, settings = by_clock(live.application_id), settings_of(live, tmp_path)
    repository = str(tmp_path / "snapshots")
    live.create(PARTITIONS, live.topic("in"), live.topic("out"))
    live.produce(live.topic("in"), [(b"k", b"v", 1)] * 10)
    (tmp_path / "clock.py").write_text(
        f"from tests.integration.spark.topologies import by_clock\nbuild = by_clock({live.application_id!r})\n"
    )
    page = tmp_path / "page.html"
    more = ["--available-now", "--repository", repository, "--state-dir", settings.state_dir, "--report", str(page)]
    assert command("stream", f"{tmp_path}/clock.py:build", live, *more) == 0
    said = capsys.readouterr().out
    assert "10 records processed in 1 micro-batches" in said and "\nsavepoint " in said
    told = page.read_text()
    assert "records in<b>10</b>" in told and "Sub-topology 0" in told and "Spark tasks<b>" not in told
    # Nothing comes any more, and the windows of the clock close all the same.
    elsewhere = dataclasses.replace(settings, state_dir=str(tmp_path / "other"), snapshots=repository)
    with streaming(build, elsewhere, every="1s", repository=None) as done:
        until("the windows have closed", lambda: _sum(live) == 10, every_s=0.5)
    assert done[0].records == 0


def _sum(live: Live) -> int:
    return sum(number(value) for _, _, value, _ in live.read(live.topic("out")) if value is not None)


# -- its parts


def test_a_hook_that_fails_gets_the_same_records_again(live: Live) -> None:
    live.create(PARTITIONS, live.topic("met"))
    met = live.topic("met")
    live.produce(met, seen(0, 10))
    address = Connection(live.bootstrap_servers)
    application = Application("none:none", live.application_id, address)
    calls: list[MicroBatch] = []

    def failing(batch: MicroBatch) -> None:
        calls.append(batch)
        if len(calls) < 2:
            raise ValueError("the database is away")

    def opened() -> OutputHook:
        return OutputHook(failing, application, {met: PARTITIONS}, cluster)

    none: Any = None
    with open_cluster(address, live.application_id) as cluster:
        with opened() as hook:
            hook.call(none, 0)
            assert not calls, "what was there before the first start is not new"
            live.produce(met, seen(10, 20))
            with pytest.raises(ValueError, match="away"):
                hook.call(none, 1)
        live.produce(met, seen(20, 30))
        with opened() as hook:
            hook.call(none, 0)
            hook.call(none, 1)
    failed, repeated = (batch.ranges[met] for batch in calls)
    assert {p: start for p, (start, _) in failed.items()} == {p: start for p, (start, _) in repeated.items()}
    assert all(stop <= repeated[p][1] for p, (_, stop) in failed.items())
    assert sum(stop for _, stop in repeated.values()) == sum(live.settled(met).values())


def test_the_source_says_how_far_the_inputs_go_and_turns_where_timers_read_the_clock(live: Live) -> None:
    live.create(PARTITIONS, live.topic("in"))
    live.produce(live.topic("in"), seen(0, 10))
    ends = [live.settled(live.topic("in"))[TopicPartition(live.topic("in"), p)] for p in range(PARTITIONS)]
    request = InputsRequest(
        Connection(live.bootstrap_servers), live.application_id, {live.topic("in"): PARTITIONS}, False
    )
    reader, ticking = InputsReader(request), InputsReader(dataclasses.replace(request, clocked=True))
    latest = reader.latestOffset()
    assert latest == reader.latestOffset() != reader.initialOffset() and latest[STOPS] == {live.topic("in"): ends}
    (part,) = reader.partitions(reader.initialOffset(), latest)
    assert list(reader.read(part)) == [(live.topic("in"), p, end) for p, end in enumerate(ends)]
    turn = ticking.latestOffset()[TURN]
    until("it turns", lambda: ticking.latestOffset()[TURN] > turn)


def test_a_driver_that_lost_its_hold_begins_nothing_and_leaves(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = live.topic("in")
    live.create(1, topic)
    settings = WorkerSettings(
        application_id=live.application_id, bootstrap_servers=live.bootstrap_servers, guarantee="exactly_once"
    )
    address = ClusterAddress(live.bootstrap_servers)
    partition = TopicPartition(topic, 0)
    with kept_away(settings, [partition]) as hold, open_cluster(address, live.application_id) as cluster:
        hold.check()
        # An executor dies with an open transaction, which the next attempt need not wait for.
        dead = open_transactional(address, fixed_id(live.application_id, 0), timeout_ms=600_000)
        retried(lambda: dead.init_transactions(60.0))
        dead.begin()
        dead.send_offsets({partition: OffsetAndMetadata(7, "")}, live.application_id, 60.0)
        hold.end_transactions()
        assert cluster.committed([partition]) == {}
        with pytest.raises(TaskMigratedError):
            dead.commit(60.0)
        dead.close()
        # A worker with fixed partitions joined at the same moment, and has not looked yet.
        monkeypatch.setattr(worker_exclusion, "LEAVING_S", 0.0)
        fixed = FixedWorkerPresence(open_consumer(address, presence_group(live.application_id)), topic, lambda: None)
        fixed.join()
        with pytest.raises(SettingsError, match="hold tasks"):
            hold.check()
        fixed.close()
        until("the worker has left", lambda: _passes(hold))
        # Frozen for longer than its session.
        monkeypatch.setattr(worker_exclusion, "SESSION_MS", 0)
        with pytest.raises(TaskMigratedError, match="start it again"):
            hold.check()
        monkeypatch.undo()
        with pytest.raises(TaskMigratedError, match="start it again"):
            hold.check()
        admin = worker_exclusion.open_admin(address)
        until("it has left", lambda: admin.group_members(presence_group(live.application_id)) == 0)


def _passes(hold: worker_exclusion.Hold) -> bool:
    try:
        hold.check()
    except PenstockError:
        return False
    return True
