"""As much of Kafka's wire format as a proxy needs: the header of a request, and where the records of a fetch lie. Pure."""

from __future__ import annotations

import enum
import struct
from typing import NamedTuple

_HEADER = struct.Struct(">hhih")  # key, version, correlation id, length of the client's name
_BATCH = struct.Struct(">qiibI")  # base offset, length after it, leader epoch, magic, CRC
_LENGTH_AT = 8
_CRC_END = 21
_LEAST_BATCH_BYTES = 61


class Api(enum.IntEnum):
    """The requests that rules name."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    TXN_OFFSET_COMMIT = 28


class Header(NamedTuple):
    """What identifies a request. ``client``: the ``client.id``."""

    api: int
    correlation: int
    client: str


def header_of(frame: bytes) -> Header:
    """The header of a request, without the four bytes of its length. Raises ``ValueError`` if it is none."""
    if len(frame) < _HEADER.size:
        raise ValueError(f"a request of {len(frame)} bytes has no header")
    api, _, correlation, size = _HEADER.unpack_from(frame)
    name = frame[_HEADER.size : _HEADER.size + max(size, 0)]
    return Header(api, correlation, name.decode(errors="replace"))


def correlation_of(frame: bytes) -> int:
    """Which request a response answers. Raises ``ValueError`` if it is none."""
    if len(frame) < 4:
        raise ValueError(f"a response of {len(frame)} bytes answers nothing")
    return int.from_bytes(frame[:4], "big")


def _crc_table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _crc_table()


def crc32c(data: bytes) -> int:
    """The checksum of record batches (Castagnoli)."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def batches_in(frame: bytes) -> list[tuple[int, int]]:
    """Begin and end of the record batches (format 2) in a response to a fetch: what looks so, with a right checksum."""
    out: list[tuple[int, int]] = []
    at = frame.find(b"\x02", 16)
    while at >= 0:
        start = at - 16
        if start + _LEAST_BATCH_BYTES <= len(frame):
            offset, length, epoch, _, crc = _BATCH.unpack_from(frame, start)
            end = start + _LENGTH_AT + 4 + length
            fits = offset >= 0 and epoch >= -1 and length >= _LEAST_BATCH_BYTES - 12 and end <= len(frame)
            if fits and crc == crc32c(frame[start + _CRC_END : end]):
                out.append((start, end))
                at = frame.find(b"\x02", end + 16)
                continue
        at = frame.find(b"\x02", at + 1)
    return out


def with_flipped_bit(frame: bytes, bit: int = 0) -> bytes | None:
    """The frame with one bit of its last batch's contents changed; ``None`` if it has no records. ``bit`` counts from the
    end of the batch."""
    found = [(begin, end) for begin, end in batches_in(frame) if end - begin > _LEAST_BATCH_BYTES]
    if not found:
        return None
    begin, end = found[-1]
    at = end - 1 - (bit // 8) % (end - begin - _LEAST_BATCH_BYTES)
    out = bytearray(frame)
    out[at] ^= 1 << bit % 8
    return bytes(out)
