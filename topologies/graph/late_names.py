"""Names that a user's function reads and that got another value after its operator was declared.

A function sees the last value of such a name, as everywhere in Python: of two filters that a loop declares with a lambda
that reads the loop's variable, both see its last value. Found by comparing, when the graph is built, what each function
reads now with what it would have read then. Only a warning comes of it, since it may be meant.
"""

from __future__ import annotations

import dataclasses
import dis
import functools
import warnings
from collections.abc import Iterator, Mapping
from types import CodeType, FunctionType
from typing import Any, Final

from penstock.topologies.expressions.tracing.traced_function import TracedFunction

_MISSING: Final = object()
_DEPTH_MAX: Final = 8
"""How deep functions are looked for: in the parts of a spec, and in functions that call a user's."""
_SHOWN: Final = 40
_PLAIN: Final = frozenset({bool, bytes, float, int, str, type(None)})
"""Most parts of a spec: no function is in them."""
_SEQUENCES: Final = (tuple, list)

NamesRead = list[tuple[FunctionType, str, object]]
"""A function, a name that it reads, and the value of the name."""


def names_read(spec: Any) -> NamesRead:
    """The names that the functions of an operator read from outside, with their values now."""
    return [(fn, name, _value(fn, name)) for fn in _functions(spec, 0) for name in _names(fn.__code__)]


def warn_of_late_names(read: Mapping[str, NamesRead], declared: Mapping[str, str]) -> None:
    """Warn of each operator whose functions read something else now than when it was declared. ``declared``:
    ``FILE:LINE`` by operator."""
    for operator, names in read.items():
        for fn, name, before in names:
            now = _value(fn, name)
            if before is not now and before is not _MISSING and now is not _MISSING:
                _warn(operator, name, before, now, declared.get(operator))
                break


def _warn(operator: str, name: str, before: object, now: object, declared: str | None) -> None:
    text = (
        f"operator {operator!r}: its function reads {name!r}, which was {_shown(before)} when the operator was declared "
        f"and is {_shown(now)} now; a function sees the last value of a name. Bind it where the operator is declared, with "
        f"functools.partial or in a function that takes {name!r} as an argument"
    )
    file, _, line = (declared or "").rpartition(":")
    if file:
        warnings.warn_explicit(text, UserWarning, file, int(line))
    else:
        warnings.warn(text, stacklevel=2)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _functions(part: Any, depth: int) -> Iterator[FunctionType]:
    if depth > _DEPTH_MAX:
        return
    if isinstance(part, TracedFunction):
        part = part.fn
    if isinstance(part, FunctionType):
        yield part
        inner: list[Any] = [_content(cell) for cell in part.__closure__ or ()]
        yield from (fn for value in inner if isinstance(value, FunctionType) for fn in _functions(value, depth + 1))
    elif isinstance(part, _SEQUENCES):
        for value in part:
            if type(value) not in _PLAIN:
                yield from _functions(value, depth + 1)
    else:
        cls: Any = type(part)
        for name in _field_names(cls):
            value = getattr(part, name)
            if type(value) not in _PLAIN:
                yield from _functions(value, depth + 1)


@functools.lru_cache(maxsize=1024)
def _field_names(cls: type) -> tuple[str, ...]:
    """The fields of a dataclass; none of another class."""
    return tuple(field.name for field in dataclasses.fields(cls)) if dataclasses.is_dataclass(cls) else ()


@functools.lru_cache(maxsize=4096)
def _names(code: CodeType) -> tuple[str, ...]:
    """The names that a function's code reads from outside of it, those of functions within it included."""
    read = {i.argval for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    inner = (name for const in code.co_consts if isinstance(const, CodeType) for name in _names(const))
    return tuple(sorted({*code.co_freevars, *read, *inner} - {*code.co_varnames, *code.co_cellvars}))


def _value(fn: FunctionType, name: str) -> object:
    if name in fn.__code__.co_freevars and fn.__closure__ is not None:
        return _content(fn.__closure__[fn.__code__.co_freevars.index(name)])
    return fn.__globals__.get(name, _MISSING)


def _content(cell: Any) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # nothing was assigned yet
        return _MISSING
