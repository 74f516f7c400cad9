"""Functions of strings, for one row. Kernels take values that are not null."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from penstock.topologies.expressions.errors import Fault
from penstock.topologies.expressions.signature import FunctionSignature, Mismatch
from penstock.topologies.expressions.types import BOOL, STRING, list_of


def _plain(kernel: Callable[..., Any]) -> Callable[[Sequence[Any]], Callable[..., Any]]:
    return lambda constants: kernel


def _substring(text: str, start: int, length: int | None = None) -> str:
    first = start if start >= 0 else max(len(text) + start, 0)
    if length is None:
        return text[first:]
    if length < 0:
        raise Fault(f"a substring of {length} characters; lengths are 0 or more")
    return text[first : first + length]


def _separated(text: str, separator: str) -> list[str]:
    if not separator:
        raise Fault("an empty separator; split at a character or more")
    return text.split(separator)


def _split_part(text: str, separator: str, place: int) -> str | None:
    parts = _separated(text, separator)
    return parts[place] if 0 <= place < len(parts) else None


def _concat(*parts: str) -> str:
    return "".join(parts)


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as exc:
        raise Mismatch(f"{text!r} is not a regular expression ({exc}); see the syntax of Python's re module") from exc


def _matches(constants: Sequence[Any]) -> Callable[[str], bool]:
    search = _pattern(constants[0]).search
    return lambda text: search(text) is not None


def _extract(constants: Sequence[Any]) -> Callable[[str], str | None]:
    pattern, group = _pattern(constants[0]), constants[1]
    if not 0 <= group <= pattern.groups:
        raise Mismatch(f"the pattern {constants[0]!r} has {pattern.groups} groups, and no group {group}")
    search = pattern.search

    def kernel(text: str) -> str | None:
        match = search(text)
        return None if match is None else match[group]

    return kernel


_TWO = ("string", "string")

FUNCTIONS: dict[str, FunctionSignature] = {
    "lower": FunctionSignature(("string",), STRING, make=_plain(str.lower)),
    "upper": FunctionSignature(("string",), STRING, make=_plain(str.upper)),
    "strip": FunctionSignature(("string",), STRING, make=_plain(str.strip)),
    "contains": FunctionSignature(_TWO, BOOL, make=_plain(str.__contains__)),
    "starts_with": FunctionSignature(_TWO, BOOL, make=_plain(str.startswith)),
    "ends_with": FunctionSignature(_TWO, BOOL, make=_plain(str.endswith)),
    "substring": FunctionSignature(("string", "int64", "int64"), STRING, optional=1, make=_plain(_substring)),
    "replace": FunctionSignature(("string", "string", "string"), STRING, make=_plain(str.replace)),
    "split": FunctionSignature(_TWO, list_of(STRING), make=_plain(_separated)),
    "split_part": FunctionSignature(("string", "string", "int64"), STRING, make=_plain(_split_part), may_be_null=True),
    "concat": FunctionSignature(("string",), STRING, variadic=True, make=_plain(_concat)),
    "regexp_matches": FunctionSignature(_TWO, BOOL, constants=1, make=_matches),
    "regexp_extract": FunctionSignature(
        ("string", "string", "int64"), STRING, constants=2, make=_extract, may_be_null=True
    ),
}
