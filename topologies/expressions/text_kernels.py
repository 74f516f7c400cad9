"""Functions of texts over whole columns, by the compiled part: lengths, what is found, replacements, and parts. Texts stay
bytes, which are neither decoded nor compared with each other. Functions of other kinds, and texts of which few are
distinct, or whose distinct values are known already, go by values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from penstock.state.native import compiled
from penstock.topologies.expressions import kernels as k
from penstock.topologies.expressions.leaves import leaf_of
from penstock.topologies.expressions.numbers import INT64_MAX
from penstock.topologies.expressions.tree import Alias, Binary, Call, Expression, Literal, Unary
from penstock.topologies.operator_api.columns import BytesColumn, Mask

_PLACES: Final = {"contains": "a", "starts_with": "s", "ends_with": "e"}
NUMBERS: Final = frozenset({"length", *_PLACES})
"""Functions of a text that return numbers or truths."""
TEXTS: Final = frozenset({"replace", "split_part"})
"""Functions of a text that return texts."""
_LOOK_EVERY: Final = 64
_VARIED: Final = 16


class TextChoice:
    """Decides whether an expression goes by bytes, or by distinct values, which is faster where these are few. Every so
    often a batch goes by values to find out. ``possible``: whether it may go by bytes at all."""

    def __init__(self, possible: bool) -> None:
        self.possible = possible
        self._varied = True
        self._left = 1

    def by_bytes(self) -> bool:
        """How the next batch goes."""
        if self._left == 0:
            self._left = _LOOK_EVERY
            return False
        self._left -= 1
        return self._varied

    def saw(self, distinct: int, rows: int) -> None:
        """A batch of this number of rows has this number of distinct values."""
        self._varied = _VARIED * distinct > rows


def is_of_texts(e: Expression) -> bool:
    """Whether arrays of bytes and numbers are all that the expression takes."""
    return _is_number(e) or (_is_text(e) and leaf_of(e) is None)


def _is_number(e: Expression) -> bool:
    match e:
        case Alias(of, _) | Unary(_, of):
            return _is_number(of)
        case Binary(_, left, right):
            sides = [side for side in (left, right) if not isinstance(side, Literal)]
            return bool(sides) and all(map(_is_number, sides))
        case Call(function, args) if function in NUMBERS:
            return _is_text(args[0]) and constants_of_text(e) is not None
        case Call("between", (of, *bounds)):
            return _is_number(of) and all(isinstance(bound, Literal) for bound in bounds)
    return False


def _is_text(e: Expression) -> bool:
    if leaf_of(e) is not None:
        return True
    match e:
        case Alias(of, _):
            return _is_text(of)
        case Call(function, args) if function in TEXTS:
            return _is_text(args[0]) and constants_of_text(e) is not None
    return False


def constants_of_text(e: Call) -> tuple[Any, ...] | None:
    """The arguments of a function of a text besides it. ``None``: they differ from row to row, or no kernel takes them."""
    if not all(isinstance(arg, Literal) and arg.value is not None for arg in e.args[1:]):
        return None
    found: list[Any] = [arg.value for arg in e.args[1:] if isinstance(arg, Literal)]
    try:
        encoded: tuple[Any, ...] = tuple(value.encode() if isinstance(value, str) else value for value in found)
    except UnicodeEncodeError:
        return None
    if e.function in TEXTS and not encoded[0]:  # what happens then is the row's to say
        return None
    if e.function == "split_part" and not 0 <= encoded[1] <= INT64_MAX:
        return None
    return encoded


def of_number(e: Call, texts: k.EncodedTexts) -> k.Vec:
    """A function that returns numbers or truths. Raises ``NoKernel`` without the compiled part."""
    module, constants = _module(), constants_of_text(e)
    if constants is None:
        raise k.NoKernel
    raw = texts.raw.raw()
    if e.function == "length":
        return k.Vec(np.frombuffer(module.text_lengths(*raw), np.int64), texts.raw.nulls, texts.errors)
    found = module.texts_found(*raw, constants[0], _PLACES[e.function])
    return k.Vec(np.frombuffer(found, np.bool_), texts.raw.nulls, texts.errors)


def of_texts(e: Call, texts: k.EncodedTexts) -> k.EncodedTexts:
    """A function that returns texts. Raises ``NoKernel`` without the compiled part."""
    module, constants = _module(), constants_of_text(e)
    if constants is None:
        raise k.NoKernel
    make: Callable[..., Any] = module.texts_replaced if e.function == "replace" else module.texts_split
    data, ends, nulls = make(*texts.raw.raw(), *constants)
    absent: Mask | None = None if nulls is None else np.frombuffer(nulls, np.bool_)
    return k.EncodedTexts(BytesColumn(data, np.frombuffer(ends, np.int64), absent), texts.errors)


def _module() -> Any:
    module = compiled()
    if module is None or not hasattr(module, "text_lengths"):
        raise k.NoKernel
    return module
