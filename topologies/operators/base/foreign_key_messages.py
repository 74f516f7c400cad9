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
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from penstock.state.errors import SerdeError
from penstock.state.serdes.serde import Serde
from penstock.topologies.operator_api.columns import BytesColumn, Mask

DELETE_NO_PROPAGATE = 0
"""Forget the subscription, without an answer."""
PROPAGATE_NULL_IF_NO_FK = 2
"""Subscribe, and answer with the row, or null. Under a null foreign key: answer with null."""

HASH_BYTES = 16
NO_HASH, EMPTY = 0x80, 0x40
"""Flags of messages."""
SUBSCRIBED = 1
"""The version of subscriptions, in their flags."""
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
    return hashlib.blake2b(value, digest_size=HASH_BYTES).digest()


def hashes_of(values: Sequence[bytes | None]) -> list[bytes | None]:
    """The hash of each value, ``None`` of a null."""
    blake2b = hashlib.blake2b
    return [None if v is None else blake2b(v, digest_size=HASH_BYTES).digest() for v in values]


def subscription_key(foreign_key: bytes, key: bytes) -> bytes:
    """The subscription's key in the store; with an empty ``key`` the prefix of all of one foreign key."""
    return _INT.pack(len(foreign_key)) + foreign_key + key


def after_prefix(prefix: bytes) -> bytes:
    """The smallest key above all that begin with ``prefix``, which has a byte below 255."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1])


def _write_subscription(s: Subscription) -> bytes:
    flags = SUBSCRIBED if s.hash is not None else SUBSCRIBED | NO_HASH
    return bytes((flags, s.instruction)) + (s.hash or b"") + s.key + _INT.pack(s.partition)


def _read_subscription(data: bytes) -> Subscription:
    start = 2 if data[0] & NO_HASH else 2 + HASH_BYTES
    known = len(data) >= start + _INT.size and data[1] in (DELETE_NO_PROPAGATE, PROPAGATE_NULL_IF_NO_FK)
    if not known or data[0] & _VERSION != SUBSCRIBED:
        raise SerdeError(
            f"{data!r:.60} is not a subscription of version 1; something else wrote to this topic or store"
        )
    hashed = None if data[0] & NO_HASH else data[2:start]
    return Subscription(hashed, data[1], data[start:-4], _INT.unpack(data[-4:])[0])


def _write_response(r: Response) -> bytes:
    flags = (0 if r.hash is not None else NO_HASH) | (EMPTY if r.value == b"" else 0)
    return bytes((flags,)) + (r.hash or b"") + (r.value or b"")


def _read_response(data: bytes) -> Response:
    flags = data[0]
    start = 1 if flags & NO_HASH else 1 + HASH_BYTES
    if flags & _VERSION or len(data) < start:
        raise SerdeError(f"{data!r:.60} is not a response of version 0; something else wrote to this topic")
    value = data[start:] if len(data) > start or flags & EMPTY else None
    return Response(None if flags & NO_HASH else data[1:start], value)


SUBSCRIPTION: Serde[Subscription] = Serde(
    "foreign-key-subscription", _write_subscription, _read_subscription, immutable=True, exact=Subscription
)
RESPONSE: Serde[Response] = Serde("foreign-key-response", _write_response, _read_response, immutable=True)


# -- columns -----------------------------------------------------------------------------------------------------------


def _written_subscriptions(flags: Any, lengths: Any, column: BytesColumn) -> Mask:
    known: Mask = ((flags == SUBSCRIBED) & (lengths >= 2 + HASH_BYTES + _INT.size)) | (
        (flags == SUBSCRIBED | NO_HASH) & (lengths >= 2 + _INT.size)
    )
    if not known.all():
        return known
    instructions = np.frombuffer(column.data, np.uint8)[column.offsets[:-1] + 1]
    known = (instructions == DELETE_NO_PROPAGATE) | (instructions == PROPAGATE_NULL_IF_NO_FK)
    return known


def _written_responses(flags: Any, lengths: Any, column: BytesColumn) -> Mask:
    heads = np.where(flags & NO_HASH, 1, 1 + HASH_BYTES)
    known: Mask = (flags & _VERSION == 0) & np.where(flags & EMPTY, lengths == heads, lengths >= heads)
    return known


_CHECKS: Mapping[Serde[Any], Callable[[Any, Any, BytesColumn], Mask]] = {
    SUBSCRIPTION: _written_subscriptions,
    RESPONSE: _written_responses,
}


def are_messages(serde: Serde[Any]) -> bool:
    """Whether it is the serde of messages."""
    return serde in _CHECKS


def all_written(column: BytesColumn, serde: Serde[Any]) -> bool:
    """Whether all values of a column, of which none may be null, are messages as ``serde`` writes them."""
    if column.nulls is not None and column.nulls.any():
        return False
    lengths = np.diff(column.offsets)
    if not len(lengths) or not lengths.all():
        return not len(lengths)
    flags = np.frombuffer(column.data, np.uint8)[column.offsets[:-1]]
    return bool(_CHECKS[serde](flags, lengths, column).all())


def left_key(subscription: bytes) -> bytes:
    """The left key's bytes of a subscription."""
    return subscription[2 if subscription[0] & NO_HASH else 2 + HASH_BYTES : -_INT.size]


def left_partition(subscription: bytes) -> int:
    """The left task's partition of a subscription."""
    partition: int = _INT.unpack(subscription[-_INT.size :])[0]
    return partition


def response_to(subscription: bytes, value: bytes | None) -> bytes:
    """The response to a subscription."""
    flags = (subscription[0] & NO_HASH) | (EMPTY if value == b"" else 0)
    hashed = b"" if flags & NO_HASH else subscription[2 : 2 + HASH_BYTES]
    return bytes((flags,)) + hashed + (value or b"")


def addressed(response: Response, partition: int) -> Response:
    """The response to a task."""
    return response._replace(partition=partition)


def answered_hash(response: bytes) -> bytes | None:
    """The hash of the left value that a response answers."""
    return None if response[0] & NO_HASH else response[1 : 1 + HASH_BYTES]


def answered_value(response: bytes) -> bytes | None:
    """The right value of a response."""
    value = response[1 if response[0] & NO_HASH else 1 + HASH_BYTES :]
    return value if value or response[0] & EMPTY else None
