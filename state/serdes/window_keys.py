"""Keys of windowed results on a topic.

``windowed_serde``: key bytes | window start (8, big-endian, signed), the layout of Kafka Streams'
``TimeWindowedSerializer``. The end is not written: a reader needs the window's size. ``starting_serde`` has the same
layout, for windows whose end follows from their start in another way (calendar). ``spanning_serde``: key bytes | end
(8) | start (8), the layout of its ``SessionWindowedSerializer``, for windows with any start and end. Window stores have
another layout (``penstock.state.stores.store``).
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable
from typing import Any

from penstock.state.errors import SerdeError
from penstock.state.log import Windowed
from penstock.state.serdes.serde import Serde, serde_of

_START = struct.Struct(">q")
_ENDS = struct.Struct(">qq")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WindowedSerde(Serde[Windowed]):
    """The serde of ``Windowed`` keys. ``inner`` is the serde of the key alone, by which a topic is partitioned.
    ``size_ms``: the size that all windows share, if they do. ``suffix_bytes``: how many bytes follow the key's own."""

    inner: Serde[Any]
    size_ms: int | None
    suffix_bytes: int


def windowed_serde(inner: Any, size_ms: int) -> WindowedSerde:
    """The serde of windowed keys of this window size; ``serde_of(inner)`` writes the inner key.

    Raises ``SerdeError`` for an unknown ``inner`` and for a size below 1 ms.
    """
    serde = serde_of(inner)
    if size_ms < 1:
        raise SerdeError(
            f"a window size of {size_ms} ms is not valid; give the size that the writer used, in milliseconds"
        )
    return _by_start(serde, f"windowed({serde.name},{size_ms})", size_ms, lambda start_ms: start_ms + size_ms)


def starting_serde(inner: Any, windows: str, end_of: Callable[[int], int]) -> WindowedSerde:
    """The serde of windowed keys whose end is ``end_of(start)``; ``windows`` describes the windows in the serde's
    name."""
    serde = serde_of(inner)
    return _by_start(serde, f"windowed({serde.name},{windows})", None, end_of)


def _by_start(serde: Serde[Any], name: str, size_ms: int | None, end_of: Callable[[int], int]) -> WindowedSerde:
    write, read = serde.serialize, serde.deserialize

    def serialize(windowed: Windowed) -> bytes:
        return write(windowed.key) + _START.pack(windowed.start_ms)

    def deserialize(data: bytes) -> Windowed:
        start_ms = _START.unpack(data[-8:])[0]
        return Windowed(read(data[:-8]), start_ms, end_of(start_ms))

    return WindowedSerde(
        name=name,
        serialize=serialize,
        deserialize=deserialize,
        immutable=serde.immutable,
        inner=serde,
        size_ms=size_ms,
        suffix_bytes=_START.size,
    )


def spanning_serde(inner: Any) -> WindowedSerde:
    """The serde of windowed keys with both ends: sessions, and windows of any length."""
    serde = serde_of(inner)
    write, read = serde.serialize, serde.deserialize

    def serialize(windowed: Windowed) -> bytes:
        return write(windowed.key) + _ENDS.pack(windowed.end_ms, windowed.start_ms)

    def deserialize(data: bytes) -> Windowed:
        end_ms, start_ms = _ENDS.unpack(data[-16:])
        return Windowed(read(data[:-16]), start_ms, end_ms)

    return WindowedSerde(
        name=f"windowed({serde.name})",
        serialize=serialize,
        deserialize=deserialize,
        immutable=serde.immutable,
        inner=serde,
        size_ms=None,
        suffix_bytes=_ENDS.size,
    )
