"""The position record: what is written is read, and nothing else is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.state.errors import StateCorruptedError
from penstock.state.log import TopicPartition
from penstock.state.recovery.position import Position, decode_position, encode_position

OFFSETS = st.integers(0, 2**63 - 1)
TEXT = st.text(max_size=20)
POSITIONS = st.builds(
    Position,
    changelog_offset=OFFSETS,
    input_offsets=st.dictionaries(st.builds(TopicPartition, TEXT, st.integers(0, 10_000)), OFFSETS, max_size=4),
    cluster_id=TEXT,
    topic_ids=st.dictionaries(TEXT, TEXT, max_size=3),
    wall_time_ms=OFFSETS,
    stream_time_ms=st.integers(-1, 2**63 - 1),
    epoch=st.integers(-1, 2**31 - 1),
    segment_ms=OFFSETS,
)
ONE = Position(7, {TopicPartition("views", 0): 12, TopicPartition("ads", 0): 3}, "c1", {"log": "t1"}, 1_000, 900, 2)


@given(POSITIONS)
def test_what_is_written_is_read(position: Position) -> None:
    assert decode_position(encode_position(position)) == position


def test_equal_positions_give_equal_bytes() -> None:
    turned = Position(7, dict(reversed(list(ONE.input_offsets.items()))), "c1", {"log": "t1"}, 1_000, 900, 2)
    assert encode_position(turned) == encode_position(ONE)


@given(st.binary(max_size=60))
def test_garbage_is_damage(data: bytes) -> None:
    with pytest.raises(StateCorruptedError, match="quarantine"):
        decode_position(data)


def test_every_truncation_and_every_flipped_bit_is_damage() -> None:
    data = encode_position(ONE)
    for length in range(len(data)):
        with pytest.raises(StateCorruptedError):
            decode_position(data[:length])
    for bit in range(len(data) * 8):
        broken = bytearray(data)
        broken[bit // 8] ^= 1 << bit % 8
        with pytest.raises(StateCorruptedError):
            decode_position(bytes(broken))
    with pytest.raises(StateCorruptedError):
        decode_position(data + b"\x00")


@pytest.mark.parametrize("version", [1, 3])
def test_a_record_of_another_release_is_not_guessed_at(version: int) -> None:
    data = encode_position(ONE)
    with pytest.raises(StateCorruptedError, match=f"has version {version}, and this release reads version 2"):
        decode_position(data[:3] + bytes((version,)) + data[4:])


@pytest.mark.parametrize("bad", [Position(-1, {}, "c", {}, 0), Position(0, {TopicPartition("t", 0): -4}, "c", {}, 0)])
def test_negative_offsets_are_damage(bad: Position) -> None:
    with pytest.raises(StateCorruptedError, match="negative offset"):
        decode_position(encode_position(bad))
