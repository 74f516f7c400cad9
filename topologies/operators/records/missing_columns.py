"""Misspelt columns of untyped JSON, which expressions would read as null forever.

The first records of a source are looked at after they were decoded, whatever layout they arrived in. Answers do not
depend on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from penstock.topologies.expressions.inference import did_you_mean
from penstock.topologies.operator_api.operator import OperatorContext

SURE_RECORDS = 5
"""After so few records only columns of a similar name make it likely that a name is misspelt."""
RECORDS_MAX = 1_000
_NAMES_MAX = 1_000


class MissingColumns:
    """Reports each of ``columns`` that does not occur, once: after ``SURE_RECORDS`` records if a column of a similar name
    occurs, else after ``RECORDS_MAX``. Values that are not objects are not counted."""

    def __init__(self, ctx: OperatorContext, columns: Iterable[str]) -> None:
        self._ctx = ctx
        self._missing = set(columns)
        self._found: set[str] = set()
        self._records = 0

    def look(self, values: Sequence[Any]) -> bool:
        """Look at values that follow the last ones. Returns whether later ones must be looked at."""
        for value in values:
            if not isinstance(value, dict):
                continue
            self._missing.difference_update(value)
            if not self._missing:
                return False
            if len(self._found) < _NAMES_MAX:
                self._found.update(value)
            self._records += 1
            if self._records == SURE_RECORDS:
                self._report(self._questions(), only_alike=True)
            elif self._records == RECORDS_MAX:
                self._report(self._questions(), only_alike=False)
                return False
        return bool(self._missing)

    def _questions(self) -> dict[str, str]:
        return {name: did_you_mean(name, self._found) for name in sorted(self._missing)}

    def _report(self, questions: dict[str, str], *, only_alike: bool) -> None:
        said = {name: text for name, text in questions.items() if text or not only_alike}
        if said:
            self._ctx.columns_missing([name + text for name, text in said.items()], self._records)
            self._missing -= said.keys()
