"""The state of a key's window with a trigger, and its encoding.

Store key: length of the key (4) | key | window start (8) | window end (8), the ends shifted so that negative ones
sort first. So one key's windows are adjacent, by start. The value is msgpack.
"""

from __future__ import annotations

import struct
from typing import Any

import msgspec

from penstock.state.serdes.serde import Serde
from penstock.topologies.windows import Bounds

_LENGTH = struct.Struct(">I")
_SPAN = struct.Struct(">QQ")
_SHIFT = 1 << 63


class Emitted(msgspec.Struct, array_like=True):
    """A pane that may have to be retracted: its window, value, timestamp and pane header."""

    start_ms: int
    end_ms: int
    value: bytes | None
    ts: int
    pane: bytes


class WindowState(msgspec.Struct, array_like=True):
    """``aggregate``: of the ``records`` of the current pane; ``fresh``: how many of them no pane has shown yet.
    ``hold_ms``: the combined timestamp. ``trigger``: the trigger's state. ``finished``: it will not fire again, and
    records are dropped. ``event_ms``, ``wall_ms``: the timers that are set for it."""

    aggregate: bytes | None = None
    records: int = 0
    fresh: int = 0
    hold_ms: int | None = None
    trigger: dict[str, int] = {}
    finished: bool = False
    index: int = 0
    nonspeculative: int = 0
    event_ms: int | None = None
    wall_ms: int | None = None
    emitted: list[Emitted] = []


_ENCODER = msgspec.msgpack.Encoder(order="deterministic")
_DECODER = msgspec.msgpack.Decoder(WindowState)


def state_serde(value: Serde[Any]) -> Serde[WindowState]:
    """The serde of window states whose aggregates ``value`` writes."""
    return Serde(f"triggered({value.name})", _ENCODER.encode, _DECODER.decode)


def list_serde(value: Serde[Any]) -> Serde[list[bytes]]:
    """The serde of lists of values that are written already."""
    encoder, decoder = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(list[bytes])
    return Serde(f"list({value.name})", encoder.encode, decoder.decode)


def key_prefix(key: bytes) -> bytes:
    """The prefix of the store keys of a key's windows."""
    return _LENGTH.pack(len(key)) + key


def span(start_ms: int, end_ms: int) -> bytes:
    """A window behind the prefix."""
    return _SPAN.pack(start_ms + _SHIFT, end_ms + _SHIFT)


def key_and_window(store_key: bytes) -> tuple[bytes, Bounds]:
    """The key's bytes and the window of a store key."""
    start, end = _SPAN.unpack_from(store_key, len(store_key) - _SPAN.size)
    return store_key[_LENGTH.size : -_SPAN.size], (start - _SHIFT, end - _SHIFT)
