"""Serdes for lines that are not CSV: fields between delimiters, and lines that match a pattern.

These are recipes: copy the one that fits and change it. A ``Serde`` is a name and two functions. They raise
``SerdeError`` for what they cannot read and for what would not survive a round trip; a topic's policy decides what
happens to such a record. ``declared`` tells expressions the columns' types.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from penstock.state.errors import SerdeError
from penstock.state.serdes.serde import Serde

LineFields: TypeAlias = dict[str, Any]
Types: TypeAlias = Mapping[str, Callable[[str], Any]]
"""Columns in order, each with its type or a function of its text."""


def delimited(delimiter: str, types: Types) -> Serde[LineFields]:
    """Fields between delimiters of any length, without quoting: ``7::Heat (1995)``."""
    name = f"delimited({delimiter.join(types)})"

    def read(data: bytes) -> LineFields:
        texts = _line(name, data).split(delimiter)
        if len(texts) != len(types):
            raise SerdeError(f"serde {name}: {len(texts)} fields in {data!r:.100}, not {len(types)}")
        return _typed(name, dict(zip(types, texts, strict=True)), types)

    def write(row: LineFields) -> bytes:
        data = delimiter.join(str(row[column]) for column in types).encode()
        if read(data) != row:
            raise SerdeError(f"serde {name}: {row!r:.100} would be read as something else; use csv_row, which quotes")
        return data

    return Serde(name, write, read, declared=dict(types))


def pattern_line(pattern: str, types: Types) -> Serde[LineFields]:
    """Lines that match the pattern as a whole, as dicts of its named groups; a group without a match is ``None``.
    ``types``: of the groups that are not ``str``. Cannot write."""
    compiled = re.compile(pattern)
    name = f"pattern({pattern})"

    def read(data: bytes) -> LineFields:
        match = compiled.fullmatch(_line(name, data))
        if match is None:
            raise SerdeError(f"serde {name}: the pattern does not match {data!r:.200}")
        return _typed(name, match.groupdict(), types)

    def write(row: LineFields) -> bytes:
        raise SerdeError(f"serde {name} can only read; give the sink another serde")

    return Serde(name, write, read)


def _line(name: str, data: bytes) -> str:
    """The text without its line end."""
    try:
        text = data.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as exc:
        raise SerdeError(f"serde {name}: {data!r:.100} is not UTF-8") from exc
    if "\n" in text or "\r" in text:
        raise SerdeError(f"serde {name}: {data!r:.100} has more than one line; write one line a record")
    return text


def _typed(name: str, texts: Mapping[str, str | None], types: Types) -> LineFields:
    row: LineFields = {}
    for column, text in texts.items():
        try:
            row[column] = None if text is None else types.get(column, str)(text)
        except (ValueError, ArithmeticError) as exc:
            raise SerdeError(f"serde {name}: column {column!r} cannot be {text!r:.60}: {exc}") from exc
    return row
