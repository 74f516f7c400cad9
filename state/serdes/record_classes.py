"""Which classes are records: msgspec Structs, dataclasses, attrs classes and pydantic models. attrs is never imported: its
classes are known by what it leaves on them.
"""

from __future__ import annotations

import dataclasses
import typing
from typing import Any

import msgspec

from penstock.state.errors import SerdeError
from penstock.state.serdes.models import check_model, is_model, model_fields


def record_class(tp: Any) -> type | None:
    """The class of the instances of a record type; ``None`` for any other type."""
    cls = typing.get_origin(tp) or tp
    if not isinstance(cls, type):
        return None
    known = issubclass(cls, msgspec.Struct) or dataclasses.is_dataclass(cls) or is_attrs(cls) or is_model(cls)
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
    if is_model(cls):
        return tuple(model_fields(cls))
    return tuple(a.name for a in cls.__attrs_attrs__) if is_attrs(cls) else None  # type: ignore[attr-defined]  # attrs keeps them there


def check_records(tp: Any) -> None:
    """Raise ``SerdeError`` if an instance of a class that is in the type would not come back as it was. Of attrs classes,
    reading runs validators, but no converter, and attributes that begin with an underscore are not written. For models
    see ``check_model``; they may be held by models alone, since no other class is read by pydantic."""
    _check(tp, set(), None)


def _check(tp: Any, seen: set[Any], holder: type | None) -> None:
    for part in typing.get_args(tp):
        _check(part, seen, holder)
    cls = record_class(tp)
    if cls is None:
        return
    if holder is not None and is_model(cls) and not is_model(holder):
        raise SerdeError(
            f"{cls.__name__} is a pydantic model within {holder.__name__}, which is none; make {holder.__name__} one, too"
        )
    if cls in seen:
        return
    seen.add(cls)
    if is_model(cls):
        check_model(cls)
        for field in model_fields(cls).values():
            _check(field.annotation, seen, cls)
        return
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
        _check(hint, seen, cls)
