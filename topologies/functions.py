"""Properties of a user's function that are known before it is called."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Sequence
from types import FunctionType
from typing import Any

_ALL_NAMES = frozenset({"locals", "vars", "dir", "eval", "exec", "_getframe", "currentframe", "stack"})
"""Functions of Python that find variables which no code names."""


def is_async(fn: Any) -> bool:
    """Whether a call gives what must be awaited: an ``async`` function, or an object with an ``async`` ``__call__``."""
    if inspect.iscoroutinefunction(fn) or inspect.isasyncgenfunction(fn):
        return True
    call = None if isinstance(fn, type) else getattr(type(fn), "__call__", None)  # noqa: B004  # what it is called by is asked, not whether it can be
    return inspect.iscoroutinefunction(call) or inspect.isasyncgenfunction(call)


def is_async_generator(fn: Any) -> bool:
    """Whether a call gives results to iterate over with ``async for``."""
    call = None if isinstance(fn, type) else getattr(type(fn), "__call__", None)  # noqa: B004  # what it is called by is asked, not whether it can be
    return inspect.isasyncgenfunction(fn) or inspect.isasyncgenfunction(call)


def takes_two(fn: Any) -> bool:
    """Whether it must be given two arguments by place, and no more. Of what has no signature nothing is known."""
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        return False
    by_place = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return len([p for p in by_place if p.default is p.empty]) == 2


def refused_arguments(fn: Any, arguments: Sequence[str]) -> str | None:
    """Why a call with these arguments, by place, must fail: what the function takes. Of what has no signature nothing is
    known."""
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):
        return None
    try:
        signature.bind(*arguments)
    except TypeError:
        return f"{getattr(fn, '__name__', fn)!s:.60}{inspect.Signature(list(signature.parameters.values()))}"
    return None


def leaves_alone(fn: Any, place: int) -> bool:
    """Whether a plain function never uses its argument at this place: nothing in its code names that, nor looks for
    variables without naming them."""
    if type(fn) is not FunctionType or place >= fn.__code__.co_argcount:
        return False
    code = fn.__code__
    name = code.co_varnames[place]
    if not _ALL_NAMES.isdisjoint(code.co_names):
        return False
    named = (step.argval for step in dis.get_instructions(code))
    return not any(one == name or (isinstance(one, tuple) and name in one) for one in named)
