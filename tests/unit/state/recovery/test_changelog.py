"""Changelog names, settings and bytes, against the formats of Kafka Streams written out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.state.errors import IncompatibleError, TopologyError
from penstock.state.recovery import changelog
from penstock.state.serdes.serde import BYTES
from penstock.state.stores.store import StoreSpec

COUNTS = StoreSpec("counts", "key_value", BYTES, BYTES)
WINDOWS = StoreSpec("views", "window", BYTES, BYTES, window_size_ms=10_000, retention_ms=3_600_000)
ADS = StoreSpec("ads", "key_value", BYTES, BYTES, source_topic="ads-topic")

TS = bytes.fromhex("0000018bcfe56800")  # 1700000000000
START = bytes.fromhex("0000018bcfe54100")


def test_topics_are_named_as_kafka_streams_names_them() -> None:
    assert changelog.changelog_topic("app", COUNTS) == "app-counts-changelog"
    assert changelog.changelog_topic("app", ADS) == "ads-topic"
    assert changelog.journal_topic("app", 2) == "app-2-journal"


@pytest.mark.parametrize("application_id", ["a b", "a/b", "", "x" * 240])
def test_a_name_that_kafka_refuses_is_refused_before(application_id: str) -> None:
    if application_id:
        with pytest.raises(TopologyError, match="letters, digits"):
            changelog.changelog_topic(application_id, COUNTS)
    else:
        assert changelog.changelog_topic(application_id, COUNTS) == "-counts-changelog"


def test_settings_follow_the_kind_of_store() -> None:
    create = {"message.timestamp.type": "CreateTime", "message.timestamp.after.max.ms": "9223372036854775807"}
    assert changelog.changelog_configs(COUNTS) == {"cleanup.policy": "compact", **create}
    assert changelog.changelog_configs(WINDOWS) == {
        "cleanup.policy": "compact,delete",
        "retention.ms": "-1",
        "retention.bytes": "-1",
        **create,
    }
    lag = {"min.compaction.lag.ms": "3600000"}
    assert changelog.changelog_configs(COUNTS, tails=True) == {**changelog.changelog_configs(COUNTS), **lag}
    assert changelog.changelog_configs(WINDOWS, tails=True) == {**changelog.changelog_configs(WINDOWS), **lag}
    versions = StoreSpec("v", "versioned", BYTES, BYTES, retention_ms=10)
    kept = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
    assert changelog.changelog_configs(versions, tails=True) == {**kept, **create}
    assert changelog.journal_configs(-1) == {"cleanup.policy": "delete", "retention.ms": "-1", **create}
    assert changelog.repartition_configs()["retention.ms"] == "-1"
    with pytest.raises(TopologyError, match="retention_ms"):
        changelog.changelog_configs(StoreSpec("w", "window", BYTES, BYTES))


def test_a_key_value_entry_leaves_its_timestamp_to_the_record() -> None:
    assert changelog.to_changelog_columns(COUNTS, [b"k"] * 3, [TS + b"5", TS, None]) == ([b"k"] * 3, [b"5", b"", None])
    assert changelog.from_changelog(COUNTS, b"k", b"5", 1700000000000) == (b"k", TS + b"5")
    assert changelog.from_changelog(COUNTS, b"k", None, 7) == (b"k", None)


def test_a_window_entry_moves_its_start_behind_the_key() -> None:
    record = (b"c1" + START + b"\x00\x00\x00\x00", b"5", 1700000000000)
    assert changelog.to_changelog_columns(WINDOWS, [START + b"c1"], [TS + b"5"]) == ([record[0]], [record[1]])
    assert changelog.from_changelog(WINDOWS, *record) == (START + b"c1", TS + b"5")


@pytest.mark.parametrize("key", [b"", b"short", b"k" + START + b"\x00\x00\x00\x01", None])
def test_a_record_of_another_kind_of_store_is_refused(key: bytes | None) -> None:
    with pytest.raises(IncompatibleError, match=r"'views'.*belongs to this application"):
        changelog.from_changelog_columns(WINDOWS, [key], [b"v"], [0])


def test_a_source_topic_may_hold_null_keys_and_a_changelog_may_not() -> None:
    assert changelog.from_changelog_columns(ADS, [None, b"a"], [b"x", b"y"], [1, 0]) == [(b"a", bytes(8) + b"y")]
    with pytest.raises(IncompatibleError, match="key None"):
        changelog.from_changelog_columns(COUNTS, [None, b"a"], [b"x", b"y"], [1, 0])


def test_of_many_records_the_last_per_key_counts() -> None:
    found = changelog.from_changelog_columns(COUNTS, [b"a", b"b", b"a", b"b"], [b"1", b"2", b"3", None], [0] * 4)
    assert dict(found) == {b"a": bytes(8) + b"3", b"b": None}
    assert len(found) == 2


ENTRIES = st.dictionaries(
    st.binary(min_size=8, max_size=20),
    st.none() | st.tuples(st.integers(0, 2**62), st.binary(max_size=9)),
    max_size=20,
)


@given(st.sampled_from([COUNTS, WINDOWS, ADS]), ENTRIES)
def test_entries_survive_the_changelog(spec: StoreSpec, entries: dict[bytes, tuple[int, bytes] | None]) -> None:
    stored = [None if e is None else e[0].to_bytes(8, "big") + e[1] for e in entries.values()]
    times = [0 if e is None else e[0] for e in entries.values()]
    keys, values = changelog.to_changelog_columns(spec, list(entries), stored)
    assert changelog.from_changelog_columns(spec, keys, values, times) == list(zip(entries, stored, strict=True))
