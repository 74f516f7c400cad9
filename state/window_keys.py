"""Keys of windowed results on a topic: key bytes | window start (8, big-endian, signed).

This is the layout of Kafka Streams' ``TimeWindowedSerializer``. The end is not written: a reader needs the
window's size. The layout inside window stores is another one (``penstock.state.store``).
"""

from __future__ import annotations

import dataclasses
import struct
from typing import Any

from penstock.state.errors import SerdeError
from penstock.state.log import Windowed
from penstock.state.serde import Serde, serde_of

_START = struct.Struct(">q")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WindowedSerde(Serde[Windowed]):
    """The serde of ``Windowed`` keys. ``inner`` is the serde of the key alone, by which a topic is
    partitioned."""

    inner: Serde[Any]
    size_ms: int


def windowed_serde(inner: Any, size_ms: int) -> WindowedSerde:
    """The serde of the windowed keys whose inner key ``serde_of(inner)`` writes, for windows of this size.

    Raises ``SerdeError`` for an unknown ``inner`` and for a size below 1 ms.
    """
    serde = serde_of(inner)
    if size_ms < 1:
        raise SerdeError(f"windows of {size_ms} ms cannot be; give the size that the writer used, in milliseconds")
    write, read = serde.serialize, serde.deserialize

    def serialize(windowed: Windowed) -> bytes:
        return write(windowed.key) + _START.pack(windowed.start_ms)

    def deserialize(data: bytes) -> Windowed:
        start_ms = _START.unpack(data[-8:])[0]
        return Windowed(read(data[:-8]), start_ms, start_ms + size_ms)

    return WindowedSerde(
        name=f"windowed({serde.name},{size_ms})",
        serialize=serialize,
        deserialize=deserialize,
        immutable=serde.immutable,
        inner=serde,
        size_ms=size_ms,
    )
