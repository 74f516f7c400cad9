"""Changes of a table's rows on a repartition topic, in the bytes of Kafka Streams (KIP-904).

* a new value alone: ``new | 0x01``
* an old value alone, a removal: ``old | 0x00``
* both: ``length of new (zigzag varint) | new | old | 0x02``
"""

from __future__ import annotations

import dataclasses
from typing import Any, Generic, NamedTuple

from penstock.state.errors import SerdeError
from penstock.state.serdes.serde import BYTES, Serde
from penstock.state.type_parameters import V

OLD, NEW, BOTH = 0, 1, 2
"""The last byte of a change: what it has."""
VARINT_MAX_BYTES = 5
"""The most bytes of a 32-bit length."""


class Change(NamedTuple, Generic[V]):
    """The new and the old value of a row; ``None``: no row. A change on a topic has at least one of them."""

    new: V | None
    old: V | None


@dataclasses.dataclass(frozen=True, slots=True)
class RowChangeSerde(Serde[Change[Any]]):
    """A ``change_serde`` that knows the serde of the ``rows``, so that columns of changes can be written and read."""

    rows: Serde[Any] = BYTES

    @classmethod
    def of(cls, rows: Serde[Any]) -> RowChangeSerde:
        """The serde of changes of rows."""
        made = change_serde(rows)
        return cls(made.name, made.serialize, made.deserialize, made.immutable, rows=rows)


def change_serde(inner: Serde[Any]) -> Serde[Change[Any]]:
    """The serde of changes whose values ``inner`` writes."""
    write, read = inner.serialize, inner.deserialize

    def serialize(change: Change[Any]) -> bytes:
        new, old = change
        if old is None:
            if new is None:
                raise SerdeError("a change needs a new or an old value; do not send it")
            return write(new) + b"\x01"
        if new is None:
            return write(old) + b"\x00"
        data = write(new)
        return varint(len(data)) + data + write(old) + b"\x02"

    def deserialize(data: bytes) -> Change[Any]:
        flag = data[-1] if data else None
        if flag == NEW:
            return Change(read(data[:-1]), None)
        if flag == OLD:
            return Change(None, read(data[:-1]))
        if flag != BOTH:
            raise SerdeError(f"{data!r:.60} is not a change of a table's row: its last byte must be 0, 1 or 2")
        length, start = _read_varint(data)
        if length < 0 or start + length > len(data) - 1:
            raise SerdeError(
                f"{data!r:.60} is not a change of a table's row: its new value would be {length} bytes long"
            )
        return Change(read(data[start : start + length]), read(data[start + length : -1]))

    return Serde(f"change({inner.name})", serialize, deserialize, immutable=inner.immutable)


def varint(number: int) -> bytes:
    """Encode a length as a varint of Kafka's protocol: zigzag, then seven bits per byte, lowest first."""
    rest = number << 1
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _read_varint(data: bytes) -> tuple[int, int]:
    """The number, and the offset after it."""
    rest = shift = 0
    for at, byte in enumerate(data[:VARINT_MAX_BYTES]):
        rest |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (rest >> 1) ^ -(rest & 1), at + 1
        shift += 7
    raise SerdeError(
        f"{data!r:.60} is not a change of a table's row: the length of its new value does not end within 5 bytes"
    )
