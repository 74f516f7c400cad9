"""The types of expressions, and how they are derived from users' declarations.

| type | Python's value at run time | declared by |
| --- | --- | --- |
| int64 | ``int`` within 64 bits | ``int`` |
| float64 | ``float`` | ``float`` |
| bool | ``bool`` | ``bool`` |
| string | ``str`` | ``str``, string literals |
| bytes | ``bytes`` | ``bytes`` |
| timestamp | ``int``: milliseconds since 1970, UTC | ``datetime`` (floored to ms; without a zone: UTC), ``"timestamp"`` |
| decimal | ``decimal.Decimal`` | ``Decimal`` |
| list | ``list`` or ``tuple`` | ``list[X]``, ``tuple[X, ...]`` |
| struct | ``dict``, or an object with attributes | Struct, dataclass, NamedTuple, TypedDict, a dict of name → type |
| null | ``None`` | the literal ``None`` |
| unknown | any of these, checked at run time | ``Any``, ``dict`` and anything else not in this table |

``nullable`` types may also be ``None``. Every column of a null record is null, for any declared type.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from penstock.state.errors import TopologyError

TypeKind = Literal[
    "int64", "float64", "bool", "string", "bytes", "timestamp", "decimal", "list", "struct", "null", "unknown"
]


@dataclasses.dataclass(frozen=True)
class DataType:
    """A type. ``element`` is that of a list's elements, ``fields`` are a struct's, ``python`` is the class whose
    attributes they are (``None``: the items of a dict)."""

    kind: TypeKind
    nullable: bool = False
    element: DataType | None = None
    fields: tuple[tuple[str, DataType], ...] = ()
    python: type | None = None

    def or_null(self, nullable: bool = True) -> DataType:
        """The type, made nullable if ``nullable``."""
        return self if self.nullable or not nullable else dataclasses.replace(self, nullable=True)

    def not_null(self) -> DataType:
        """The type, not nullable."""
        return dataclasses.replace(self, nullable=False) if self.nullable else self

    def field(self, name: str) -> DataType | None:
        """The type of a struct's field, or ``None``."""
        return next((t for n, t in self.fields if n == name), None)

    def __str__(self) -> str:
        text: str = self.kind
        if self.element is not None:
            text = f"list[{self.element}]"
        elif self.fields:
            text = f"struct[{', '.join(f'{n}: {t}' for n, t in self.fields)}]"
        return f"{text}?" if self.nullable and self.kind not in ("null", "unknown") else text


INT64 = DataType("int64")
FLOAT64 = DataType("float64")
BOOL = DataType("bool")
STRING = DataType("string")
BYTES = DataType("bytes")
TIMESTAMP = DataType("timestamp")
DECIMAL = DataType("decimal")
NULL = DataType("null", nullable=True)
UNKNOWN = DataType("unknown", nullable=True)

SCALARS: dict[str, DataType] = {t.kind: t for t in (INT64, FLOAT64, BOOL, STRING, BYTES, TIMESTAMP, DECIMAL)}
"""Types that consist of a name only."""

_OF_PYTHON: dict[Any, DataType] = {
    int: INT64,
    float: FLOAT64,
    bool: BOOL,
    str: STRING,
    bytes: BYTES,
    datetime.datetime: TIMESTAMP,
    decimal.Decimal: DECIMAL,
    type(None): NULL,
    None: NULL,
    list: DataType("list", element=UNKNOWN),
    dict: UNKNOWN,
    Any: UNKNOWN,
}


def list_of(element: DataType) -> DataType:
    """The type of lists of this type."""
    return DataType("list", element=element)


def struct_of(fields: Mapping[str, DataType], python: type | None = None) -> DataType:
    """The type of structs with these fields."""
    return DataType("struct", fields=tuple(fields.items()), python=python)


def schema_of(like: Any) -> DataType:
    """The type that a user means by ``like``: a ``DataType``, a name (``"int64"``, ``"string?"`` for a nullable one), an
    annotation, a class with typed fields, or a dict of name → any of these. Anything without a type here is
    ``unknown``; an unknown name raises ``TopologyError``."""
    return _typed(like, ())


def _typed(like: Any, within: tuple[Any, ...]) -> DataType:
    if isinstance(like, DataType):
        return like
    if isinstance(like, str):
        return _named(like)
    if isinstance(like, Mapping):
        return struct_of({str(n): _typed(t, within) for n, t in like.items()})
    try:
        known = _OF_PYTHON.get(like)
    except TypeError:  # an annotation that cannot be hashed has no type here
        return UNKNOWN
    if known is not None:
        return known
    origin = typing.get_origin(like)
    if origin is not None:
        return _of_generic(like, origin, within)
    if isinstance(like, typing.NewType):
        return _typed(like.__supertype__, within)
    if isinstance(like, type) and like not in within:
        return _of_class(like, (*within, like))
    return UNKNOWN


def _named(text: str) -> DataType:
    name = text.removesuffix("?")
    if name == "unknown":
        return UNKNOWN
    if name not in SCALARS:
        raise TopologyError(
            f"unknown type {text!r}; use {', '.join(SCALARS)}, followed by ? if it may be null, or a Python type"
        )
    return SCALARS[name].or_null(text.endswith("?"))


def _of_generic(like: Any, origin: Any, within: tuple[Any, ...]) -> DataType:
    args = typing.get_args(like)
    if origin in (typing.Union, types.UnionType):
        members = [a for a in args if a is not type(None)]
        if len(members) == 1:
            return _typed(members[0], within).or_null(len(members) < len(args))
        return UNKNOWN
    if origin is Literal:
        kinds = {_OF_PYTHON.get(type(a), UNKNOWN) for a in args}
        plain = kinds - {NULL}
        return next(iter(plain)).or_null(NULL in kinds) if len(plain) == 1 else UNKNOWN
    if origin in (typing.Annotated, typing.Required, typing.NotRequired):
        return _typed(args[0], within).or_null(origin is typing.NotRequired)
    if origin is list or (origin is tuple and len(args) == 2 and args[1] is Ellipsis):
        return list_of(_typed(args[0], within))
    return UNKNOWN


def _of_class(tp: type, within: tuple[Any, ...]) -> DataType:
    """A class with declared fields; any other class is unknown."""
    is_typed_dict = typing.is_typeddict(tp)
    is_named_tuple = issubclass(tp, tuple) and hasattr(tp, "_fields")
    if not (is_typed_dict or is_named_tuple or issubclass(tp, msgspec.Struct) or dataclasses.is_dataclass(tp)):
        return UNKNOWN
    try:
        hints = typing.get_type_hints(tp, include_extras=True)
    except NameError as exc:
        raise TopologyError(
            f"the annotations of {tp.__name__} cannot be read ({exc}); define the names that they use at module level"
        ) from exc
    names = _field_names(tp, hints)
    fields = {n: _typed(hints.get(n, Any), within) for n in names}
    if is_typed_dict:
        optional: frozenset[str] = getattr(tp, "__optional_keys__", frozenset())
        return struct_of({n: t.or_null(n in optional) for n, t in fields.items()})
    return struct_of(fields, tp)


def _field_names(tp: type, hints: dict[str, Any]) -> list[str]:
    if issubclass(tp, msgspec.Struct):
        return list(tp.__struct_fields__)
    if dataclasses.is_dataclass(tp):
        return [f.name for f in dataclasses.fields(tp)]
    if issubclass(tp, tuple):
        return list(getattr(tp, "_fields", ()))
    return list(hints)


def is_number(tp: DataType) -> bool:
    """int64, float64 or decimal."""
    return tp.kind in ("int64", "float64", "decimal")


def common_type(a: DataType, b: DataType) -> DataType | None:
    """The common type of both: int64 widens to float64 and to decimal, null to anything, a timestamp
    meets an int64 as milliseconds; unknown stays unknown. ``None`` if there is none."""
    nullable = a.nullable or b.nullable
    if a.kind == b.kind:
        return _common_of_kind(a, b, nullable)
    if a.kind == "null":
        return b.or_null()
    if b.kind == "null":
        return a.or_null()
    if "unknown" in (a.kind, b.kind):
        return UNKNOWN
    wider = _WIDER.get(frozenset((a.kind, b.kind)))
    return None if wider is None else wider.or_null(nullable)


_WIDER: dict[frozenset[str], DataType] = {
    frozenset(("int64", "float64")): FLOAT64,
    frozenset(("int64", "decimal")): DECIMAL,
    frozenset(("int64", "timestamp")): TIMESTAMP,
}


def _common_of_kind(a: DataType, b: DataType, nullable: bool) -> DataType | None:
    if a.kind == "list":
        assert a.element is not None and b.element is not None
        element = common_type(a.element, b.element)
        kinds = {a.element.kind, b.element.kind} - {"null", "unknown"}
        return None if element is None or len(kinds) > 1 else list_of(element).or_null(nullable)
    if a.kind == "struct" and (a.fields, a.python) != (b.fields, b.python):
        return None
    return a.or_null(nullable)
