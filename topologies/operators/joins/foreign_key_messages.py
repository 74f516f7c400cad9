"""The messages of a foreign-key join between the two tables' tasks, in the layouts of Kafka Streams.

* A subscription: ``flags (1) | instruction (1) | hash (16, unless null) | left key | left partition (4)``. Flags: bit 7: the
  hash is null; the others: version 1.
* A response: ``flags (1) | hash (16, unless null) | right value``. Flags: bit 7: the hash is null; bit 6: the right
  value exists although it has no bytes (Kafka Streams cannot distinguish it from null); the others: version 0.
* A subscription's key in the store: ``length of the foreign key (4) | foreign key | left key``.

The hash is BLAKE2b of 16 bytes of the left value's bytes, where Kafka Streams has Murmur3-128: it only ever meets hashes
that the same application made. It says which left value a response answers; ``None``: the left row is gone.
"""

from __future__ import annotations

import hashlib
import struct
from typing import NamedTuple

from penstock.state.errors import SerdeError
from penstock.state.serdes.serde import Serde

DELETE_NO_PROPAGATE = 0
"""Forget the subscription, without an answer."""
PROPAGATE_NULL_IF_NO_FK = 2
"""Subscribe, and answer with the row, or null. Under a null foreign key: answer with null."""

_HASH_BYTES = 16
_NO_HASH, _EMPTY = 0x80, 0x40
_VERSION = 0x3F
_INT = struct.Struct(">i")


class Subscription(NamedTuple):
    """A left row's request to a right one. ``key``: the left key's bytes; ``partition``: the left task's."""

    hash: bytes | None
    instruction: int
    key: bytes
    partition: int


class Response(NamedTuple):
    """The answer. ``value``: the right value's bytes, ``None`` without a row; ``partition``: where it goes, which is not
    on the wire."""

    hash: bytes | None
    value: bytes | None
    partition: int = -1


def hash_of(value: bytes) -> bytes:
    """The hash that represents a left value."""
    return hashlib.blake2b(value, digest_size=_HASH_BYTES).digest()


def subscription_key(foreign_key: bytes, key: bytes) -> bytes:
    """The subscription's key in the store; with an empty ``key`` the prefix of all of one foreign key."""
    return _INT.pack(len(foreign_key)) + foreign_key + key


def after_prefix(prefix: bytes) -> bytes:
    """The smallest key above all that begin with ``prefix``, which has a byte below 255."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1])


def _write_subscription(s: Subscription) -> bytes:
    flags = 1 if s.hash is not None else 1 | _NO_HASH
    return bytes((flags, s.instruction)) + (s.hash or b"") + s.key + _INT.pack(s.partition)


def _read_subscription(data: bytes) -> Subscription:
    start = 2 if data[0] & _NO_HASH else 2 + _HASH_BYTES
    known = len(data) >= start + _INT.size and data[1] in (DELETE_NO_PROPAGATE, PROPAGATE_NULL_IF_NO_FK)
    if not known or data[0] & _VERSION != 1:
        raise SerdeError(
            f"{data!r:.60} is not a subscription of version 1; something else wrote to this topic or store"
        )
    hashed = None if data[0] & _NO_HASH else data[2:start]
    return Subscription(hashed, data[1], data[start:-4], _INT.unpack(data[-4:])[0])


def _write_response(r: Response) -> bytes:
    flags = (0 if r.hash is not None else _NO_HASH) | (_EMPTY if r.value == b"" else 0)
    return bytes((flags,)) + (r.hash or b"") + (r.value or b"")


def _read_response(data: bytes) -> Response:
    flags = data[0]
    start = 1 if flags & _NO_HASH else 1 + _HASH_BYTES
    if flags & _VERSION or len(data) < start:
        raise SerdeError(f"{data!r:.60} is not a response of version 0; something else wrote to this topic")
    value = data[start:] if len(data) > start or flags & _EMPTY else None
    return Response(None if flags & _NO_HASH else data[1:start], value)


SUBSCRIPTION: Serde[Subscription] = Serde(
    "foreign-key-subscription", _write_subscription, _read_subscription, immutable=True, exact=Subscription
)
RESPONSE: Serde[Response] = Serde("foreign-key-response", _write_response, _read_response, immutable=True)
