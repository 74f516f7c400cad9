"""Repartition topics of which nobody reads a value hold empty ones: records are counted, with and without windows, as if
they were there, by rows and by columns, null values, late records and restarts included; so are cogroups' records whose
function does not name the value. Where anybody reads a value, all is sent."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

import penstock as ps
from penstock.state.log import Record
from penstock.streams.task.error_policies import Policies
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.dsl.internals import cogrouping
from penstock.topologies.expressions.functions import col
from penstock.topologies.operator_api.watermark_strategies import bounded_out_of_orderness
from penstock.topologies.operators.aggregates.aggregate import AggregateSpec
from tests.properties.following import left_behind

SEEDS = range(60)
BATCHES = (1, 10_000)
Grouped = Callable[[Any], Any]
Chosen = Callable[[random.Random], ps.Topology]


class Visit(msgspec.Struct, frozen=True):
    """What records have."""

    page: str
    n: int = 0


SESSIONS = ps.session(10, grace=5)
WINDOWS: dict[str, Any] = {
    "none": None,
    "session": SESSIONS,
    "tumbling": ps.tumbling(10, grace=5),
    "hopping": ps.hopping(10, 5, grace=5),
    "sliding": ps.sliding(10, grace=5),
    "processing": ps.tumbling(10, time="processing"),
}


def built(counted: Grouped, watermark: int | None = 5) -> ps.Topology:
    builder = ps.StreamsBuilder("p", key=str, value=Visit)
    strategy = None if watermark is None else bounded_out_of_orderness(watermark, interval=1)
    counted(builder.stream("in", watermark=strategy))
    return builder.build()


def by_page(stream: Any) -> Any:
    return stream.group_by(col("page"))


def emitting(emission: str, windows: str = "session") -> Grouped:
    def counted(stream: Any) -> None:
        grouped = by_page(stream)
        if windows != "none":
            grouped = grouped.windowed_by(WINDOWS[windows])
        grouped.count(emission=emission, combine=False).to_stream().to("out")

    return counted


def chosen(rng: random.Random) -> ps.Topology:
    emission, watermark = rng.choice(("every_update", "per_commit", "on_close")), rng.choice((None, 0, 30))
    windows = rng.choice(sorted(WINDOWS))
    if windows == "none":
        emission = rng.choice(("every_update", "per_commit"))
    return built(emitting(emission, windows), watermark)


class Seen(msgspec.Struct, frozen=True):
    """What a cogroup keeps of a page."""

    page: str = ""
    n: int = 0
    opened: int = 0


def _visited(page: str, visit: Visit, so_far: Seen) -> Seen:
    return Seen(page, so_far.n + visit.n, so_far.opened)


def _opened(page: str, visit: Visit, so_far: Seen) -> Seen:
    return Seen(page, so_far.n, so_far.opened + 1)


def cogrouped(rng: random.Random) -> ps.Topology:
    """Two groups of the same records, of which one is read."""
    windows, watermark = rng.choice(sorted(WINDOWS)), rng.choice((None, 0, 30))
    of_windows = ("every_update", "per_commit") if windows == "none" else ("every_update", "per_commit", "on_close")
    emission: Any = rng.choice(of_windows)
    first, second = rng.sample((_visited, _opened), 2)

    def made(stream: Any) -> None:
        few = stream.filter_values(col("n") > 4)
        both: Any = by_page(stream).cogroup(first).cogroup(by_page(few), second)
        if windows != "none":
            both = both.windowed_by(WINDOWS[windows])
        merger = {"merger": lambda key, a, b: Seen(key, a.n + b.n, a.opened + b.opened)} if windows == "session" else {}
        both.aggregate(Seen, value=Seen, emission=emission, **merger).to_stream().to("out")

    return built(made, watermark)


def outcome(seed: int, batch: int, *, columns: bool, chosen: Chosen = chosen) -> dict[str, Any]:
    topology = chosen(random.Random(seed))
    rng = random.Random(f"records of {seed}")
    options = TaskOptions(batch_max_records=batch, policies=Policies(processing="skip", deserialization="skip"))
    with TopologyTestDriver(topology, options=options, auto_commit=False, columns=columns) as driver:
        now = 0
        for _ in range(rng.randint(2, 6)):
            records = []
            for _ in range(rng.choice((3, 100, 200))):
                now += rng.choice((0, 0, 1, 2, 9))
                data = msgspec.json.encode(Visit(rng.choice("abcdé"), rng.randint(0, 9)))
                value = rng.choice((None, b"{")) if rng.random() < 0.05 else data
                records.append(Record(b"k", value, max(now - rng.choice((0, 0, 3, 40)), 0)))
            driver.pipe_raw({"in": records})
            if rng.random() < 0.6:
                driver.commit()
            if rng.random() < 0.3:
                driver.restart(restore=rng.random() < 0.5)
        driver.restart()
        found = left_behind(driver)
        sent = [r for topic in topics(topology) for r in driver.read_raw(f"{driver.application_id}-{topic}")]
        return {**found, "sent": [(r.key, r.value is None, r.timestamp_ms) for r in sent]}


def topics(topology: ps.Topology) -> list[str]:
    specs = (topology.operators[name] for sub in topology.subtopologies for name in sub.sources)
    return [spec.topic for spec in specs if spec.internal]  # type: ignore[attr-defined]  # they are sources


def values_sent(topology: ps.Topology) -> set[str]:
    """The serdes of what repartition topics hold, as their readers and writers have it."""
    inner = topics(topology)
    return {s.value_serde.name for s in topology.operators.values() if getattr(s, "topic", None) in inner}  # type: ignore[attr-defined]  # they are sources and sinks


def test_records_are_counted_as_with_values(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in SEEDS:
        assert values_sent(chosen(random.Random(seed))) == {"presence", "bytes"}
        found = {(batch, columns): outcome(seed, batch, columns=columns) for batch in BATCHES for columns in (0, 1)}
        with monkeypatch.context() as patch:
            patch.setattr(AggregateSpec, "reads_values", lambda self, port: True)
            assert values_sent(chosen(random.Random(seed))) == {"json:Visit"}
            for (batch, columns), one in found.items():
                assert one == outcome(seed, batch, columns=bool(columns)), (seed, batch, columns)


def test_cogroups_leave_values_that_no_function_names() -> None:
    for seed in range(20):
        assert values_sent(cogrouped(random.Random(seed))) == {"presence", "bytes", "json:Visit"}
        found = {
            (batch, columns): outcome(seed, batch, columns=columns, chosen=cogrouped)
            for batch in BATCHES
            for columns in (False, True)
        }
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cogrouping, "leaves_alone", lambda fn, place: False)
            assert values_sent(cogrouped(random.Random(seed))) == {"json:Visit"}
            for (batch, columns), one in found.items():
                assert one == outcome(seed, batch, columns=columns, chosen=cogrouped), (seed, batch, columns)


def test_cogroups_with_late_records_send_values() -> None:
    def made(stream: Any) -> None:
        both = by_page(stream).cogroup(_opened).windowed_by(ps.tumbling(10, grace=0))
        both.aggregate(Seen, value=Seen, emission="on_close", late=True).to_stream().to("out")

    assert values_sent(built(made)) == {"json:Visit"}


def test_no_value_is_sent() -> None:
    topology = built(emitting("on_close"))
    (topic,) = topics(topology)
    for columns in (False, True):
        with TopologyTestDriver(topology, columns=columns) as driver:
            driver.pipe_all("in", [Record("k", Visit("a", n) if n % 3 else None, n) for n in range(200)])
            sent = [r.value for r in driver.read_raw(f"{driver.application_id}-{topic}") if r.key is not None]
        assert set(sent) <= {b"", None} and sent.count(b"") == 133


def late(stream: Any) -> None:
    windowed = by_page(stream).windowed_by(SESSIONS).count(emission="on_close", late=True)
    windowed.to_stream().to("out")
    windowed.late.to("late")


def by_gap(stream: Any) -> None:
    windows = ps.session(lambda key, visit: visit.n + 1, grace=5)
    by_page(stream).windowed_by(windows, retention=100).count(emission="every_update").to_stream().to("out")


def by_function(stream: Any) -> None:
    windows = ps.custom(lambda key, visit, ts: [(ts, ts + 1 + visit.n)], max_size=20, grace=5)
    by_page(stream).windowed_by(windows).count(emission="every_update").to_stream().to("out")


def two_readers(stream: Any) -> None:
    grouped = by_page(stream)
    grouped.windowed_by(SESSIONS).count(emission="on_close", combine=False, name="a").to_stream().to("out")
    grouped.windowed_by(SESSIONS).agg(n=col("n").sum(), emission="on_close", name="b").to_stream().to("sums")


def aggregated(stream: Any) -> None:
    by_page(stream).windowed_by(SESSIONS).agg(n=col("n").max(), emission="on_close").to_stream().to("out")


def in_windows(stream: Any) -> None:
    windowed = by_page(stream).windowed_by(ps.tumbling(10, grace=0))
    windowed.reduce(lambda a, b: a, emission="every_update").to_stream().to("out")


def mapped(stream: Any) -> None:
    again = stream.select_key(col("page")).repartition().filter_values(col("n") > 3)
    again.group_by_key().windowed_by(SESSIONS).count(emission="on_close", combine=False).to_stream().to("out")


@pytest.mark.parametrize("counted", [late, by_gap, by_function, two_readers, aggregated, in_windows, mapped])
def test_values_that_are_read_are_sent(counted: Grouped) -> None:
    assert values_sent(built(counted)) == {"json:Visit"}


def test_two_counts_of_one_topic_need_no_value() -> None:
    def twice(stream: Any) -> None:
        grouped = by_page(stream)
        for name in ("a", "b"):
            grouped.windowed_by(SESSIONS).count(emission="on_close", combine=False, name=name).to_stream().to(name)

    assert values_sent(built(twice)) == {"presence", "bytes"}
