"""Serdes: convert Python values to the bytes of the log and back.

A serde never sees null: ``None`` is the log's null and stays null. ``immutable`` says that what ``deserialize`` returns
cannot be changed in place, so that a store may keep the object instead of its bytes. ``exact`` is the type whose
instances come back equal from a round trip; a store keeps objects of other types as the round trip returns them.
``declared`` is the type of the values, if more is known than ``exact`` says: a class with typed fields, or a schema
that expressions are typed against. ``writes``: ``serialize`` accepts only instances of these classes, and ``unchecked``
writes them without a check. ``nulling``: for JSON that refuses inf and nan, the encoder that writes them as null.
``lists``: writes and reads whole lists, with the same answers. The byte formats of ``STRING``, ``INT`` (long), ``INT32``,
``FLOAT`` (double) and ``BYTES`` are those of Kafka's Java serdes.

Every failure is a ``SerdeError``.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import struct
import types
import typing
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, Literal, TypeAlias

import msgspec
import orjson

from penstock.state.errors import SerdeError
from penstock.state.serdes.models import ModelCoder, has_model
from penstock.state.serdes.record_classes import check_records, field_names, is_attrs, record_class
from penstock.state.serdes.tuple_lists import WholeLists
from penstock.state.type_parameters import T


@dataclasses.dataclass(frozen=True, slots=True)
class Serde(Generic[T]):
    """A pair of functions with a stable name, which is part of a topology's description."""

    name: str
    serialize: Callable[[T], bytes]
    deserialize: Callable[[bytes], T]
    immutable: bool = False
    exact: type | None = None
    declared: Any = dataclasses.field(default=None, compare=False)
    writes: tuple[type, ...] = dataclasses.field(default=(), compare=False)
    unchecked: Callable[[T], bytes] | None = dataclasses.field(default=None, compare=False)
    nulling: Callable[[T], bytes] | None = dataclasses.field(default=None, compare=False)
    lists: WholeLists | None = dataclasses.field(default=None, compare=False)

    @property
    def encoder(self) -> Callable[[T], bytes]:
        """``serialize`` without a check, for values of the right type."""
        return self.serialize if self.unchecked is None else self.unchecked

    def serialize_all(self, values: Sequence[T | None]) -> list[bytes | None]:
        """Serialize a column and keep nulls. Raises ``SerdeError`` that shows the first bad value."""
        if self.lists is not None and isinstance(values, list) and (whole := self.lists.write(values)) is not None:
            return whole
        out: list[bytes | None] = []
        fn = self.encoder if self._all_instances(values) else self.serialize
        try:
            if None in values:
                out.extend(None if v is None else fn(v) for v in values)
            else:
                out.extend(map(fn, values))  # type: ignore[arg-type]  # no nulls here
        except Exception as exc:
            bad = values[len(out)]
            if isinstance(exc, SerdeError):
                raise
            why = str(exc) if self.exact is None or isinstance(bad, self.exact) else f"it writes {self.exact.__name__}"
            raise SerdeError(
                f"serde {self.name} cannot write {type(bad).__name__} {bad!r:.100}: "
                f"{why}; give the operator or the topic the serde of this type"
            ) from exc
        return out

    def deserialize_all(self, column: list[bytes | None]) -> list[T | None]:
        """Deserialize a column and keep nulls. Raises what ``deserialize`` raises for the first bytes that it cannot
        read."""
        if self.lists is not None and (whole := self.lists.read(column)) is not None:
            return whole
        read = self.deserialize
        if None in column:
            return [None if data is None else read(data) for data in column]
        return list(map(read, column))  # type: ignore[arg-type]  # no nulls here

    def _all_instances(self, values: Sequence[Any]) -> bool:
        """Whether all values but nulls are instances of ``writes``, checked once per type that occurs."""
        if not self.writes:
            return True
        kinds = set(map(type, values))
        kinds.discard(type(None))
        return all(issubclass(kind, self.writes) for kind in kinds)


def _identity(data: bytes) -> bytes:
    return data


def _nothing(value: Any) -> bytes:
    return b""


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
PRESENCE: Serde[Any] = Serde("presence", _nothing, _identity, immutable=True)
"""Writes any value as no bytes, where all that counts is that there is one."""
STRING: Serde[str] = Serde("string", str.encode, bytes.decode, immutable=True, exact=str)
INT: Serde[int] = Serde("int", _LONG.pack, _unpacker(_LONG), immutable=True, exact=int)
INT32: Serde[int] = Serde("int32", _INT.pack, _unpacker(_INT), immutable=True, exact=int)
FLOAT: Serde[float] = Serde("float", _DOUBLE.pack, _unpacker(_DOUBLE), immutable=True, exact=float)
JSON: Serde[Any] = Serde("json", orjson.dumps, orjson.loads)
MSGPACK: Serde[Any] = Serde("msgpack", msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder().decode)
"""MessagePack of any value; tuples come back as lists."""


def finite(json: Serde[Any]) -> Serde[Any]:
    """A JSON serde that refuses to write inf and nan: JSON has neither, and encoders write both as null."""
    return dataclasses.replace(json, serialize=_refusing(json.serialize), unchecked=None, nulling=json.serialize)


@functools.cache
def _refusing(encode: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """One shared encoder for equal encoders, so that their serdes are equal."""

    def write(value: Any) -> bytes:
        data = encode(value)
        # find is faster than the operator in
        if data.find(b"null") >= 0:
            check_finite(value)
        return data

    return write


def check_finite(value: Any) -> None:
    """Raise ``SerdeError`` if a JSON value contains inf or nan."""
    if type(value) is dict:
        for part in value.values():
            if type(part) not in _NO_FLOATS and (type(part) is not float or not math.isfinite(part)):
                break
        else:
            return
    found = _not_finite(value, "")
    if found is not None:
        raise SerdeError(
            f"JSON has no inf and no nan, but there is {found}; keep such numbers out, by a filter or a cast to "
            "decimal, or choose the policy skip or dead_letter"
        )


_NO_FLOATS = frozenset((str, int, bool, type(None)))


def _not_finite(value: Any, path: str) -> str | None:
    """The first inf or nan in a value, and where it is."""
    if isinstance(value, float):
        return None if math.isfinite(value) else f"{value} at {path or 'the top'}"
    parts: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, dict):
        parts = value.items()
    elif isinstance(value, (list, tuple, set, frozenset)):
        parts = enumerate(value)
    elif (names := field_names(type(value))) is not None:
        parts = ((n, getattr(value, n)) for n in names)
    return next((found for n, part in parts if (found := _not_finite(part, f"{path}.{n}")) is not None), None)


_PLAIN = frozenset({int, float, str, bytes, bool, type(None)})
_HOLDERS = frozenset({typing.Union, types.UnionType, tuple, frozenset})
"""Generic types that are immutable if their arguments are."""


def is_immutable(tp: Any, within: frozenset[Any] = frozenset()) -> bool:
    """Whether all values of the type are deeply immutable: scalars, tuples and frozensets of such types, unions of
    them, and frozen Structs and dataclasses with such fields. ``within``: classes under inspection, which a field of
    theirs may name again."""
    if tp in _PLAIN or tp in within:
        return True
    if typing.get_origin(tp) in _HOLDERS:
        return all(a is Ellipsis or is_immutable(a, within) for a in typing.get_args(tp))
    if not isinstance(tp, type):
        return False
    if issubclass(tp, msgspec.Struct):
        frozen, fields = tp.__struct_config__.frozen, tp.__struct_fields__
    elif dataclasses.is_dataclass(tp):
        frozen = tp.__dataclass_params__.frozen  # type: ignore[attr-defined]  # dataclasses keep it there, stubs do not say so
        fields = tuple(f.name for f in dataclasses.fields(tp))
    else:
        return False
    if not frozen:
        return False
    hints = typing.get_type_hints(tp)
    return all(is_immutable(hints[name], within | {tp}) for name in fields)


_CODERS: dict[str, tuple[Callable[..., Any], Callable[[Any], Any]]] = {
    "json": (msgspec.json.Encoder, msgspec.json.Decoder),
    "msgpack": (msgspec.msgpack.Encoder, msgspec.msgpack.Decoder),
}


def typed_json(tp: type[T]) -> Serde[T]:
    """A JSON serde of a msgspec Struct, a dataclass, an attrs class, a pydantic model or any other type that msgspec knows,
    checked against the type.

    A serde of a class with fields writes only its instances. Reading skips fields that the type does
    not name without building them, so a narrow type is also fast. The fields of an attrs class are written in alphabetical
    order. Raises ``SerdeError`` for an attrs class with a converter or with an attribute that begins with an underscore: its
    instances would not come back as they were. So it does for a pydantic model with private attributes, with ``exclude``, or
    with different names for reading and writing. Models are read and written by pydantic, under their aliases and without
    computed fields.
    """
    return _typed("json", tp)


def typed_msgpack(tp: type[T]) -> Serde[T]:
    """A MessagePack serde of a type, checked against it as that of ``typed_json``. Records are maps from field to value."""
    return _typed("msgpack", tp)


def _typed(form: str, tp: type[T]) -> Serde[T]:
    check_records(tp)
    cls = record_class(tp)
    return _coded(form, tp, () if cls is None else (cls,))


def _coded(form: str, tp: type[T], writes: tuple[type, ...]) -> Serde[T]:
    name = f"{form}:{getattr(tp, '__name__', str(tp))}"
    if has_model(tp):
        coder = ModelCoder(form, tp)
        return _checked(name, coder.encode_fields if dict in writes else coder.encode, coder.decode, tp, writes)
    make_encoder, make_decoder = _CODERS[form]
    # msgspec writes the fields of an attrs class in an order of its own, and dicts must give the same bytes
    order = "sorted" if writes and is_attrs(writes[0]) else None
    encode, decode = make_encoder(order=order).encode, make_decoder(tp).decode
    return _checked(name, encode, decode, tp, writes)


def _checked(
    name: str, encode: Callable[[T], bytes], decode: Callable[[bytes], T], tp: Any, writes: tuple[type, ...]
) -> Serde[T]:
    """A serde that writes only instances of ``writes``, where that names classes."""
    immutable = is_immutable(tp)
    if not writes:
        return Serde(name, encode, decode, immutable=immutable, declared=tp)

    def serialize(value: T) -> bytes:
        if not isinstance(value, writes):
            raise SerdeError(
                f"serde {name} writes instances of {writes[0].__name__}, and {value!r:.100} is a "
                f"{type(value).__name__}; name the serde of the function's result: value=…"
            )
        data: bytes = encode(value)
        return data

    return Serde(name, serialize, decode, immutable=immutable, declared=tp, writes=writes, unchecked=encode)


@functools.cache
def _of_dicts(form: str, tp: type[Any], cls: type) -> Serde[Any]:
    return _coded(form, tp, (cls, dict))


def taking_dicts(serde: Serde[Any]) -> Serde[Any]:
    """The serde, which also writes dicts of fields if it is for one class only: for records that the framework builds
    from columns."""
    encoder = getattr(serde.unchecked, "__self__", None)
    form = next((f for f, (make_encoder, _) in _CODERS.items() if type(encoder) is make_encoder), None)
    if isinstance(encoder, ModelCoder):
        form = encoder.form
    return serde if len(serde.writes) != 1 or form is None else _of_dicts(form, serde.declared, serde.writes[0])


_typed_json_once: Callable[[Any], Serde[Any]] = functools.cache(typed_json)
"""One serde per type, so that sources of equal type compare equal."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OptionalSerde(Serde[tuple[Any]]):
    """The serde that ``optional(inner)`` returns."""

    inner: Serde[Any]


def optional(inner: Serde[Any]) -> OptionalSerde:
    """The serde of ``(value,)`` and ``(None,)``, for a null that is a value and not an absence. Writes one byte, 1 or
    0, before the value's bytes."""
    write, read = inner.serialize, inner.deserialize

    def serialize(boxed: tuple[Any]) -> bytes:
        return b"\x00" if boxed[0] is None else b"\x01" + write(boxed[0])

    def deserialize(data: bytes) -> tuple[Any]:
        if not data:
            raise SerdeError(
                f"optional({inner.name}) must begin with a byte 0 or 1, but there are no bytes; check what wrote it"
            )
        return (None,) if data[0] == 0 else (read(data[1:]),)

    return OptionalSerde(
        name=f"optional({inner.name})",
        serialize=serialize,
        deserialize=deserialize,
        immutable=inner.immutable,
        inner=inner,
    )


SerdeName: TypeAlias = Literal["bytes", "string", "int", "int32", "float", "json", "msgpack"]
SerdeLike: TypeAlias = type[T] | Serde[T] | SerdeName
"""A serde as the user may give it: a ``Serde``, the type of the values, or the name of a serde."""


def serde_of(like: SerdeLike[T]) -> Serde[T]:
    """The serde that a user means by ``like``: a ``Serde``, a type (``str``, ``int``, ``float``, ``bytes``, ``dict``,
    ``list``, a Struct, a dataclass, an attrs class, a pydantic model) or a name (``"string"``, ``"json"``,
    ``"msgpack"``…). Raises ``SerdeError`` for anything else."""
    if isinstance(like, Serde):
        return like
    simple: dict[Any, Serde[Any]] = {str: STRING, int: INT, float: FLOAT, bytes: BYTES, dict: JSON, list: JSON}
    if like in simple:
        return simple[like]
    named: tuple[Serde[Any], ...] = (BYTES, STRING, INT, INT32, FLOAT, JSON, MSGPACK)
    names = {s.name: s for s in named}
    if isinstance(like, str) and like in names:
        return names[like]
    if isinstance(like, type) and record_class(like) is not None:
        return _typed_json_once(like)
    raise SerdeError(
        f"no serde for {like!r}; pass a Serde, one of {sorted(names)}, "
        "or a type among str, int, float, bytes, dict, list, a msgspec Struct, a dataclass, an attrs class or a pydantic "
        "model"
    )
