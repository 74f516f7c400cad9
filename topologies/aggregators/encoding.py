"""Serialize accumulators: deterministically, and equal after a round trip.

``PLAIN`` writes the values of JSON, and also bytes, integers of any size and ``Decimal``; equal values give equal
bytes (mappings are written in the order of their keys). Accumulators are flat tuples of such values, or bytes, so
that no code can change one in place.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from typing import Any, Final

import msgspec

from penstock.state.errors import SerdeError
from penstock.state.serdes.serde import INT, Serde, finite, serde_of, taking_dicts
from penstock.state.serdes.tuple_lists import BAG, LONG, NUMBER, TUPLE, TupleLists
from penstock.topologies.aggregators.bag import Bag
from penstock.topologies.aggregators.members_apart import DISTINCT_COUNT

_DECIMAL: Final = 1
_BIG: Final = 2
_INT64_MIN, _UINT64_MAX = -(1 << 63), (1 << 64) - 1
_ENCODER = msgspec.msgpack.Encoder(order="deterministic")


def _prepared(value: Any) -> Any:
    """Convert the value to msgpack's own types; raises ``TypeError`` for a type that would come back as another one."""
    kind = type(value)
    if kind is str or kind is float or kind is bool or value is None or kind is bytes:
        return value
    if kind is int:
        return value if _INT64_MIN <= value <= _UINT64_MAX else msgspec.msgpack.Ext(_BIG, str(value).encode())
    if kind is list or kind is tuple:
        return [_prepared(v) for v in value]
    if kind is dict:
        return {_prepared(k): _prepared(v) for k, v in value.items()}
    if kind is Decimal:
        return msgspec.msgpack.Ext(_DECIMAL, str(value).encode())
    raise TypeError(f"a {kind.__name__} is not a plain value; name the serde of its type: value=…")


def _extension(code: int, data: memoryview) -> Any:
    text = bytes(data).decode()
    if code == _DECIMAL:
        return Decimal(text)
    if code == _BIG:
        return int(text)
    raise ValueError(f"unknown extension {code}")


_DECODER: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(ext_hook=_extension)


def _plain(value: Any) -> bytes:
    if type(value) is str or (type(value) is int and _INT64_MIN <= value <= _UINT64_MAX):
        return _ENCODER.encode(value)
    return _ENCODER.encode(_prepared(value))


def _tuple(data: bytes) -> tuple[Any, ...]:
    return tuple(_DECODER.decode(data))


PLAIN: Serde[Any] = Serde("plain", _plain, _DECODER.decode)
"""Null, bool, int, float, str, bytes, Decimal, and lists (tuples come back as lists) and dicts of them."""

_OWN = frozenset({str, float, bool, type(None), bytes, int})
"""The scalars that msgpack writes, if integers have at most 64 bits."""
_SCALARS = _OWN | {Decimal}


def scalar(value: Any) -> Any:
    """Return the value if ``FLAT`` can write it as a member. Raises ``SerdeError`` for any other one."""
    if type(value) not in _SCALARS:
        raise SerdeError(
            f"{value!r:.100} is a {type(value).__name__}, which is not a plain scalar, so it cannot be kept as it is; "
            "name the serde: value=…"
        )
    return value


def _flat(value: tuple[Any, ...]) -> bytes:
    if _OWN.issuperset(map(type, value)):
        with suppress(OverflowError):
            return _ENCODER.encode(value)
    if not _SCALARS.issuperset(map(type, value)):
        tuple(map(scalar, value))
    return _plain(value)


FLAT: Serde[tuple[Any, ...]] = Serde("flat", _flat, _tuple, immutable=True, exact=tuple, lists=TupleLists(None))
"""A tuple of scalars that ``PLAIN`` can write. Stores keep tuples as they are and write them only at the commit, so
code that builds them from unknown values must pass each through ``scalar``."""


def _decimal_text(value: Decimal) -> bytes:
    if type(value) is not Decimal:
        raise TypeError(f"expected Decimal, got {type(value).__name__}")
    return str(value).encode()


def _read_decimal(data: bytes) -> Decimal:
    return Decimal(data.decode())


DECIMAL: Serde[Decimal] = Serde("decimal", _decimal_text, _read_decimal, immutable=True, exact=Decimal)
"""Decimals as text."""


INT_JSON: Serde[Any] = Serde("json", msgspec.json.Encoder().encode, msgspec.json.Decoder().decode)
"""JSON of results without floats."""

RESULT_JSON: Serde[Any] = finite(INT_JSON)
"""JSON that also takes integers of any size; Decimals are written as text, bytes as base64. Refuses inf and nan."""


def kept_serdes(value: Any) -> tuple[Serde[Any], Serde[Any]]:
    """The serdes of values that an aggregate keeps, and of results that are one of them. ``value``: names the first, or is
    ``None``, for plain values."""
    return (PLAIN, RESULT_JSON) if value is None else (taking_dicts(serde_of(value)), serde_of(value))


def packed(name: str, tp: Any) -> Serde[Any]:
    """The serde of accumulators of the tuple type ``tp`` (any that msgspec knows, of immutable members)."""
    decoder = msgspec.msgpack.Decoder(tp)
    return Serde(name, msgspec.msgpack.Encoder().encode, decoder.decode, immutable=True, exact=tuple)


_PAIRS = packed("bag", tuple[tuple[bytes, int], ...])
_NOTHING = _PAIRS.serialize(())
BAGS: Serde[Bag] = Serde(
    _PAIRS.name,
    lambda bag: _PAIRS.serialize(bag.pairs()) if bag else _NOTHING,
    lambda data: Bag(_PAIRS.deserialize(data)),
    immutable=True,
    exact=Bag,
)
"""Distinct values with their numbers."""

_PARTS: msgspec.msgpack.Decoder[tuple[bytes, ...]] = msgspec.msgpack.Decoder(tuple[bytes, ...])


def joined(serdes: tuple[Serde[Any], ...]) -> Serde[Any]:
    """The serde of tuples whose members have these serdes."""
    writers: tuple[Callable[[Any], bytes], ...] = tuple(s.serialize for s in serdes)
    readers: tuple[Callable[[bytes], Any], ...] = tuple(s.deserialize for s in serdes)

    def serialize(parts: tuple[Any, ...]) -> bytes:
        return msgspec.msgpack.encode([write(part) for write, part in zip(writers, parts, strict=True)])

    def deserialize(data: bytes) -> tuple[Any, ...]:
        return tuple(read(part) for read, part in zip(readers, _PARTS.decode(data), strict=True))

    name = f"({','.join(s.name for s in serdes)})"
    immutable = all(s.immutable for s in serdes)
    exact = tuple if all(s.exact is not None for s in serdes) else None
    return Serde(name, serialize, deserialize, immutable=immutable, exact=exact, lists=_lists_of(serdes))


_FORMS: Final[tuple[tuple[Serde[Any], bytes], ...]] = (
    (INT, LONG),
    (DISTINCT_COUNT, NUMBER),
    (FLAT, TUPLE),
    (BAGS, BAG),
)


def _lists_of(serdes: tuple[Serde[Any], ...]) -> TupleLists | None:
    """The writer and reader of whole lists of tuples of these parts; ``None``: there is a part of another kind."""
    forms = [form for serde in serdes for known, form in _FORMS if serde == known]
    return TupleLists(b"".join(forms)) if len(forms) == len(serdes) else None


def maybe(serde: Serde[Any]) -> Serde[Any]:
    """The serde of ``()`` and ``(value,)``."""

    def serialize(acc: tuple[Any, ...]) -> bytes:
        return b"\x01" + serde.serialize(acc[0]) if acc else b"\x00"

    def deserialize(data: bytes) -> tuple[Any, ...]:
        return (serde.deserialize(data[1:]),) if data[0] else ()

    return Serde(f"maybe({serde.name})", serialize, deserialize, immutable=serde.immutable)
