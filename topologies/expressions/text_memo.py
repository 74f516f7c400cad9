"""Results of a function of one text, kept from batch to batch: texts of categories, addresses and the like come again, and
finding a result is several times faster than computing it. A function of texts that hardly come again is left alone.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable
from typing import Any, Final

SHARED: Final = frozenset({str, bytes, bool, int, float, decimal.Decimal, type(None)})
"""Types whose values many rows may share, as no code can change them."""
_ENTRIES_MAX: Final = 1 << 15
_CHARACTERS_MAX: Final = 1 << 22
"""The most characters of texts and results together."""
_RESTS: Final = 64
"""For this number of batches nothing is kept, if more than half of the texts of a batch were new."""
_FEW: Final = 8


class TextMemo:
    """Remembers the results of one function, which depends on the text alone."""

    def __init__(self) -> None:
        self._known = _Known()
        self._rests = 0
        self.shared = True
        """Whether all results so far are of types that rows may share; else nothing is kept any more."""

    def results(
        self, texts: list[str | None], compute: Callable[[str | None], Any]
    ) -> tuple[list[Any], list[int]] | None:
        """The result of each text, ``None`` where ``compute`` raises, and at which places it does. No text stands twice.
        ``None``: compute them, nothing is kept now."""
        if not self.shared:
            return None
        if self._rests:
            self._rests -= 1
            return None
        known = self._known
        before, known.compute = len(known), compute
        found = list(map(known.__getitem__, texts))
        wrong = known.failing(texts) if known.failed else []
        self.shared = known.shared
        if before and 2 * (len(known) - before) > len(texts):
            self._rests = _RESTS
            self._known = _Known()
        elif len(known) > _ENTRIES_MAX or known.characters > _CHARACTERS_MAX:
            self._known = _Known()
        return found, wrong


class _Known(dict[str | None, Any]):
    """Computes what is missing. ``shared``: all results are of types that rows may share. ``failed``: the texts that have
    no result."""

    __slots__ = ("characters", "compute", "failed", "shared")

    def __init__(self) -> None:
        super().__init__()
        self.characters = 0
        self.failed: set[str | None] = set()
        self.shared = True
        self.compute: Callable[[str | None], Any] = _nothing

    def __missing__(self, text: str | None) -> Any:
        try:
            result = self.compute(text)
        except Exception:  # not swallowed: a row with this text takes the row path, which raises it again
            result = None
            self.failed.add(text)
        self[text] = result
        if type(result) not in SHARED:
            self.shared = False
        self.characters += len(text or "") + (len(result) if type(result) in (str, bytes) else 0)
        return result

    def failing(self, texts: list[str | None]) -> list[int]:
        """Where the texts without a result are."""
        if len(self.failed) > _FEW:
            return [i for i, text in enumerate(texts) if text in self.failed]
        return [texts.index(text) for text in self.failed if text in texts]


def _nothing(text: str | None) -> Any:
    raise AssertionError("results are computed by the function of a batch")
