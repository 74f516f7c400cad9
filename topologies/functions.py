"""Properties of a user's function that are known before it is called."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any


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
