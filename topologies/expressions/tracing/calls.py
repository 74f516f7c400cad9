"""Fields, items and calls of a traced function."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Sequence
from inspect import getattr_static
from types import MemberDescriptorType
from typing import Any

import msgspec

from penstock.topologies.expressions.tracing.meanings import (
    NAMES,
    TYPES,
    Built,
    Callee,
    Constant,
    Meaning,
    Method,
    Opaque,
    Scalar,
    Untraceable,
    Whole,
    scalar,
    sure,
    unusable,
)
from penstock.topologies.expressions.tracing.operations import choice, compared, truth
from penstock.topologies.expressions.tree import Call, Cast, Expression, Field
from penstock.topologies.expressions.types import FLOAT64, STRING, DataType, schema_of

_METHODS = {
    "lower": ("lower", 0),
    "upper": ("upper", 0),
    "strip": ("strip", 0),
    "startswith": ("starts_with", 1),
    "endswith": ("ends_with", 1),
    "replace": ("replace", 2),
}
"""Methods of texts, the function of each, and how many other texts it takes."""


# -- fields --------------------------------------------------------------------------------------------------------------


def attribute(owner: Meaning, name: str) -> tuple[Meaning, tuple[Expression, ...]]:
    """``owner.name``, and the conditions under which it does not raise."""
    if isinstance(owner, Whole):
        python = owner.type.python
        if python is None:
            return Method(owner, name), ()
        why = None if owner.type.field(name) is None else _why_not_read(python, name)
        if why is not None:
            raise Untraceable(why)
        return _field(owner, name)
    if isinstance(owner, (Scalar, Constant)) and scalar(owner).kind == "string" and name in _METHODS:
        return Method(owner, name), ()
    if isinstance(owner, Callee):
        raise Untraceable(f"it reads {owner.name}.{name}")
    raise Untraceable(unusable(owner) if not isinstance(owner, (Scalar, Constant)) else f"it uses .{name}")


def item(owner: Meaning, key: Meaning) -> tuple[Meaning, tuple[Expression, ...]]:
    """``owner[key]`` of a dict, and the conditions under which it does not raise."""
    if isinstance(owner, Whole) and isinstance(key, Constant) and type(key.value) is str:
        if owner.type.python is not None:
            raise Untraceable(f"it reads an item of {owner.type.python.__name__}, which has attributes")
        return _field(owner, key.value)
    raise Untraceable(owner.why if isinstance(owner, Opaque) else "it reads an item")


def _field(owner: Whole, name: str) -> tuple[Meaning, tuple[Expression, ...]]:
    tp = owner.type.field(name)
    if tp is None:
        raise Untraceable(f"its record has no field {name}")
    e = Field(owner.expression, name)
    there = (Call("is_not_null", (owner.expression,)),) if owner.nullable else ()
    if tp.kind == "struct":
        return Whole(e, tp, tp.nullable), there
    if tp.kind not in TYPES:
        raise Untraceable(f"its field {name} is of type {tp.kind}")
    if tp.nullable or not there:
        return Scalar(e, tp.kind, tp.nullable), there
    # a field of a record that is null is null itself
    return Scalar(Call("present", (e,)), tp.kind), ()


def _why_not_read(python: type, name: str) -> str | None:
    """Why an attribute may be more than the field of this name."""
    base: type = msgspec.Struct if issubclass(python, msgspec.Struct) else object
    if getattr_static(python, "__getattribute__") is not getattr_static(base, "__getattribute__"):
        return f"{python.__name__} customizes attribute access"
    held = getattr_static(python, name, None)
    plain = isinstance(held, MemberDescriptorType) or not inspect.isdatadescriptor(held)
    return None if plain else f"{python.__name__}.{name} is not a plain field"


# -- calls ---------------------------------------------------------------------------------------------------------------


def called(callee: Meaning, args: Sequence[Meaning], named: Sequence[tuple[str, Meaning]]) -> Meaning:
    """``callee(*args, **named)``."""
    if isinstance(callee, Method):
        return _method(callee, args, named)
    if not isinstance(callee, Callee):
        raise Untraceable("it calls a value")
    if isinstance(callee.called, type) and callee.called not in _TYPES:
        return _built(callee.called, args, named)
    if named:
        raise Untraceable(f"it calls {callee.name} with keywords")
    return _builtin(callee, args)


_TYPES = (str, float, int, bool)


def _method(method: Method, args: Sequence[Meaning], named: Sequence[tuple[str, Meaning]]) -> Meaning:
    function, wanted = _METHODS.get(method.name, ("", -1))
    if isinstance(method.owner, Whole) or named or len(args) != wanted:
        raise Untraceable(f"it calls .{method.name}()")
    given = [method.owner, *args]
    if any(scalar(a).kind != "string" for a in given):
        raise Untraceable(f"it calls .{method.name}() with something else than texts")
    kind = "bool" if function in ("starts_with", "ends_with") else "string"
    return Scalar(Call(function, tuple(map(sure, given))), kind)


def _builtin(callee: Callee, args: Sequence[Meaning]) -> Meaning:
    function = callee.called
    if function in (min, max) and len(args) == 2:
        first, second = args
        if scalar(first).kind == scalar(second).kind:
            first, second = (Scalar(sure(a), scalar(a).kind) for a in args)
            test = compared("<" if function is min else ">", second, first)
            if isinstance(test, Scalar):
                return choice(test, second, first)
    if len(args) != 1:
        raise Untraceable(f"it calls {callee.name} with {len(args)} arguments")
    (given,) = args
    if function is bool:
        return truth(given)
    found = scalar(given)
    if function is len and found.kind in ("string", "bytes"):
        return Scalar(Call("length", (sure(found),)), "int64")
    if function is abs and found.kind in ("int64", "float64"):
        return Scalar(Call("abs", (sure(found),)), found.kind)
    if function is str and found.kind in ("int64", "string"):
        return _text(found)
    if function is float and found.kind in ("int64", "float64"):
        return Scalar(Cast(sure(found), FLOAT64), "float64")
    if function is int and found.kind == "int64":
        return Scalar(sure(found), "int64")
    raise Untraceable(f"it calls {callee.name} of {NAMES[found.kind]}")


def _text(given: Scalar) -> Scalar:
    return Scalar(sure(given) if given.kind == "string" else Cast(sure(given), STRING), "string")


def formatted(parts: Sequence[Meaning]) -> Meaning:
    """An f-string of texts and ints, without format specifications."""
    texts: list[Expression] = []
    for part in parts:
        found = scalar(part)
        if found.kind not in ("string", "int64"):
            raise Untraceable(f"it formats a value of type {NAMES[found.kind]}")
        texts.append(_text(found).expression)
    return Scalar(Call("concat", tuple(texts)), "string") if texts else Constant("")


# -- records -------------------------------------------------------------------------------------------------------------


def _built(python: type, args: Sequence[Meaning], named: Sequence[tuple[str, Meaning]]) -> Built:
    """A new instance of a class."""
    why = _why_not_made(python)
    if why is not None:
        raise Untraceable(f"it makes a {python.__name__}, which {why}")
    wanted = schema_of(python)
    for name, _ in wanted.fields:
        if (why := _why_not_read(python, name)) is not None:
            raise Untraceable(f"it makes a {python.__name__}, and {why}")
    parameters = inspect.signature(python).parameters
    names = [p.name for p in parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    if len(args) > len(names) or any(n not in parameters for n, _ in named):
        raise Untraceable(f"it makes a {python.__name__} of values that it does not take")
    given = [*zip(names, args, strict=False), *named]
    fields = {name: _fitting(python, name, wanted.field(name), value) for name, value in given}
    if len(fields) < len(given) or not fields:
        raise Untraceable(f"it makes a {python.__name__} without values, or with one given twice")
    # in the order of the class, as its instances have them
    return Built(python, tuple((n, fields[n]) for n, _ in wanted.fields if n in fields))


def _fitting(python: type, name: str, tp: DataType | None, value: Meaning) -> Meaning:
    what = f"{python.__name__}.{name}"
    if tp is None:
        raise Untraceable(f"there is no {what}")
    if value == Constant(None):
        if tp.nullable and tp.kind in TYPES:
            return value
        raise Untraceable(f"{what} is given null")
    found = scalar(value)
    if found.kind != tp.kind:
        raise Untraceable(f"{what} is {NAMES.get(tp.kind, tp.kind)}, and is given {NAMES[found.kind]}")
    return value if tp.nullable else dataclasses.replace(found, expression=sure(found), nullable=False)


def _why_not_made(python: type) -> str | None:
    """Why making an instance may do more than set its fields."""
    if hasattr(python, "__post_init__"):
        return "has a __post_init__"
    if issubclass(python, msgspec.Struct):
        plain = type(python) is type(msgspec.Struct) and all(
            getattr(python, n) is getattr(msgspec.Struct, n) for n in ("__init__", "__new__", "__setattr__")
        )
        return None if plain else "customizes how it is made"
    if not dataclasses.is_dataclass(python):
        return "is neither a Struct nor a dataclass"
    init: Any = python.__init__
    code = getattr(init, "__code__", None)
    # where dataclasses makes it; a class may itself be of a text that was executed
    generated = code is not None and code.co_filename == "<string>" and code.co_qualname.startswith("__create_fn__.")
    setting = python.__setattr__ is object.__setattr__ or python.__dataclass_params__.frozen  # type: ignore[attr-defined]  # dataclasses keep it there
    plain = generated and setting and type(python) is type and python.__new__ is object.__new__
    return None if plain else "customizes how it is made"
