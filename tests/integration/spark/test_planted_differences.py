"""Differences that are planted into ready-made topologies: a constant that was changed, a record that was forged, a value
in a store. ``verify`` finds each, and names the first input behind it. The long form has a million records, and a worker
that is killed twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from pyspark.sql import SparkSession

from penstock.streams.batch.verify_plan import Difference
from penstock.streams.kafka.embedded import EmbeddedKafka
from penstock.streams.spark import Connection, VerifyResult, verify
from penstock.topologies.examples import keyed_count, threshold
from penstock.topologies.graph.topology import Topology
from tests.integration.spark.live import App, Live
from tests.integration.spark.ready_made import CASES, Draw
from tests.integration.spark.test_ready_made import Application

RECORDS, MORE = 2_000, 200
RAN, CHANGED = 100.0, 101.0
"""The limit of the alarms that ran, and the one that is verified against it."""


class Subject(NamedTuple):
    """A ready-made topology that ran. ``topic``: the name that a topic of the topology has here; ``run``: has it process
    what has come."""

    live: Live
    topic: Callable[[str], str]
    run: Callable[[], None]

    def inputs(self, name: str) -> list[tuple[int, int, bytes | None, bytes | None]]:
        """Partition, offset, key and value of each record of a topic, by partition."""
        found = self.live.read_with_offsets(self.topic(name))
        return sorted((p, offset, key, value) for p, offset, key, value, _ in found)

    def verify(self, build: Callable[[], Topology]) -> VerifyResult:
        return verify(
            build, application_id=self.live.application_id, connection=Connection(self.live.bootstrap_servers)
        )


@contextmanager
def small(live: Live, case: str, build: Callable[..., Topology]) -> Iterator[Subject]:
    """Some records of the case, processed in this process."""
    fed = list(CASES[case].feed(RECORDS, Draw(case), 1_000_000))
    live.create(2, live.topic(fed[0].topic), live.topic("out"))
    live.produce(live.topic(fed[0].topic), [(f.key, f.value, f.timestamp_ms) for f in fed])
    with App(live, build(live.topic(fed[0].topic), live.topic("out"))) as app:
        app.run(commit_every=300)
        yield Subject(
            live, lambda name: live.topic("out") if name in ("alarms", "counts") else live.topic(name), app.run
        )


@contextmanager
def large(case: str, folder: Path) -> Iterator[Subject]:
    """A million records of the case, processed by a worker that was killed twice."""
    with EmbeddedKafka() as kafka:
        app = Application(case, kafka.bootstrap_servers, folder)
        fed = app.feed()
        assert app.run(fed) == 2
        yield Subject(app.live, lambda name: name, lambda: _drained(app, fed + MORE))


def _drained(app: Application, fed: int) -> None:
    app.run(fed, killed_at=())


sizes = pytest.mark.parametrize(
    "size", ["small", pytest.param("large", marks=[pytest.mark.long, pytest.mark.timeout(5_400)])]
)


def ready_made(size: str, live: Live, folder: Path, case: str, build: Callable[..., Topology]) -> Any:
    """The case of this size, as a context."""
    return small(live, case, build) if size == "small" else large(case, folder)


def firsts(found: VerifyResult) -> dict[tuple[str, str], Difference]:
    """The first differences, by kind and name."""
    return {(c.kind, c.name): c.first for c in found.comparisons if c.first is not None}


@sizes
def test_a_constant_that_was_changed(spark: SparkSession, live: Live, tmp_path: Path, size: str) -> None:
    with ready_made(size, live, tmp_path, "threshold", threshold.build) as ran:
        topics = ran.topic("readings"), ran.topic("alarms")
        same = ran.verify(partial(threshold.build, *topics, limit=RAN))
        assert same.same and same.records >= RECORDS, same
        found = ran.verify(partial(threshold.build, *topics, limit=CHANGED))
        between = [
            (p, offset, key, value)
            for p, offset, key, value in ran.inputs("readings")
            if value and RAN < msgspec.json.decode(value)["value"] <= CHANGED
        ]
        (compared,) = (c for c in found.comparisons if c.name == topics[1])
        assert compared.stream_rows - compared.batch_rows == len(between) > 0
        first = firsts(found)["topic", topics[1]]
        behind = {p: (offset, value) for p, offset, _, value in reversed(between)}
        offset, value = behind[first.partition]
        assert first.input == (topics[0], first.partition, offset) and first.stream == value


@sizes
def test_a_record_that_was_forged_and_a_value_in_a_store(
    spark: SparkSession, live: Live, tmp_path: Path, size: str
) -> None:
    with ready_made(size, live, tmp_path, "keyed_count", keyed_count.build) as ran:
        given, (clicks, counts) = ran.live, (ran.topic("clicks"), ran.topic("counts"))
        build = partial(keyed_count.build, clicks, counts)
        same = ran.verify(build)
        assert same.same and same.records >= RECORDS, same
        key, wrong = ran.inputs("clicks")[0][2], (1 << 40).to_bytes(8, "big")
        assert key is not None
        given.produce(counts, [(key, wrong, 2_000_000)])
        given.produce(f"{given.application_id}-counts-changelog", [(key, bytes(8) + wrong, 2_000_000)])
        before = {(p, offset) for p, offset, _, _ in ran.inputs("clicks")}
        given.produce(clicks, [(b"more%d" % i, b"v", 2_000_000) for i in range(MORE)])
        ran.run()
        found = firsts(ran.verify(build))
        record, row = found["topic", counts], found["store", "counts"]
        rows = ran.inputs("clicks")
        first_more = min((offset for p, offset, _, _ in rows if p == record.partition and (p, offset) not in before))
        assert record.stream == wrong and record.input == (clicks, record.partition, first_more)
        place = max((offset, p) for p, offset, k, _ in rows if k == key)
        assert row.key == key and row.stream is not None and row.stream.endswith(wrong)
        assert row.input == (clicks, place[1], place[0])
