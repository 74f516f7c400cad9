"""Which classes are records: msgspec Structs, dataclasses and attrs classes. attrs is never imported: its
classes are known by what it leaves on them.
"""

from __future__ import annotations

import dataclasses
import typing
from typing import Any

import msgspec

from penstock.state.errors import SerdeError


def record_class(tp: Any) -> type | None:
    """The class of the instances of a record type; ``None`` for any other type."""
    cls = typing.get_origin(tp) or tp
    if not isinstance(cls, type):
        return None
    known = issubclass(cls, msgspec.Struct) or dataclasses.is_dataclass(cls) or is_attrs(cls)
    return cls if known else None


def is_attrs(cls: type) -> bool:
    """Whether it is an attrs class."""
    return hasattr(cls, "__attrs_attrs__")


def field_names(cls: type) -> tuple[str, ...] | None:
    """The fields of a record class; ``None`` for any other class."""
    if issubclass(cls, msgspec.Struct):
        return cls.__struct_fields__
    if dataclasses.is_dataclass(cls):
        return tuple(f.name for f in dataclasses.fields(cls))
    return tuple(a.name for a in cls.__attrs_attrs__) if is_attrs(cls) else None  # type: ignore[attr-defined]  # attrs keeps them there


def check_attrs(tp: Any) -> None:
    """Raise ``SerdeError`` if an instance of an attrs class that is in the type would not come back as it was: reading
    runs validators, but no converter, and attributes that begin with an underscore are not written."""
    _check(tp, set())


def _check(tp: Any, seen: set[Any]) -> None:
    for part in typing.get_args(tp):
        _check(part, seen)
    cls = record_class(tp)
    if cls is None or cls in seen:
        return
    seen.add(cls)
    for attribute in getattr(cls, "__attrs_attrs__", ()):
        if attribute.converter is not None:
            raise SerdeError(
                f"{cls.__name__}.{attribute.name} has a converter, which does not run when records are read; convert in "
                "__attrs_post_init__, or give a Serde of your own"
            )
        if attribute.name.startswith("_"):
            raise SerdeError(
                f"{cls.__name__}.{attribute.name} begins with an underscore, and such attributes are not written; give it "
                "another name, or give a Serde of your own"
            )
    try:
        hints = typing.get_type_hints(cls)
    except NameError:
        return  # msgspec says which name is unknown
    for hint in hints.values():
        _check(hint, seen)
