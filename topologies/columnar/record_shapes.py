"""Types whose records can be read field by field: their fields, those of objects within them, and why others cannot."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from inspect import getattr_static
from types import MemberDescriptorType
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect

from penstock.state.serdes.models import is_model
from penstock.topologies.operator_api.required_columns import FieldPath, path_of

_FIELDS_MAX = 64
_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1
_KINDS: dict[str, type] = {"str": str, "bytes": bytes, "int": int, "float": float, "bool": bool}
_OBJECTS = (inspect.StructType, inspect.DataclassType, inspect.TypedDictType)
# Of types without constraints; one with constraints is not equal to any.
_PLAIN: tuple[tuple[inspect.Type, str], ...] = (
    (inspect.StrType(), "str"),
    (inspect.IntType(), "int"),
    (inspect.FloatType(), "float"),
    (inspect.BoolType(), "bool"),
    (inspect.AnyType(), "any"),
)
PLAIN_AND_BYTES = (*_PLAIN, (inspect.BytesType(), "bytes"))
"""The kinds of fields, of forms that have bytes too."""


class FormPart(NamedTuple):
    """A field of an object: the text before its value, the value's kind (``str``, ``int``, ``bool``, ``object``), whether it
    may be null. ``inner``: of an object, its fields."""

    before: bytes
    kind: str
    nullable: bool
    inner: list[FormPart] | None = None


class FieldReader(NamedTuple):
    """A field of a type: its attribute, the key in a record, and the kind (``str``, ``int``, ``float``, ``bool``, ``bytes``,
    ``object``; ``any`` cannot be read apart). ``inner``: of an object, its fields."""

    name: str
    key: str
    kind: str
    nullable: bool
    required: bool
    default: Any
    inner: Shape | None = None

    def only(self, paths: Iterable[tuple[str, ...]]) -> FieldReader:
        """With only the fields at these paths within it. An empty path is the field itself."""
        return self if self.inner is None else self._replace(inner=self.inner.only(p for p in paths if p))


class Shape(NamedTuple):
    """The fields of a type. ``mapping``: its values are dicts."""

    fields: list[FieldReader]
    unknown_allowed: bool
    mapping: bool
    type: Any

    def only(self, paths: Iterable[tuple[str, ...]]) -> Shape:
        """With only the fields at these paths, and those above them."""
        below: dict[str, list[tuple[str, ...]]] = {}
        for path in paths:
            below.setdefault(path[0], []).append(path[1:])
        return self._replace(fields=[f.only(below[f.name]) for f in self.fields if f.name in below])


def why_not_projected(tp: Any, fields: Sequence[FieldPath]) -> str | None:
    """Why records of the type cannot be read into columns of these fields; ``None`` if they can."""
    found = shape_of(tp)
    return found if isinstance(found, str) else why_not_apart(found, fields)


def why_not_apart(shape: Shape, fields: Sequence[FieldPath]) -> str | None:
    """Why these fields cannot be read apart; ``None`` if they can."""
    return next((why for field in fields if (why := _why_not_at(shape, path_of(field))) is not None), None)


def _why_not_at(shape: Shape, path: tuple[str, ...]) -> str | None:
    at: Shape | None = shape
    for depth, name in enumerate(path):
        field = None if at is None else next((f for f in at.fields if f.name == name), None)
        if field is None:
            return f"it has no field {'.'.join(path[: depth + 1])}"
        if field.kind == "any":
            return f"its field {'.'.join(path[: depth + 1])} is of any type"
        at = field.inner
    return None


def written_form(tp: Any) -> list[FormPart] | None:
    """How an encoder writes objects of the type: all fields in order, and only numbers with a single notation.
    ``None``: not known."""
    shape = shape_of(tp)
    return None if isinstance(shape, str) else _form(shape)


def _form(shape: Shape) -> list[FormPart] | None:
    config = getattr(shape.type, "__struct_config__", None)
    if config is None or config.omit_defaults:
        return None
    found: list[FormPart] = []
    for field in shape.fields:
        inner = None if field.inner is None else _form(field.inner)
        if field.kind not in ("str", "int", "bool") and inner is None:
            return None
        before = (b"," if found else b"{") + msgspec.json.encode(field.key) + b":"
        found.append(FormPart(before, field.kind, field.nullable, inner))
    return found


def shape_of(tp: Any, plain: tuple[tuple[inspect.Type, str], ...] = _PLAIN, *, objects: bool = True) -> Shape | str:
    """The type's fields, or why it cannot be read by field. ``plain``: the kinds of fields that can; ``objects``: fields
    that are records of such a type can, too."""
    try:
        info = inspect.type_info(tp)
    except (TypeError, NameError) as exc:
        return f"its annotations cannot be read ({exc})"
    return _shape(info, plain, () if objects else None)


_Within = tuple[Any, ...] | None
"""The classes around a field, of which it must be none; ``None``: it must hold no object."""


def _shape(info: inspect.Type, plain: tuple[tuple[inspect.Type, str], ...], within: _Within) -> Shape | str:
    if isinstance(info, inspect.StructType):
        if info.array_like or info.tag is not None or info.tag_field is not None:
            return "its JSON is an array, or has a tag"
        if hasattr(info.cls, "__post_init__"):
            return "it has a __post_init__, which must run for each record"
        unknown_allowed = not info.forbid_unknown_fields
    elif isinstance(info, inspect.DataclassType):
        why = _why_not_read(info)
        if why is not None:
            return why
        unknown_allowed = True
    elif isinstance(info, inspect.TypedDictType):
        unknown_allowed = True
    else:
        return "it is neither a msgspec Struct nor a dataclass nor a TypedDict"
    if not 1 <= len(info.fields) <= _FIELDS_MAX:
        return f"it has {len(info.fields)} fields, not 1 to {_FIELDS_MAX}"
    fields: list[FieldReader] = []
    for field in info.fields:
        found = _field(field, plain, None if within is None else (*within, info.cls))
        if isinstance(found, str):
            return f"its field {field.name} {found}"
        fields.append(found)
    return Shape(fields, unknown_allowed, isinstance(info, inspect.TypedDictType), info.cls)


def _why_not_read(info: inspect.DataclassType) -> str | None:
    """Why an instance's attributes may differ from the decoded fields."""
    cls = info.cls
    if is_model(cls):
        return "it is pydantic's, whose validators must run"
    if not dataclasses.is_dataclass(cls):
        return "it is an attrs class, whose validators must run"
    if hasattr(cls, "__post_init__"):
        return "it has a __post_init__, which must run for each record"
    if cls.__getattribute__ is not object.__getattribute__ or hasattr(cls, "__getattr__"):
        return "it customizes attribute access"
    if cls.__new__ is not object.__new__:
        return "it has a __new__, which must run for each record"
    for field in info.fields:
        held = getattr_static(cls, field.name, msgspec.NODEFAULT)
        if held is not field.default and not isinstance(held, MemberDescriptorType):
            return f"its attribute {field.name} is not a plain field"
    return None


def _field(field: inspect.Field, known: tuple[tuple[inspect.Type, str], ...], within: _Within) -> FieldReader | str:
    """The field, or what is wrong with it."""
    parts = field.type.types if isinstance(field.type, inspect.UnionType) else (field.type,)
    plain = [t for t in parts if not isinstance(t, inspect.NoneType)]
    inner: Shape | None = None
    if within is not None and len(plain) == 1 and isinstance(plain[0], _OBJECTS):
        found = "its type holds itself" if plain[0].cls in within else _shape(plain[0], known, within)
        if isinstance(found, str):
            return f"is an object that cannot be read by field: {found}"
        kind: str | None = "object"
        inner = found
    else:
        kind = next((name for tp, name in known if plain == [tp]), None)
    if kind is None:
        return "is not a plain string, number or boolean"
    if field.default_factory is not msgspec.NODEFAULT:
        return "has a default_factory"
    if not field.required and field.default is msgspec.NODEFAULT:
        return "may be missing and has no default"
    default = None if field.required else field.default
    if kind != "any" and default is not None and type(default) is not _KINDS.get(kind):
        return "has a default of another type"
    if kind == "int" and default is not None and not _INT64_MIN <= default <= _INT64_MAX:
        return "has a default of more than 64 bits"
    nullable = len(plain) < len(parts)
    return FieldReader(
        field.name, field.encode_name, kind, nullable, field.required, None if kind == "any" else default, inner
    )
