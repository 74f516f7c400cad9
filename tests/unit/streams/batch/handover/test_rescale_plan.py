"""A rescaling moves only what is provably placed by keys, and names everything else before anything is changed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

import penstock as ps
from penstock.state.errors import SettingsError
from penstock.state.serdes.partitioner import partition_for
from penstock.state.serdes.window_keys import spanning_serde, windowed_serde
from penstock.streams.batch.handover.rekeying import StorePlacing, readdressed
from penstock.streams.batch.handover.rescale_executor import StoreMove
from penstock.streams.batch.handover.rescale_plan import Rescaling, ScaledSide, rescaling
from penstock.streams.runtime.topic_setup import layout_of
from penstock.streams.testing.memory_sink import MemorySink
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operators.base.foreign_key_messages import SUBSCRIPTION, Subscription, subscription_key

Build = Callable[[ps.StreamsBuilder, str], object]


def topology(build: Build, suffix: str, **how: Any) -> Topology:
    b = ps.StreamsBuilder("shop", **({"key": str, "value": str} | how))
    build(b, suffix)
    return b.build()


def planned(build: Build, new: Build | None = None, counts: tuple[int, int] = (2, 3), **how: Any) -> Rescaling:
    sides = []
    for name, made, suffix, count in (("old", build, "", counts[0]), ("new", new or build, "-3", counts[1])):
        shown = topology(made, suffix, **how)
        topics = {s.topic for sub in shown.subtopologies for s in map(shown.source, sub.sources) if not s.internal}
        sides.append(ScaledSide(shown, name, layout_of(shown, name, dict.fromkeys(topics, count))))
    return rescaling(sides[0], sides[1])


def counts(b: ps.StreamsBuilder, suffix: str) -> None:
    b.stream(f"in{suffix}", name="in").group_by_key().count(name="counts").to_stream().to("out", value=int)


def test_a_part_whose_partitions_stay_keeps_its_places_and_needs_no_proof() -> None:
    def behind(b: ps.StreamsBuilder, suffix: str) -> None:
        kept = b.stream("in")
        kept.group_by(lambda k, v: v, partitions=3 if suffix else 2).count(name="by-value")
        kept.deduplicate("1s", name="once").to("once")

    plan = planned(behind, counts=(4, 4))
    assert plan.moved == {1} and not plan.renamed and set(plan.placings) == {"by-value"}
    assert {s.name for _, s in plan.stores()} == {"by-value", "once", "once-expiry"}


def test_a_table_over_a_topic_that_both_read_is_not_written_again() -> None:
    def joined(b: ps.StreamsBuilder, suffix: str) -> None:
        rows = b.table("rows")
        met = b.stream("in").join(rows, lambda v, row: v + row)
        met.group_by(lambda k, v: v, partitions=3 if suffix else 2).count(name="by-value")

    plan = planned(joined, counts=(4, 4))
    assert [s.name for _, s in plan.stores()] == ["by-value"] and plan.tables == {}

    def renamed(b: ps.StreamsBuilder, suffix: str) -> None:
        rows = b.table(f"rows{suffix}", name="rows")
        b.stream(f"in{suffix}", name="in").join(rows, lambda v, row: v + row).to("out")

    plan = planned(renamed)
    assert plan.tables == {"rows": "rows-3"} and plan.renamed == {"rows": "rows-3", "in": "in-3"}
    assert {tp.topic for tp in plan.written()} == {"rows-3"}


def by_route(b: ps.StreamsBuilder, suffix: str) -> None:
    stream = b.stream(f"in{suffix}", name="in").repartition(by=lambda k, v, n: len(v) % n)
    stream.group_by_key().count(name="counts")


def by_other_state(b: ps.StreamsBuilder, suffix: str) -> None:
    b.stream(f"in{suffix}", name="in").throttle(1, "1s", grace=0, name="slow").to("out")


def of_global_rows(b: ps.StreamsBuilder, suffix: str) -> None:
    rows = b.global_table(f"rows{suffix}", name="rows")
    b.stream(f"in{suffix}", name="in").join_global(rows, lambda k, v: k, lambda v, row: v, name="met").to("out")


def with_watermarks(b: ps.StreamsBuilder, suffix: str) -> None:
    stream = b.stream(f"in{suffix}", name="in", watermark=ps.bounded_out_of_orderness("1s"))
    stream.group_by_key().count(name="counts")


def of_versions(b: ps.StreamsBuilder, suffix: str) -> None:
    rows = b.table(f"rows{suffix}", name="rows", history="1h")
    b.stream(f"in{suffix}", name="in").join(rows, lambda v, row: v).to("out")


def to_a_sink(b: ps.StreamsBuilder, suffix: str) -> None:
    b.stream(f"in{suffix}", name="in").sink(MemorySink(), name="rows")


def by_clock(b: ps.StreamsBuilder, suffix: str) -> None:
    windows = ps.tumbling("1s", time="processing")
    b.stream(f"in{suffix}", name="in").group_by_key().windowed_by(windows).count(name="counts")


def read_back(b: ps.StreamsBuilder, suffix: str) -> None:
    b.stream(f"in{suffix}", name="in").to("echo")
    b.stream(f"echo{suffix}", name="echo").to("out")


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (by_route, "topic in-repartition: its records are not partitioned by their keys alone"),
        (
            by_other_state,
            r"store slow: the partition of its entries does not follow from their keys \(slow \(Throttle\)\)",
        ),
        (of_global_rows, "its records are not partitioned by their keys alone"),
        (with_watermarks, "source in has a watermark strategy"),
        (of_versions, "store rows: a versioned table is restored by the stream time"),
        (to_a_sink, "external sink rows keeps positions"),
        (by_clock, "operator counts .* has timers of its task's time"),
        (read_back, "topic echo is written and read"),
    ],
)
def test_what_cannot_be_moved_provably_is_refused_by_name(build: Build, said: str) -> None:
    with pytest.raises(SettingsError, match=f"old cannot be rescaled: .*{said}"):
        planned(build)


def test_keys_whose_bytes_a_producer_may_write_otherwise_are_refused() -> None:
    with pytest.raises(SettingsError, match="input in: serde json may write the bytes of a key otherwise"):
        planned(counts, key=dict)
    assert planned(counts, key=int).placings


def test_a_rescaling_changes_nothing_but_topics_and_partitions() -> None:
    def renamed(b: ps.StreamsBuilder, suffix: str) -> None:
        b.stream(f"in{suffix}", name="in").group_by_key().count(name="totals").to_stream().to("out", value=int)

    def without_name(b: ps.StreamsBuilder, suffix: str) -> None:
        b.stream(f"in{suffix}").group_by_key().count(name="counts").to_stream().to("out", value=int)

    def windowed(b: ps.StreamsBuilder, suffix: str) -> None:
        size = "2s" if suffix else "1s"
        windows = ps.tumbling(size, grace=0)
        b.stream(f"in{suffix}", name="in").group_by_key().windowed_by(windows).count(name="counts")

    with pytest.raises(SettingsError, match=r"their operators differ: .*counts.*totals"):
        planned(counts, renamed)
    with pytest.raises(
        SettingsError, match=r'the names that they had, such as builder.stream\("orders-3", name="orders"\)'
    ):
        planned(without_name)
    with pytest.raises(SettingsError, match="stores of sub-topology 0 have another kind, serde, window"):
        planned(windowed)
    with pytest.raises(SettingsError, match="neither a number of partitions nor a topic is another one"):
        planned(lambda b, _: counts(b, ""), counts=(2, 2))


# -- entries -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("placing", "stored"),
    [
        (StorePlacing("s", "key_value"), b"key"),
        (StorePlacing("s", "window"), b"%8dkey"),
        (StorePlacing("s", "key_window"), b"%8dkey%8d"),
        (StorePlacing("s", "session"), b"%8dkey%16d"),
        (StorePlacing("s", "list"), b"%8dkey%12d"),
        (StorePlacing("s", "versioned"), b"key%8d"),
        (StorePlacing("s", "key_value", "timer"), b"%8dkey"),
        (StorePlacing("s", "key_value", "pending"), b"%17dkey%4d"),
        (StorePlacing("s", "key_value", suffix_bytes=windowed_serde(str, 5).suffix_bytes), b"key%8d"),
        (StorePlacing("s", "key_value", "timer", spanning_serde(str).suffix_bytes), b"%8dkey%16d"),
    ],
)
def test_the_key_is_found_among_the_bytes_of_its_store(placing: StorePlacing, stored: bytes) -> None:
    assert placing.key_of(stored % ((0,) * stored.count(b"%"))) == b"key"
    if stored != b"key":
        with pytest.raises(SettingsError, match="which its operator would not write"):
            placing.key_of(b"short"[: 4 if stored.startswith(b"key") else 5])


def test_an_entry_in_a_foreign_partition_is_named() -> None:
    move = StoreMove((2, 3), StorePlacing("counts", "key_value"))
    home = partition_for(b"k", 2)
    move.check([(b"k", b"12345678v")], home)
    assert move.target(b"k", home) == partition_for(b"k", 3)
    with pytest.raises(
        SettingsError, match=rf"store counts holds key b'k' in partition {1 - home}, where murmur2 of 2"
    ):
        move.check([(b"k", b"12345678v")], 1 - home)
    stays = dataclasses.replace(move, placing=None)
    stays.check([(b"k", b"v")], 1 - home)
    assert stays.target(b"k", 1 - home) == 1 - home


def test_answers_of_subscriptions_go_to_the_left_keys_new_task() -> None:
    asked = Subscription(b"h" * 16, 2, b"left", partition_for(b"left", 2))
    stored = b"12345678" + SUBSCRIPTION.serialize(asked)
    placing = StorePlacing("s", "key_value", "subscription")
    assert placing.key_of(subscription_key(b"foreign", b"left")) == b"foreign"
    move = StoreMove((4, 4), None, (2, 5))
    move.check([(subscription_key(b"foreign", b"left"), stored)], 0)
    assert SUBSCRIPTION.deserialize(move.value(stored)[8:]) == asked._replace(partition=partition_for(b"left", 5))
    assert readdressed(stored, 2) == stored
    with pytest.raises(SettingsError, match="answers would go astray"):
        dataclasses.replace(move, answers=(7, 5)).check([(b"k", stored)], 0)
