"""A changed topology is built from history next to the old one, and takes over without a gap, wherever the job is killed."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.state.errors import EnvironmentFault, SettingsError
from penstock.state.serdes.serde import serde_of
from penstock.streams.events.facts import RestoreFinished
from penstock.streams.spark.handover.bootstrap import Predecessor, bootstrap
from penstock.streams.worker.settings import WorkerSettings
from penstock.streams.worker.worker import Worker
from tests.integration.spark.live import App, Live, Row
from tests.integration.spark.test_catch_up import Seen
from tests.integration.spark.topologies import counted
from tests.integration.worker.application import UNDISTURBED, until

PARTITIONS = 2
number = serde_of(int).deserialize


def rows(start: int, stop: int) -> list[Row]:
    return [(b"k%d" % (i % 50), b"%03d" % i, 1000 + i) for i in range(start, stop)]


def updates(live: Live, topic: str) -> dict[bytes, list[int]]:
    """The values of each key, in their order."""
    by_key: dict[bytes, list[int]] = {}
    for _, key, value, _ in live.read(live.topic(topic)):
        assert key is not None and value is not None
        by_key.setdefault(key, []).append(number(value))
    return by_key


def counts_from(before: list[Row], after: list[Row], key: slice | None) -> dict[bytes, list[int]]:
    """The updates that ``after`` makes of counts, by key or by a slice of the value, after those of ``before``."""

    def of(given: list[Row]) -> Counter[bytes]:
        return Counter(k if key is None else v[key] for k, v, _ in given if k is not None and v is not None)

    first, more = of(before), of(after)
    return {k: list(range(first[k] + 1, first[k] + n + 1)) for k, n in more.items()}


def test_a_changed_topology_takes_over_where_the_old_one_stopped(
    spark: SparkSession, live: Live, tmp_path: Path
) -> None:
    flag, repository = tmp_path / "die", str(tmp_path / "snapshots")
    live.create(PARTITIONS, *map(live.topic, ("in", "out", "ends", "ends-new", "looked-at")))
    old_id, prefix = live.application_id, live.application_id
    new = counted(f"{old_id}-2", flag, old=False, prefix=prefix)
    old = counted(old_id, flag, prefix=prefix)
    settings = WorkerSettings(
        application_id=f"{old_id}-2",
        bootstrap_servers=live.bootstrap_servers,
        guarantee="exactly_once",
        state_dir=str(tmp_path / "state"),
        snapshots=repository,
        session_timeout_ms=6_000,
    )
    replaces = Predecessor(old, old_id)
    given = rows(0, 4_000)
    live.produce(live.topic("in"), given)
    with pytest.raises(SettingsError, match="nothing to take over"):
        bootstrap(new, settings, replaces=replaces)
    with App(live, old()) as app:
        app.run(commit_every=500)

        # Beside the running application, killed, and run again: some outputs are looked at, none is seen.
        looked_at = {live.topic("ends-new"): live.topic("looked-at")}
        flag.write_text("offsets_added")
        with pytest.raises(EnvironmentFault, match="handover"):
            bootstrap(new, settings, replaces=replaces, outputs=looked_at)
        first = bootstrap(new, settings, replaces=replaces, outputs=looked_at)
        assert not flag.exists() and first.savepoint is not None and not first.cautions
        assert updates(live, "looked-at") == counts_from([], given, slice(-2, None))
        assert updates(live, "ends-new") == {} and updates(live, "out") == counts_from([], given, None)

        # The old one goes on and stops, with records in its repartition topic.
        more = rows(4_000, 6_000)
        live.produce(live.topic("in"), more)
        given += more
        app.tasks = [task for task in app.tasks if live.topic("in") in task.topics]
        app.run(commit_every=500)
    unread = rows(6_000, 6_300)
    live.produce(live.topic("in"), unread)
    with pytest.raises(EnvironmentFault, match="handover"):
        flag.write_text("sent")
        bootstrap(new, settings, replaces=replaces, switch=True)
    differences = str(tmp_path / "differences")
    done = bootstrap(new, settings, replaces=replaces, switch=True, differences=differences)
    assert not flag.exists() and done.stores is not None
    assert updates(live, "ends") == counts_from([], given, slice(-1, None))
    assert updates(live, "ends-new") == {} and updates(live, "out") == counts_from([], given, None)
    subjects = {s.name: (s.old_rows, s.new_rows, s.differing_rows) for s in done.stores.subjects}
    assert subjects == {"counts": (50, 50, 0), "ends": (10, 100, 110)}
    assert spark.read.parquet(differences).count() == 110

    # What the old one had not read, the new one's worker answers, and nothing before it.
    seen = Seen()
    worker = Worker(new(), dataclasses.replace(settings, **UNDISTURBED), events=seen)
    worker.start()
    try:
        until("the worker has done it", lambda: sum(map(len, updates(live, "ends-new").values())) == len(unread))
    finally:
        worker.stop()
    assert all(f.records == 0 for f in seen.facts if isinstance(f, RestoreFinished))
    assert updates(live, "out") == counts_from([], given + unread, None)
    assert updates(live, "ends-new") == counts_from(given, unread, slice(-2, None))
    with pytest.raises(SettingsError, match="has run"):
        bootstrap(new, settings, replaces=replaces)
