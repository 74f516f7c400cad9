"""What a worker shows of its tasks."""

from __future__ import annotations

import random

import pytest

import penstock as ps
from penstock.state.log import TopicPartition
from penstock.state.rocksdb.tuning import RocksDBOptions
from penstock.streams.events.measurements import Metric
from penstock.streams.events.metrics_adapter import MetricsEvents, listed
from penstock.streams.runtime.metric_values import KEY_CHARS_MAX, memory_limits, metrics_of
from penstock.streams.task.error_policies import ErrorPolicy, Policies
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.memory_log import LogEntry
from penstock.streams.worker.settings import WorkerSettings
from penstock.topologies.graph.topology import Topology
from tests.simulation.world import World

RECORDS = 16_000


def counted() -> Topology:
    builder = ps.StreamsBuilder("t", key=bytes, value=str)
    builder.stream("in").group_by_key().count(name="counts").to_stream().to("out", value=int)
    return builder.build()


def test_heavy_keys_counts_and_what_waits_are_shown() -> None:
    world = World(counted(), "at_least_once", partitions=1, inputs=["in"], outputs=["out"])
    odd = b"\xff" + b"x" * 200
    rng = random.Random(1)
    for i in range(RECORDS):
        key = rng.choices([b"heavy", odd, b"%d" % i], [5, 3, 2])[0]
        world.log.append(TopicPartition("in", 0), LogEntry(key if i else None, b"v", i))
    node = world.node("a")
    world.settle(node)
    found = metrics_of(node.runtime.tasks.values())
    shares = {m.labels["key"]: m.value for m in found if m.name == "penstock_heavy_key_share"}
    assert shares == {
        "heavy": pytest.approx(0.5, abs=0.15),
        ("\\xff" + "x" * 200)[:KEY_CHARS_MAX]: pytest.approx(0.3, abs=0.15),
    }
    assert Metric("penstock_buffered_records", {"task": "0_0", "topic": "in"}, 0) in found
    (dropped,) = [m for m in found if m.name == "penstock_dropped_records_total"]
    assert dropped == Metric(dropped.name, {"task": "0_0", "operator": "counts", "reason": "null_key"}, 1)
    assert not [m for m in found if m.name == "penstock_counted_total"]


def test_lag_event_time_and_users_counters_are_shown() -> None:
    builder = ps.StreamsBuilder("t", key=bytes, value=str)
    builder.stream("in").map_values(str).to("out")
    world = World(builder.build(), "at_least_once", partitions=1, inputs=["in"], outputs=["out"])
    world.log.append(TopicPartition("in", 0), LogEntry(b"k", b"v", 5_000))
    node = world.node("a")
    world.settle(node)
    for i in range(3):
        world.log.append(TopicPartition("in", 0), LogEntry(b"k", b"v", i))
    tasks = node.runtime.tasks.values()
    next(iter(tasks)).dropped["map.user.seen"] += 2
    found = metrics_of(tasks, node.runtime.consumer.known_ends())
    assert Metric("penstock_records_lag", {"task": "0_0", "topic": "in"}, 3) in found
    assert Metric("penstock_stream_time_seconds", {"task": "0_0"}, 5.0) in found
    assert Metric("penstock_watermark_seconds", {"task": "0_0"}, 4.999) in found
    assert Metric("penstock_counted_total", {"task": "0_0", "counter": "map.user.seen"}, 2) in found


def test_caches_are_measured_by_the_loop() -> None:
    world = World(counted(), "at_least_once", partitions=1, inputs=["in"], outputs=["out"])
    for i in range(200):
        world.log.append(TopicPartition("in", 0), LogEntry(b"%d" % (i % 50), b"v", i))
    node = world.node("a")
    world.settle(node)
    found = {m.name: m.value for m in metrics_of(node.runtime.tasks.values()) if "store" in m.labels}
    assert found["penstock_cache_hits_total"] + found["penstock_cache_misses_total"] > 0
    world.log.advance(1_000)
    node.turn()
    node.turn()
    found = {m.name: m.value for m in metrics_of(node.runtime.tasks.values()) if "store" in m.labels}
    assert found["penstock_cache_bytes"] > 0


@pytest.mark.parametrize("policy", ["skip", "dead_letter"])
def test_records_that_a_policy_met_are_shown(policy: ErrorPolicy) -> None:
    builder = ps.StreamsBuilder("t", key=bytes, value=int)
    builder.stream("in").map_values(lambda value: 10 // value).to("out")
    policies = Policies(deserialization=policy, processing=policy, dead_letter_topic="letters")
    events = MetricsEvents(list)
    with ps.TopologyTestDriver(builder.build(), options=TaskOptions(policies=policies, events=events)) as driver:
        values = [b"too short", *(n.to_bytes(8, "big") for n in (0, 0, 5))]
        driver.pipe_raw({"in": [ps.Record(b"k", value) for value in values]})
        found = {
            (m.labels["kind"], m.labels["policy"]): m.value
            for m in listed(events.registry)
            if m.name == "penstock_bad_records_total"
        }
    assert found == {("deserialization", policy): 1, ("processing", policy): 2}


def test_no_tasks_no_metrics() -> None:
    assert metrics_of([]) == []


def test_what_stores_may_take_is_shown() -> None:
    settings = WorkerSettings(
        application_id="t", state_cache_max_bytes=2 << 20, rocksdb=RocksDBOptions(entries_bytes=3 << 20)
    )
    limits = {
        m.labels["of"]: m.value
        for m in memory_limits(settings.memory_limits())
        if m.name == "penstock_memory_limit_bytes"
    }
    assert limits == {
        "decoded": 2 << 20,
        "entries": 3 << 20,
        "blocks": RocksDBOptions().limits().block_cache_bytes,
        "memtables": RocksDBOptions().write_buffer_bytes,
    }
