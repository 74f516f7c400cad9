"""The position record: where in the log a store stands. It is stored next to the data that it describes.

Layout: ``PSP`` | version (1) | CRC-32 of the payload (4, big-endian) | payload (MessagePack). An unknown version is
never read.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Mapping

import msgspec

from penstock.state.errors import StateCorruptedError
from penstock.state.log import TopicPartition

VERSION = 2
_MAGIC = b"PSP"
_HEADER_BYTES = len(_MAGIC) + 1 + 4


@dataclasses.dataclass(frozen=True, slots=True)
class Position:
    """The position of a store.

    ``changelog_offset`` and the values of ``input_offsets`` are the next offsets to read. ``epoch`` is the leader epoch
    of the changelog's last applied record, -1 when unknown. ``topic_ids`` maps topic names (changelog and inputs) to
    the ids that the cluster gave them. ``stream_time_ms`` is the task's, -1 before its first record. ``wall_time_ms``
    is when the store was last known to be at this offset: the age of its tombstones is judged by it. ``segment_ms`` is
    the store's (``penstock.state.stores.store``) when its keys were written, 0 for kinds without segments.
    """

    changelog_offset: int
    input_offsets: Mapping[TopicPartition, int]
    cluster_id: str
    topic_ids: Mapping[str, str]
    wall_time_ms: int
    stream_time_ms: int = -1
    epoch: int = -1
    segment_ms: int = 0


class _Payload(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    changelog_offset: int
    input_offsets: list[tuple[str, int, int]]
    cluster_id: str
    topic_ids: dict[str, str]
    wall_time_ms: int
    stream_time_ms: int
    epoch: int
    segment_ms: int


_encoder = msgspec.msgpack.Encoder(order="sorted")
_decoder = msgspec.msgpack.Decoder(_Payload)


def encode_position(position: Position) -> bytes:
    """Encode the position; equal positions give equal bytes."""
    payload = _encoder.encode(
        _Payload(
            position.changelog_offset,
            sorted((t, p, o) for (t, p), o in position.input_offsets.items()),
            position.cluster_id,
            dict(position.topic_ids),
            position.wall_time_ms,
            position.stream_time_ms,
            position.epoch,
            position.segment_ms,
        )
    )
    return _MAGIC + bytes((VERSION,)) + zlib.crc32(payload).to_bytes(4, "big") + payload


def decode_position(data: bytes) -> Position:
    """Decode a position. Raises ``StateCorruptedError``, with what was seen, for any other bytes."""
    if len(data) < _HEADER_BYTES or data[:3] != _MAGIC:
        raise _damaged(f"{len(data)} bytes that begin with {data[:8]!r} are not a position record")
    if data[3] != VERSION:
        raise _damaged(f"the position record has version {data[3]}, and this release reads version {VERSION}")
    payload = data[_HEADER_BYTES:]
    expected, found = int.from_bytes(data[4:_HEADER_BYTES], "big"), zlib.crc32(payload)
    if expected != found:
        raise _damaged(f"the position record's checksum is {found:08x} where {expected:08x} was written")
    try:
        read = _decoder.decode(payload)
    except msgspec.MsgspecError as exc:
        raise _damaged(f"the position record cannot be read ({exc})") from exc
    offsets = {TopicPartition(topic, partition): offset for topic, partition, offset in read.input_offsets}
    if read.changelog_offset < 0 or any(offset < 0 for offset in offsets.values()):
        raise _damaged(f"the position record holds a negative offset: {read.changelog_offset}, {offsets}")
    return Position(
        read.changelog_offset,
        offsets,
        read.cluster_id,
        read.topic_ids,
        read.wall_time_ms,
        read.stream_time_ms,
        read.epoch,
        read.segment_ms,
    )


def _damaged(seen: str) -> StateCorruptedError:
    return StateCorruptedError(f"{seen}; quarantine the store and restore it")
