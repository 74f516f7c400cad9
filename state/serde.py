"""Serdes: values of Python to bytes of the log and back.

A serde never sees null: ``None`` is the log's null and stays null. ``immutable`` says that what ``deserialize`` returns
cannot be changed in place, so that a store may keep the object instead of its bytes. ``exact`` is the type whose
instances come back equal from a round trip; a store keeps objects of any other type as the round trip makes them.
``declared`` is what the values are, where more is known than ``exact`` says: a class with typed fields, or a schema that
expressions are typed against. ``unchecked``, of JSON that refuses inf and nan, is the encoder that writes them as null.
The byte formats of ``STRING``, ``INT`` (long), ``INT32``, ``FLOAT`` (double) and ``BYTES`` are those of Kafka's Java serdes.

Every failure is a ``SerdeError``.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

import msgspec
import orjson

from penstock.state.errors import SerdeError

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class Serde(Generic[T]):
    """A pair of functions with a stable name (the name is part of a topology's description)."""

    name: str
    serialize: Callable[[T], bytes]
    deserialize: Callable[[bytes], T]
    immutable: bool = False
    exact: type | None = None
    declared: Any = dataclasses.field(default=None, compare=False)
    unchecked: Callable[[T], bytes] | None = dataclasses.field(default=None, compare=False)

    def serialize_all(self, values: Sequence[T | None]) -> list[bytes | None]:
        """Serialize a column, nulls kept. Raises ``SerdeError`` with the place of the first bad value."""
        out: list[bytes | None] = []
        fn = self.serialize
        try:
            if None in values:
                out.extend(None if v is None else fn(v) for v in values)
            else:
                out.extend(map(fn, values))  # type: ignore[arg-type]  # no nulls here
        except Exception as exc:
            bad = values[len(out)]
            raise SerdeError(
                f"serde {self.name} cannot write {type(bad).__name__} {bad!r:.100} (place {len(out)} of the column): "
                f"{exc}; give the operator or the topic the serde of this type"
            ) from exc
        return out


def _identity(data: bytes) -> bytes:
    return data


def _check_bytes(value: bytes) -> bytes:
    if type(value) is not bytes:
        raise TypeError(f"expected bytes, got {type(value).__name__}")
    return value


_LONG = struct.Struct(">q")
_INT = struct.Struct(">i")
_DOUBLE = struct.Struct(">d")


def _unpacker(layout: struct.Struct) -> Callable[[bytes], Any]:
    unpack = layout.unpack

    def deserialize(data: bytes) -> Any:
        return unpack(data)[0]

    return deserialize


BYTES: Serde[bytes] = Serde("bytes", _check_bytes, _identity, immutable=True, exact=bytes)
STRING: Serde[str] = Serde("string", str.encode, bytes.decode, immutable=True, exact=str)
INT: Serde[int] = Serde("int", _LONG.pack, _unpacker(_LONG), immutable=True, exact=int)
INT32: Serde[int] = Serde("int32", _INT.pack, _unpacker(_INT), immutable=True, exact=int)
FLOAT: Serde[float] = Serde("float", _DOUBLE.pack, _unpacker(_DOUBLE), immutable=True, exact=float)
JSON: Serde[Any] = Serde("json", orjson.dumps, orjson.loads)


def finite(json: Serde[Any]) -> Serde[Any]:
    """The same serde of JSON, which refuses to write inf and nan: JSON has neither, and encoders write both as null."""
    return dataclasses.replace(json, serialize=_refusing(json.serialize), unchecked=json.serialize)


@functools.cache
def _refusing(encode: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """The same encoder for equal ones, so that their serdes are equal."""

    def write(value: Any) -> bytes:
        data = encode(value)
        # 100 ns a record, and 50 for each field of one with a null; find is faster than the operator in
        if data.find(b"null") >= 0:
            check_finite(value)
        return data

    return write


def check_finite(value: Any) -> None:
    """Raises ``SerdeError`` if there is inf or nan in a value of JSON."""
    if type(value) is dict:
        for part in value.values():
            if type(part) not in _NO_FLOATS and (type(part) is not float or not math.isfinite(part)):
                break
        else:
            return
    found = _not_finite(value, "")
    if found is not None:
        raise SerdeError(
            f"JSON has no inf and no nan, and there is {found}; keep such numbers out of it, by a filter or a cast to "
            "decimal, or choose the policy skip or dead_letter"
        )


_NO_FLOATS = frozenset((str, int, bool, type(None)))


def _not_finite(value: Any, path: str) -> str | None:
    """The first number in a value that is inf or nan, and where it is."""
    if isinstance(value, float):
        return None if math.isfinite(value) else f"{value} at {path or 'the top'}"
    parts: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, dict):
        parts = value.items()
    elif isinstance(value, (list, tuple, set, frozenset)):
        parts = enumerate(value)
    elif isinstance(value, msgspec.Struct):
        parts = ((n, getattr(value, n)) for n in value.__struct_fields__)
    elif dataclasses.is_dataclass(value):
        parts = ((f.name, getattr(value, f.name)) for f in dataclasses.fields(value))
    return next((found for n, part in parts if (found := _not_finite(part, f"{path}.{n}")) is not None), None)


def _is_frozen(tp: Any) -> bool:
    """A frozen Struct or dataclass whose fields are all plain immutable values."""
    plain = {int, float, str, bytes, bool, type(None)}
    if isinstance(tp, type) and issubclass(tp, msgspec.Struct):
        frozen = tp.__struct_config__.frozen
    elif isinstance(tp, type) and dataclasses.is_dataclass(tp):
        frozen = tp.__dataclass_params__.frozen  # type: ignore[attr-defined]  # dataclasses keep it there, stubs do not say so
    else:
        return tp in plain
    return frozen and all(_plain_annotation(t, plain) for t in _field_types(tp))


def _field_types(tp: type) -> list[Any]:
    import typing

    return list(typing.get_type_hints(tp).values())


def _plain_annotation(annotation: Any, plain: set[type]) -> bool:
    import typing

    args = typing.get_args(annotation)
    return annotation in plain or (bool(args) and all(a in plain for a in args))


def typed_json(tp: type[T]) -> Serde[T]:
    """JSON of a msgspec Struct, a dataclass or any other type that msgspec knows, checked against the type.

    Fields that the type does not name are skipped without being built, so a narrow type is also the fast one.
    """
    name = getattr(tp, "__name__", str(tp))
    decoder = msgspec.json.Decoder(tp)
    encoder = msgspec.json.Encoder()
    return Serde(f"json:{name}", encoder.encode, decoder.decode, immutable=_is_frozen(tp), declared=tp)


_typed_json_once = functools.cache(typed_json)
"""So that sources which mean the same type are seen to be the same."""


def optional(inner: Serde[Any]) -> Serde[tuple[Any]]:
    """The serde of ``(value,)`` and ``(None,)``: where a null is a value of its own and not an absence. One byte, 1 or 0,
    before the value's."""
    write, read = inner.serialize, inner.deserialize

    def serialize(boxed: tuple[Any]) -> bytes:
        return b"\x00" if boxed[0] is None else b"\x01" + write(boxed[0])

    def deserialize(data: bytes) -> tuple[Any]:
        return (None,) if data[0] == 0 else (read(data[1:]),)

    return Serde(f"optional({inner.name})", serialize, deserialize, immutable=inner.immutable)


def serde_of(like: Any) -> Serde[Any]:
    """The serde that a user means by ``like``: a ``Serde``, a type (``str``, ``int``, ``float``, ``bytes``, ``dict``,
    ``list``, a Struct, a dataclass) or a name (``"string"``, ``"json"``…). Raises ``SerdeError`` for anything else."""
    if isinstance(like, Serde):
        return like
    simple: dict[Any, Serde[Any]] = {str: STRING, int: INT, float: FLOAT, bytes: BYTES, dict: JSON, list: JSON}
    if like in simple:
        return simple[like]
    named: tuple[Serde[Any], ...] = (BYTES, STRING, INT, INT32, FLOAT, JSON)
    names = {s.name: s for s in named}
    if isinstance(like, str) and like in names:
        return names[like]
    if isinstance(like, type) and (issubclass(like, msgspec.Struct) or dataclasses.is_dataclass(like)):
        return _typed_json_once(like)
    raise SerdeError(
        f"no serde is known for {like!r}; pass a Serde, one of {sorted(names)}, "
        "or a type among str, int, float, bytes, dict, list, a msgspec Struct or a dataclass"
    )
