"""Python types as Arrow types, and objects of them as Arrow arrays.

A field that Arrow has no type for (``Any``, a union, a type that contains itself) becomes its JSON, as a string.
"""

from __future__ import annotations

import dataclasses
import datetime
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from penstock.state.serdes.models import is_model, model_fields, plain

TIMESTAMP = pa.timestamp("us", tz="UTC")
"""The Arrow type of Spark's timestamps."""
_SIMPLE: dict[Any, pa.DataType] = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    bytes: pa.binary(),
    datetime.date: pa.date32(),
}
_LISTS = (list, set, frozenset, Sequence)
_MAPS = (dict, Mapping)


@dataclasses.dataclass(frozen=True)
class Typed:
    """An Arrow type, and how to convert objects (``None``: null) to an array of it."""

    type: pa.DataType
    build: Callable[[list[Any]], pa.Array]


def typed(tp: Any, within: frozenset[Any] = frozenset()) -> Typed:
    """The Arrow form of a Python type. ``within``: the classes under inspection."""
    if tp in _SIMPLE:
        return _plain(_SIMPLE[tp])
    if tp is datetime.datetime:
        return Typed(TIMESTAMP, lambda objects: pa.array([_utc(o) for o in objects], TIMESTAMP))
    origin, args = typing.get_origin(tp), typing.get_args(tp)
    if origin is typing.Annotated:
        return typed(args[0], within)
    if origin in (typing.Union, types.UnionType):
        others = [a for a in args if a is not type(None)]
        return typed(others[0], within) if len(others) == 1 else _JSON
    if origin in _LISTS or (origin is tuple and len(args) == 2 and args[1] is Ellipsis):
        return _list(typed(args[0], within))
    if origin in _MAPS and args[0] is str:
        return _map(typed(args[1], within))
    fields = fields_of(tp)
    if fields is None or tp in within:
        return _JSON
    return _struct({name: typed(inner, within | {tp}) for name, inner in fields.items()})


def fields_of(tp: Any) -> dict[str, Any] | None:
    """The fields of a Struct, a dataclass or a pydantic model with their types; ``None`` for anything else."""
    if not isinstance(tp, type):
        return None
    if issubclass(tp, msgspec.Struct):
        names: Sequence[str] = tp.__struct_fields__
    elif dataclasses.is_dataclass(tp):
        names = [f.name for f in dataclasses.fields(tp)]
    elif is_model(tp):
        return {name: field.annotation for name, field in model_fields(tp).items()}
    else:
        return None
    hints = typing.get_type_hints(tp)
    return {name: hints[name] for name in names}


def _plain(kind: pa.DataType) -> Typed:
    return Typed(kind, lambda objects: pa.array(objects, kind))


def _utc(at: datetime.datetime | None) -> datetime.datetime | None:
    return at.replace(tzinfo=datetime.UTC) if at is not None and at.tzinfo is None else at


def _json(objects: list[Any]) -> pa.Array:
    return pa.array(
        [None if o is None else msgspec.json.encode(o, enc_hook=plain).decode() for o in objects], pa.string()
    )


_JSON = Typed(pa.string(), _json)


def _list(inner: Typed) -> Typed:
    kind = pa.list_(inner.type)

    def build(objects: list[Any]) -> pa.Array:
        ends = _ends(objects)
        return pa.ListArray.from_arrays(ends, inner.build([x for o in objects if o is not None for x in o]), type=kind)

    return Typed(kind, build)


def _map(inner: Typed) -> Typed:
    kind = pa.map_(pa.string(), inner.type)

    def build(objects: list[Any]) -> pa.Array:
        there = [o for o in objects if o is not None]
        keys = pa.array([k for o in there for k in o], pa.string())
        return pa.MapArray.from_arrays(
            _ends(objects), keys, inner.build([v for o in there for v in o.values()]), type=kind
        )

    return Typed(kind, build)


def _ends(objects: list[Any]) -> pa.Array:
    """Where each object's items begin, and where the last one's end; null for an object that is null."""
    ends: list[int | None] = []
    at = 0
    for o in objects:
        ends.append(None if o is None else at)
        at += 0 if o is None else len(o)
    return pa.array([*ends, at], pa.int32())


def _struct(fields: dict[str, Typed]) -> Typed:
    kind = pa.struct([(name, f.type) for name, f in fields.items()])

    def build(objects: list[Any]) -> pa.Array:
        columns = [
            field.build([None if o is None else getattr(o, name) for o in objects]) for name, field in fields.items()
        ]
        absent = pa.array([o is None for o in objects], pa.bool_())
        return pa.StructArray.from_arrays(columns, fields=list(kind), mask=absent)

    return Typed(kind, build)
