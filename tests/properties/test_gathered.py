"""Messages to columns: wherever a poll cuts its messages, their records are what each message alone says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from confluent_kafka import TIMESTAMP_CREATE_TIME, Message
from hypothesis import given
from hypothesis import strategies as st

from penstock.state.log import TIMESTAMP_ZERO_HEADER, TopicPartition
from penstock.streams.kafka.columns import Gathered
from penstock.streams.ports.chunk import Chunk

ZERO = (TIMESTAMP_ZERO_HEADER, b"0")
PLACES = st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 2))
BYTES = st.none() | st.binary(max_size=3)
HEADERS = st.lists(st.sampled_from([("h", b"1"), ("h", None), ZERO]), max_size=2) | st.none()
RUNS = st.lists(
    st.tuples(PLACES, st.lists(st.tuples(st.integers(0, 2), BYTES, BYTES, st.integers(1, 9), HEADERS), min_size=1)),
    max_size=6,
)
Row = tuple[int, bytes | None, bytes | None, int, tuple[Any, ...]]
make: Any = Message  # typed without its arguments


def messages_of(runs: list[Any]) -> Iterator[tuple[TopicPartition, Message, Row]]:
    """Messages, and what they say. ``skipped``: so many offsets are missing before a record."""
    ends: dict[TopicPartition, int] = {}
    for place, rows in runs:
        tp = TopicPartition(*place)
        for skipped, key, value, ts, headers in rows:
            offset = ends.get(tp, 0) + skipped
            ends[tp] = offset + 1
            message = make(
                topic=tp.topic,
                partition=tp.partition,
                offset=offset,
                key=key,
                value=value,
                headers=headers or None,
                timestamp=(TIMESTAMP_CREATE_TIME, ts),
            )
            kept = tuple(h for h in headers or () if h != ZERO)
            yield tp, message, (offset, key, value, 0 if ZERO in (headers or ()) else ts, kept)


def rows_of(chunk: Chunk) -> list[Row]:
    headers = chunk.headers or [()] * len(chunk)
    return list(zip(chunk.offsets, chunk.keys, chunk.values, chunk.timestamps, headers, strict=True))


@given(RUNS, st.integers(1, 7))
def test_cuts_change_nothing(runs: list[Any], at_a_time: int) -> None:
    made = list(messages_of(runs))
    expected: dict[TopicPartition, list[Row]] = {}
    for tp, _, row in made:
        expected.setdefault(tp, []).append(row)
    found = Gathered()
    single = len({tp.topic for tp in expected}) == 1
    for start in range(0, len(made), at_a_time):
        found.add([message for _, message, _ in made[start : start + at_a_time]], single)
    chunks = found.chunks()
    assert [TopicPartition(c.topic, c.partition) for c in chunks] == list(expected)
    for chunk, rows in zip(chunks, expected.values(), strict=True):
        assert rows_of(chunk) == rows
        assert (chunk.headers is None) == (not any(headers for *_, headers in rows))
