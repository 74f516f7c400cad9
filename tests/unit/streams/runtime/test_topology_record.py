"""What a changed topology does to stored state, named: what was, what is, and what happens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.state.errors import IncompatibleError
from penstock.streams.runtime.topic_setup import TopicLayout
from penstock.streams.runtime.topology_record import (
    LOSING,
    TopologyRecord,
    changes,
    decode,
    encode,
    record_of,
    refuse,
    sentences,
)
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.windows.aligned import tumbling

TWO = TopicLayout((2,), {})


def counting(name: str = "n", key: Any = str, more: Callable[[Any], object] | None = None) -> TopologyRecord:
    """The record of a topology that counts ``in``."""
    builder = StreamsBuilder(key=key, value=str)
    grouped = builder.stream("in").group_by_key()
    grouped.count(name=name)
    if more is not None:
        more(grouped)
    return record_of(builder.build(), "app", TWO)


def windowed(name: str, size: str) -> TopologyRecord:
    """That of one that counts by windows."""
    builder = StreamsBuilder(key=str, value=str)
    builder.stream("in").group_by_key().windowed_by(tumbling(size, grace=0)).count(name=name)
    return record_of(builder.build(), "app", TWO)


def outcomes(before: TopologyRecord, after: TopologyRecord, topics: tuple[str, ...] = ()) -> list[tuple[str, str]]:
    return [(c.what, c.outcome) for c in changes(before, after, topics)]


def test_a_record_is_read_as_it_was_written() -> None:
    assert decode(encode(counting())) == counting()
    assert decode(b'{"version":99,"stores":"?"}') is None
    assert decode(b"nothing") is None
    assert changes(counting(), counting(), ()) == []


def test_a_renamed_store_begins_empty_and_says_how_to_keep_it() -> None:
    (change,) = changes(counting("n"), counting("m"), ())
    assert (change.what, change.was, change.becomes, change.outcome) == (
        "store n",
        "called n",
        "called m",
        "begins empty",
    )
    assert "keep name='n'" in change.advice


def test_a_store_whose_changelog_exists_is_restored() -> None:
    assert outcomes(counting("n"), counting("m"), ("app-m-changelog",)) == [
        ("store m", "restored"),
        ("store n", "left behind"),
    ]


def test_another_serde_or_window_is_refused_with_both_names() -> None:
    found = changes(counting(key=str), counting(key=int), ())
    assert found[0].outcome == "refused"
    assert (found[0].was, found[0].becomes) == ("key_value of string to int", "key_value of int to int")
    (found_window,) = changes(windowed("w", "1m"), windowed("w", "2m"), ())[:1]
    assert found_window.outcome == "refused"
    assert "windows of 60000 ms" in found_window.was
    with pytest.raises(
        IncompatibleError, match="store n was key_value of string to int and is now key_value of int to int"
    ):
        refuse(found, "app")
    refuse([], "app")


def test_other_partitions_are_refused() -> None:
    builder = StreamsBuilder(key=str, value=str)
    builder.stream("in").group_by_key().count(name="n")
    wider = record_of(builder.build(), "app", TopicLayout((3,), {}))
    (change,) = changes(counting(), wider, ())
    assert (change.was, change.becomes, change.outcome) == ("of 2 partitions", "of 3", "refused")


def test_what_is_new_and_what_is_gone() -> None:
    both = counting(more=lambda grouped: grouped.windowed_by(tumbling("1m", grace=0)).count(name="w"))
    assert outcomes(counting(), both) == [("store w", "begins empty")]
    assert outcomes(both, counting()) == [("store w", "left behind")]
    assert {c.outcome for c in changes(counting(), both, ())} & LOSING
    assert "store w is new (window of string to int, windows of 60000 ms): begins empty" in sentences(
        changes(counting(), both, ())
    )
    gone = sentences(changes(both, counting(), ()))
    assert "store w is gone (was window of string to int" in gone
    assert "its changelog app-w-changelog stays until you delete it" in gone


def test_inputs_are_named() -> None:
    builder = StreamsBuilder(key=str, value=str)
    builder.stream("other").group_by_key().count(name="n")
    moved = record_of(builder.build(), "app", TWO)
    assert outcomes(counting(), moved) == [("input in", "left behind"), ("input other", "from the beginning")]
