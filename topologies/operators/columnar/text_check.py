"""The check of the compiled functions of texts, for ``kernel_check``."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.state import native
from penstock.topologies.operator_api.columns import BytesColumn

_TEXTS = ("", "a", "two/Words/", None, "größe/é", "\U0001f600/" * 30, "aaaa", "/", "x" * 300 + "/aa")
_WHAT = ("a", "aa", "/", "é", "\U0001f600/")


def texts_computed() -> Any:
    """Lengths, what is found, and replacements and parts."""
    compiled = native.compiled()
    column = BytesColumn.of([None if text is None else text.encode() for text in _TEXTS])
    if compiled is None:
        return [*_in_python()]
    out: list[Any] = [np.frombuffer(compiled.text_lengths(*column.raw()), np.int64).tolist()]
    for what in _WHAT:
        given = what.encode()
        out += [list(compiled.texts_found(*column.raw(), given, place)) for place in "ase"]
        out += [_listed(compiled.texts_replaced(*column.raw(), given, new)) for new in (b"", b"bb")]
        out += [_listed(compiled.texts_split(*column.raw(), given, place)) for place in range(3)]
    return out


def _in_python() -> Any:
    texts = ["" if text is None else text for text in _TEXTS]
    there = [text is not None for text in _TEXTS]
    yield [len(text) for text in texts]
    for what in _WHAT:
        for finds in (str.__contains__, str.startswith, str.endswith):
            yield [int(finds(text, what)) if known else 0 for text, known in zip(texts, there, strict=True)]
        for new in ("", "bb"):
            yield [None if text is None else text.replace(what, new).encode() for text in _TEXTS]
        for place in range(3):
            parts = [None if text is None else text.split(what) for text in _TEXTS]
            yield [None if part is None or len(part) <= place else part[place].encode() for part in parts]


def _listed(column: tuple[Any, Any, Any]) -> list[bytes | None]:
    data, ends, nulls = column
    absent = None if nulls is None else np.frombuffer(nulls, np.bool_)
    return BytesColumn(data, np.frombuffer(ends, np.int64), absent).to_list()
