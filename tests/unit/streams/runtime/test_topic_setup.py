"""What a topology needs of the cluster: layouts, what is created, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.state.errors import IncompatibleError, SettingsError, TopologyError
from penstock.state.serdes.serde import serde_of
from penstock.state.stores.store import StoreSpec
from penstock.state.stores.typed_stores import key_value_store
from penstock.streams.ports.log import TopicSpec
from penstock.streams.runtime.topic_setup import (
    TopicLayout,
    check_application_id,
    check_guarantee,
    check_policies,
    fingerprint,
    layout_of,
    prepare_topics,
)
from penstock.streams.task.error_policies import Policies
from penstock.streams.testing.memory_clients import MemoryAdmin
from penstock.streams.testing.memory_log import MemoryLog
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.examples.nexmark.suite import QUERIES
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operators.processors.processor import Processor
from penstock.topologies.windows import tumbling


def windowed(partitions: int | None = None) -> Topology:
    builder = StreamsBuilder("t")
    stream = builder.stream("events").repartition(name="again", partitions=partitions)
    stream.group_by_key().windowed_by(tumbling("1s", grace="1s")).count(name="counts").to_stream().to("out")
    return builder.build()


def joined() -> Topology:
    builder = StreamsBuilder("t")
    builder.stream("events").join(builder.table("users"), lambda e, u: e).to("out")
    return builder.build()


def test_repartition_topics_have_the_count_of_what_writes_them() -> None:
    assert layout_of(windowed(), "app", {"events": 6}) == TopicLayout((6, 6), {"app-again-repartition": 6})
    assert layout_of(windowed(3), "app", {"events": 6}) == TopicLayout((6, 3), {"app-again-repartition": 3})


def test_sides_of_a_foreign_key_join_that_write_each_others_topics_have_the_count_of_what_feeds_them() -> None:
    topology = QUERIES["q3"]()
    assert layout_of(topology, "app", {"nexmark": 5}).tasks == (5,) * len(topology.subtopologies)


def test_unequal_inputs_are_refused_with_their_counts() -> None:
    with pytest.raises(IncompatibleError, match="events has 4, users has 2"):
        layout_of(joined(), "app", {"events": 4, "users": 2})


@pytest.mark.parametrize(("given", "kept"), [(-1, "-1"), (86_400_000, "86400000")])
def test_a_journal_is_kept_as_long_as_what_it_orders(given: int, kept: str) -> None:
    """Its inputs are made in the same moment."""
    builder = StreamsBuilder("t")
    left, right = (builder.stream(topic).select_key(lambda k, v: v).repartition() for topic in ("a", "b"))
    left.merge(right).to("out")
    log = MemoryLog()
    for topic in ("a", "b", "out"):
        log.create(TopicSpec(topic, 1, config={"retention.ms": "1000"}))
    admin = MemoryAdmin(log)
    prepare_topics(builder.build(), "app", admin, repartition_retention_ms=given)
    (journal,) = [t for t in admin.topics("app") if t.endswith("-journal")]
    assert admin.topic_config(journal)["retention.ms"] == kept


def test_missing_topics_are_named_with_the_command_that_makes_them() -> None:
    log = MemoryLog()
    with pytest.raises(IncompatibleError, match="penstock topics create events"):
        prepare_topics(windowed(), "app", MemoryAdmin(log))


def test_internal_topics_are_created_and_written_ones_counted() -> None:
    admin = MemoryAdmin(MemoryLog())
    admin.create_topics([TopicSpec("events", 2), TopicSpec("out", 5)])
    layout = prepare_topics(windowed(), "app", admin)
    assert layout.topics == {"app-again-repartition": 2, "out": 5}
    assert admin.partition_counts(["app-again-repartition", "app-counts-changelog"]) == {
        "app-again-repartition": 2,
        "app-counts-changelog": 2,
    }
    assert admin.topic_config("app-counts-changelog")["cleanup.policy"] == "compact,delete"
    assert prepare_topics(windowed(), "app", admin) == layout


def test_joins_of_two_topics_get_a_journal() -> None:
    admin = MemoryAdmin(MemoryLog())
    admin.create_topics([TopicSpec("events", 2), TopicSpec("users", 2), TopicSpec("out", 1)])
    prepare_topics(joined(), "app", admin)
    assert admin.partition_counts(["app-0-journal"]) == {"app-0-journal": 2}


def test_guarantees_refuse_what_they_cannot_keep() -> None:
    class Unlogged(Processor):
        stores = (key_value_store("memo", key=str, value=int, changelog=False),)

    builder = StreamsBuilder("t")
    builder.stream("events").process(Unlogged)
    topology = builder.build()
    check_guarantee(topology, "at_least_once")
    with pytest.raises(TopologyError, match=r"memo.*has no changelog"):
        check_guarantee(topology, "exactly_once")
    with pytest.raises(TopologyError, match="stateless topologies only"):
        check_guarantee(topology, "at_most_once")


def test_fingerprint_changes_with_what_stores_depend_on_only() -> None:
    layout = TopicLayout((2, 2), {})
    assert fingerprint(windowed(), layout) == fingerprint(windowed(), layout)
    assert fingerprint(windowed(), layout) != fingerprint(windowed(), TopicLayout((2, 4), {}))


@pytest.mark.parametrize("bad", ["", "a b", "a/b", "ä", "x" * 101])
def test_application_ids_that_cannot_name_topics_are_refused(bad: str) -> None:
    with pytest.raises(SettingsError, match="application_id"):
        check_application_id(bad)


@pytest.mark.parametrize("history", [None, "1h"])
@pytest.mark.parametrize("chosen", ["skip", "dead_letter"])
def test_a_table_that_its_topic_cannot_bring_back_is_refused(chosen: Any, history: str | None) -> None:
    def policies_of(own: Any) -> None:
        builder = StreamsBuilder("t")
        users = builder.table("users", history=history)
        builder.stream("events").join(users if own is None else users.on_error(own), lambda e, u: e).to("out")
        lenient = Policies(processing=chosen, deserialization=chosen, timestamp="clamp", dead_letter_topic="letters")
        check_policies(builder.build(), lenient)

    policies_of(None)
    policies_of("fail")
    words = rf"'users'.*deserialization={chosen} and timestamp={chosen}.*stream\('users', …\)\.to_table\(\)"
    with pytest.raises(SettingsError, match=words):
        policies_of(chosen)


def test_a_table_with_a_changelog_of_its_own_takes_every_policy() -> None:
    builder = StreamsBuilder("t")
    builder.stream("users").to_table(name="rows")
    builder.table("others", ttl="1h")
    check_policies(builder.build(), Policies(deserialization="skip", timestamp="clamp"))


def test_changelogs_that_exist_keep_what_new_ones_would() -> None:
    """Made by an earlier release, or changed by hand; at-least-once keeps the cleaner off new records."""

    class Kept(Processor):
        stores = (
            key_value_store("counts", key=str, value=int),
            StoreSpec("versions", "versioned", serde_of(bytes), serde_of(bytes), retention_ms=10),
        )

    builder = StreamsBuilder("t")
    builder.stream("events").process(Kept)
    topology, log = builder.build(), MemoryLog()
    log.create(TopicSpec("events", 1))
    log.create(
        TopicSpec("app-versions-changelog", 1, config={"cleanup.policy": "compact", "min.compaction.lag.ms": "10"})
    )
    log.create(TopicSpec("app-counts-changelog", 1, config={"cleanup.policy": "compact"}))
    admin = MemoryAdmin(log)
    prepare_topics(topology, "app", admin)
    assert admin.topic_config("app-versions-changelog")["cleanup.policy"] == "delete"
    assert admin.topic_config("app-versions-changelog")["retention.ms"] == "-1"
    assert "min.compaction.lag.ms" not in admin.topic_config("app-counts-changelog")
    prepare_topics(topology, "app", admin, guarantee="at_least_once")
    assert admin.topic_config("app-counts-changelog")["min.compaction.lag.ms"] == "3600000"
