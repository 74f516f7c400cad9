"""The functions of a case: Python text made callable.

This is the only place of the package that evaluates text, and it does so without any protection: a case file can run
whatever Python can. Files are to be trusted like code.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tests.conformance.case_format import CaseError


def text_of(value: Any) -> str:
    """``S(x)`` of the format."""
    return "null" if value is None else str(value)


def function(text: str) -> Callable[..., Any]:
    """The function that a lambda expression gives."""
    made = _evaluate(text, {})
    if not callable(made):
        raise CaseError(f"{text!r} is no function; the format has Python lambda expressions")
    return made  # type: ignore[no-any-return]  # what text gives has no type


def optional(text: str | None) -> Callable[..., Any] | None:
    """The same where the case may name none."""
    return None if text is None else function(text)


def expression(text: str, *names: str) -> Callable[..., Any]:
    """A function of ``names`` whose body is an expression over them."""
    return function(f"lambda {', '.join(names)}: ({text})")


def aggregate(text: str) -> Callable[[list[Any]], Any]:
    """A function of a window's values whose body is an expression over ``v``, the list of them, with SQL's aggregates:
    ``sum(v)``, ``count(*)`` or ``count()``, ``count_distinct(v)``, ``avg(v)``… Of rows, ``v.price`` is the list of a
    column's values, nulls aside."""
    names = {"count": len, "count_distinct": distinct_count, "avg": _mean, "mean": _mean}
    body = re.sub(r"\bcount\(\s*\*?\s*\)", "count(v)", text)
    made: Callable[[_Values], Any] = _evaluate(f"lambda v: ({body})", names)
    return lambda values: made(_Values(values))


class _Values(list[Any]):
    """A window's values, with columns where they are rows."""

    def __getattr__(self, name: str) -> list[Any]:
        return [row[name] for row in self if row.get(name) is not None]


def _mean(values: list[Any]) -> float:
    return float(sum(values) / len(values))


def distinct_count(values: list[Any]) -> int:
    """How many different values, null aside, as SQL counts."""
    return len({repr(v) for v in values if v is not None})


_NAMES = {"S": text_of}


def _evaluate(text: str, names: dict[str, Any]) -> Any:
    try:
        return eval(text, {**_NAMES, **names})
    except SyntaxError as exc:
        raise CaseError(f"{text!r} is no Python expression: {exc}") from exc
