"""State that was moved to another number of partitions is that of a run that always had it, and goes on as that run does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.state.errors import SettingsError
from penstock.state.log import TaskId, TopicPartition
from penstock.state.recovery.changelog import changelog_topic
from penstock.state.serdes.partitioner import partition_for
from penstock.state.stores.memory_backend import MemoryBackend
from penstock.state.stores.store import StoreSpec, StoreWrites
from penstock.streams.batch.cluster import CommittedInput
from penstock.streams.batch.compact_executor import ENTRY_SCHEMA
from penstock.streams.batch.handover.rescale_executor import moves_of
from penstock.streams.batch.handover.rescale_plan import Rescaling, ScaledSide, rescaling
from penstock.streams.batch.handover.rescale_positions import NewTopics, check_times, new_positions
from penstock.streams.runtime.topic_setup import layout_of
from penstock.streams.task import commit_metadata
from penstock.streams.task.commit_metadata import CommitMetadata
from penstock.topologies.graph.topology import Topology

AT_MS = 5_000
Stores = dict[tuple[str, int], dict[bytes, bytes]]


def of_all_kinds(suffix: str) -> Topology:
    """Every store that can be moved."""
    b = ps.StreamsBuilder("all", key=bytes, value=bytes)
    events = b.stream(f"events{suffix}", name="events")
    others = b.stream(f"others{suffix}", name="others")
    users = b.table(f"users{suffix}", name="users")
    owners = b.table(f"owners{suffix}", name="owners")
    events.join(users, lambda v, u: v + u).group_by_key().count(name="met")
    events.group_by_key().windowed_by(ps.tumbling("1s", grace=0)).count(name="tumbling").suppress(
        ps.until_window_closes(), name="held"
    ).to_stream().to(f"held{suffix}")
    events.group_by_key().windowed_by(ps.hopping("4s", "1s", grace=0)).count(emission="on_close", name="hopping")
    events.group_by_key().windowed_by(ps.sliding("2s", grace="1s")).count(name="sliding")
    events.group_by_key().windowed_by(ps.session("3s", grace=0)).count(name="sessions")
    events.left_join(others, lambda v, o: v + (o or b""), within="1s", grace=0, name="both").to(f"both{suffix}")
    events.deduplicate("1s", grace=0, name="once").to(f"once{suffix}")
    events.to_table(name="last")
    users.join_foreign(owners, lambda k, v: v[:1], lambda u, o: u + o, name="owned")
    users.group_by(lambda k, v: (v[:1], v)).count(name="by-value")
    events.select_key(lambda k, v: v).group_by_key().count(name="by-name")
    events.group_by_key().aggregate(ps.aggregators.count_distinct(), name="different")
    hours = events.group_by_key().windowed_by(ps.tumbling("1h", grace=0))
    hours.aggregate(ps.aggregators.count_distinct(), name="different-by-hour")
    return b.build()


def sides(build: Any, old: int, new: int) -> tuple[ScaledSide, ScaledSide]:
    out = []
    for suffix, name, count in (("", "old", old), (f"-{new}", "new", new)):
        topology = build(suffix)
        inputs = {s.topic: count for s in (topology.source(n) for sub in topology.subtopologies for n in sub.sources)}
        out.append(ScaledSide(topology, name, layout_of(topology, name, inputs)))
    return out[0], out[1]


def run(side: ScaledSide, partitions: int, rows: Mapping[str, list[ps.Record]], suffix: str) -> ps.TopologyTestDriver:
    driver = ps.TopologyTestDriver(side.topology, application_id=side.application_id, partitions=partitions)
    for topic, records in rows.items():
        driver.pipe_raw({f"{topic}{suffix}": records})
    return driver


def stored(driver: ps.TopologyTestDriver) -> Stores:
    return {
        (name, task.partition): dict(running.backend.range(name, None, None))
        for task, running in driver.tasks.items()
        for name in running.stores
    }


def moved(plan: Rescaling, before: Stores) -> Stores:
    """The stores as the executors would make them, row by row."""
    moves = moves_of(plan)
    batches = []
    for place, source in enumerate(moves.sources):
        entries = before[source]
        columns = [[place] * len(entries), list(entries), [0] * len(entries), list(entries.values())]
        batches.append(
            pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, ENTRY_SCHEMA, strict=True)], ENTRY_SCHEMA)
        )
    assert sum(r["entries"] for b in moves.check(batches) for r in b.to_pylist()) == sum(b.num_rows for b in batches)
    out: Stores = {target: {} for target in moves.targets}
    for batch in moves.moved(batches):
        for row in batch.to_pylist():
            store = out[moves.targets[row["place"]]]
            assert row["store_key"] not in store, "one key came from two partitions"
            store[row["store_key"]] = row["value"]
    return out


keys = st.sampled_from([b"k%d" % i for i in range(12)])
values = st.sampled_from([b"a", b"b", b"cc", b"dd1", b"dd2"])
records = st.lists(st.builds(ps.Record, keys, values, st.just(AT_MS)), max_size=25)
inputs = st.fixed_dictionaries(dict.fromkeys(("users", "events", "others"), records) | {"owners": records})


@given(inputs, st.integers(1, 4), st.integers(1, 4))
def test_moved_stores_are_those_of_a_run_with_the_new_partitions(
    rows: Mapping[str, list[ps.Record]], old: int, new: int
) -> None:
    rows = {**rows, "owners": [ps.Record(r.value[:1], r.value, AT_MS) for r in rows["owners"]]}
    before, after = sides(of_all_kinds, old, new)
    plan = rescaling(before, after)
    with run(before, old, rows, "") as one, run(after, new, rows, f"-{new}") as other:
        assert moved(plan, stored(one)) == stored(other)


# -- going on ----------------------------------------------------------------------------------------------------


def counted(suffix: str) -> Topology:
    b = ps.StreamsBuilder("counted", key=bytes, value=bytes)
    users = b.table(f"users{suffix}", name="users")
    named = b.stream(f"events{suffix}", name="events").left_join(users, lambda v, u: v + b"|" + (u or b"-"))
    windows = ps.tumbling("1s", grace="1s")
    for_name = named.group_by(lambda k, v: v.partition(b"|")[2])
    for_name.windowed_by(windows).count(name="counts").to_stream(
        lambda w, n: b"%s@%d" % (w.key, w.start_ms), key=bytes
    ).to("out", value=int)
    return b.build()


class GoneOn(ps.TopologyTestDriver):
    """Begins with given stores and positions."""

    def __init__(self, side: ScaledSide, partitions: int, stores: Stores, starts: Mapping[TopicPartition, Any]) -> None:
        self._starts = starts
        self._stores_given = stores
        super().__init__(
            side.topology, application_id=side.application_id, partitions=partitions, open_backend=self._filled
        )

    def _start(self, partition: TopicPartition) -> tuple[int, CommitMetadata]:
        return self._starts[partition].offset, commit_metadata.decode(self._starts[partition].metadata)

    def _filled(self, task: TaskId, specs: tuple[StoreSpec, ...]) -> MemoryBackend:
        backend = MemoryBackend(specs)
        backend.commit(
            [StoreWrites(s.name, list(self._stores_given[s.name, task.partition].items()), b"") for s in specs]
        )
        return backend


def committed(driver: ps.TopologyTestDriver) -> dict[TopicPartition, CommittedInput]:
    driver.commit()
    return {tp: CommittedInput(at.offset, commit_metadata.decode(at.metadata)) for tp, at in driver._committed.items()}


def begun(plan: Rescaling, driver: ps.TopologyTestDriver) -> dict[TopicPartition, Any]:
    """The new positions, where topics begin at 0 and changelogs have one record."""
    names = plan.new.topology.source_topics("new")
    places = [TopicPartition(t, p) for t in names for p in range(plan.new.layout.tasks[0])]
    ends = dict.fromkeys(places, (0, 0))
    logged = [TopicPartition(changelog_topic("new", s), p.partition) for s in plan.new.topology.stores for p in places]
    ends |= {tp: (0, 1) for tp in logged if tp not in ends}
    return new_positions(plan, committed(driver), NewTopics(ends, dict.fromkeys(names, "id")))


def events(times: st.SearchStrategy[int]) -> st.SearchStrategy[list[ps.Record]]:
    return st.lists(st.builds(ps.Record, keys, st.just(b"v"), times), max_size=30)


@given(
    st.lists(st.builds(ps.Record, keys, st.sampled_from([b"x", b"y", b"z", b"zz"]), st.just(1)), max_size=20),
    events(st.integers(19_000, 19_999)),
    events(st.one_of(st.integers(19_000, 20_999), st.integers(10_000, 17_999))),
    st.integers(1, 4),
    st.integers(1, 4),
)
def test_what_follows_is_answered_as_in_an_undisturbed_run(
    users: list[ps.Record], first: list[ps.Record], more: list[ps.Record], old: int, new: int
) -> None:
    # A record that every task behind the repartition sees: their times mean the same, and windows before 18 s are closed.
    marks = [ps.Record(b"m%d" % i, b"v", 20_000) for i in range(40)]
    named = [ps.Record(b"m%d" % i, b"n%d" % i, 1) for i in range(40)]
    before, after = sides(counted, old, new)
    plan = rescaling(before, after)
    with run(before, old, {"users": [*users, *named], "events": [*first, *marks]}, "") as one:
        check_times(plan, committed(one))
        with GoneOn(after, new, moved(plan, stored(one)), begun(plan, one)) as other:
            given_before = one.read_raw("out")
            other.pipe_raw({f"events-{new}": more})
            given_after = other.read_raw("out")
    row = {r.key: r.value for r in users}
    wanted: Counter[tuple[bytes, int]] = Counter()
    for record in [*first, *(r for r in more if r.timestamp_ms >= 19_000)]:
        wanted[row.get(record.key, b"-") or b"-", record.timestamp_ms // 1000 * 1000] += 1
    updates: dict[bytes, list[int]] = {}
    for record in [*given_before, *given_after]:
        updates.setdefault(record.key or b"", []).append(int.from_bytes(record.value or b"", "big"))
    found = {k: v for k, v in updates.items() if not k.startswith(b"n")}
    assert {k: v[-1] for k, v in found.items()} == {b"%s@%d" % k: n for k, n in wanted.items()}


def test_tasks_at_times_that_mean_different_things_do_not_come_together() -> None:
    before, after = sides(counted, 2, 3)
    plan = rescaling(before, after)
    in_each = [next(b"u%d" % i for i in range(99) if partition_for(b"u%d" % i, 2) == p) for p in range(2)]
    users = [ps.Record(k, k, 1) for k in in_each]
    late, early = (ps.Record(k, b"v", t) for k, t in zip(in_each, (30_000, 20_000), strict=True))
    with run(before, 2, {"users": users, "events": [late, early]}, "") as one:
        with pytest.raises(SettingsError, match=r"operator counts .*task 0 at 30000, task 1 at 20000"):
            check_times(plan, committed(one))
        # Of two to four partitions, each new task has keys of one old task only, and its time.
        doubled = rescaling(*sides(counted, 2, 4))
        check_times(doubled, committed(one))
        starts = begun(doubled, one)
    topic = next(t for t in doubled.new.topology.source_topics("new") if t.endswith("-repartition"))
    times = [commit_metadata.decode(starts[TopicPartition(topic, q)].metadata).operators["counts"] for q in range(4)]
    assert times == [30_000, 20_000, 30_000, 20_000]
