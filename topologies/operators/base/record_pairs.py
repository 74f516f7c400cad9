"""Records as values: key and value encoded together, to be buffered or sent under another key."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.state.serdes.serde import Serde

_ENCODE = msgspec.msgpack.Encoder().encode
_DECODER: msgspec.msgpack.Decoder[tuple[bytes | None, bytes | None]] = msgspec.msgpack.Decoder(
    tuple[bytes | None, bytes | None]
)


def pair_serde(key: Serde[Any], value: Serde[Any]) -> Serde[tuple[Any, Any]]:
    """The serde of pairs ``(key, value)``, either of which may be null."""
    write_key, write_value = key.serialize, value.serialize
    read_key, read_value = key.deserialize, value.deserialize

    def serialize(pair: tuple[Any, Any]) -> bytes:
        k, v = pair
        return _ENCODE((None if k is None else write_key(k), None if v is None else write_value(v)))

    def deserialize(data: bytes) -> tuple[Any, Any]:
        k, v = _DECODER.decode(data)
        return None if k is None else read_key(k), None if v is None else read_value(v)

    return Serde(f"pair({key.name},{value.name})", serialize, deserialize, immutable=key.immutable and value.immutable)


def either_serde(plain: Serde[Any], marked: Serde[Any]) -> Serde[tuple[bool, Any]]:
    """The serde of pairs ``(is_marked, value)``, the value being written by the one serde or the other; it may be null."""

    def serialize(pair: tuple[bool, Any]) -> bytes:
        is_marked, value = pair
        data = None if value is None else (marked if is_marked else plain).serialize(value)
        return _ENCODE((b"\x01" if is_marked else None, data))

    def deserialize(data: bytes) -> tuple[bool, Any]:
        mark, raw = _DECODER.decode(data)
        is_marked = mark is not None
        return is_marked, None if raw is None else (marked if is_marked else plain).deserialize(raw)

    return Serde(f"either({plain.name},{marked.name})", serialize, deserialize)
