"""The journal's and the commit metadata's encodings: round trips, garbage, newer versions, limits."""

from __future__ import annotations

import msgspec
import pytest

from penstock.state.errors import IncompatibleError, SettingsError, StateCorruptedError
from penstock.streams.task import commit_metadata, journal
from penstock.streams.task.commit_metadata import CommitMetadata
from penstock.streams.task.journal import ClockFiring, Cut


def test_journal_entries_come_back() -> None:
    entries: list[journal.JournalEntry] = [
        Cut({"a": 1, "b": 2**60}),
        ClockFiring({"a": 3, "b": 0}, 1_000, 2_000),
        Cut({"a": 3, "b": 4}),
    ]
    assert journal.decode(journal.encode(entries)) == entries
    assert journal.decode(journal.encode([])) == []


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[]",
        b"garbage",
        b'["x",[]]',
        b"[0,[]]",
        b'[1,[["cut",{"a":"x"}]]]',
        b'[1,[["other",{}]]]',
        b"[1",
        b"[" * 100_000,
    ],
)
def test_a_journal_record_of_something_else_is_refused(data: bytes) -> None:
    with pytest.raises(StateCorruptedError, match="cannot be read"):
        journal.decode(data)


def test_a_newer_journal_record_asks_for_an_upgrade_whatever_its_form() -> None:
    with pytest.raises(IncompatibleError, match="upgrade"):
        journal.decode(b'[2,{"anything":"else"},7]')


FULL = CommitMetadata(
    stream_time_ms=5, partition_time_ms=4, wall_ms=3, operators={"count": 7}, changelogs={"count": 12}, journal=9
)


def test_metadata_comes_back_and_names_its_version() -> None:
    decoded = commit_metadata.decode(commit_metadata.encode(FULL))
    assert decoded == FULL
    assert decoded.version == commit_metadata.VERSION


def test_no_metadata_gives_the_start() -> None:
    assert commit_metadata.decode("") == CommitMetadata()
    assert CommitMetadata().version == 0


def test_long_metadata_is_deflated_and_comes_back() -> None:
    many = CommitMetadata(operators={f"an-operator-with-a-long-name-{i}": 1_700_000_000_000 + i for i in range(150)})
    text = commit_metadata.encode(many)
    assert text.startswith("z")
    assert len(text) <= commit_metadata.LIMIT_CHARS
    assert text.isascii()
    assert commit_metadata.decode(text) == many


def test_metadata_beyond_the_brokers_limit_is_refused() -> None:
    import random

    rng = random.Random(1)
    names = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=40)) for _ in range(200)]
    with pytest.raises(SettingsError, match="shorten the names"):
        commit_metadata.encode(CommitMetadata(operators=dict.fromkeys(names, 5)))


@pytest.mark.parametrize(
    "text",
    ["garbage", "zgarbage", "z", "[1]", '{"v":"x"}', "\x00", "AgAAAYvP5WgAAA==", '{"v":1,"m":{"t":' + "[" * 100_000],
)
def test_metadata_of_another_application_is_refused(text: str) -> None:
    with pytest.raises(StateCorruptedError, match="another application"):
        commit_metadata.decode(text)


def test_newer_metadata_asks_for_an_upgrade() -> None:
    with pytest.raises(IncompatibleError, match="upgrade"):
        commit_metadata.decode(msgspec.json.encode({"v": commit_metadata.VERSION + 1, "o": ["another form"]}).decode())
