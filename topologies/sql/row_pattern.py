"""The row patterns of MATCH_RECOGNIZE: ``A B+ C? D{2,3} (E F)*``.

Variables follow each other strictly; quantifiers are greedy, and reluctant with ``?`` behind them.
"""

from __future__ import annotations

import re

from penstock.state.errors import TopologyError
from penstock.topologies.patterns.pattern import Pattern, pattern
from penstock.topologies.sql.parsing import Text

_TOKEN = re.compile(r"\s*(?:(?P<name>[A-Za-z_]\w*)|(?P<open>\()|(?P<close>\))|(?P<other>\S))")
_QUANTIFIER = re.compile(
    r"\s*(?:(?P<sign>[*+?])|\{\s*(?P<low>\d*)\s*(?P<comma>,)?\s*(?P<high>\d*)\s*\})(?P<reluctant>\?)?"
)


class RowPattern:
    """Reads a row pattern that begins at ``offset`` of the text and ends at its closing bracket. ``end`` is the place of
    that bracket, ``variables`` the names in order."""

    def __init__(self, text: Text, offset: int) -> None:
        self._text = text
        self._at = offset
        self.variables: list[str] = []
        try:
            self.pattern = self._sequence()
        except TopologyError as exc:
            if str(exc).startswith("SQL"):
                raise
            raise self._error(offset, str(exc)) from exc
        self.end = self._at

    def _error(self, offset: int, problem: str) -> TopologyError:
        return TopologyError(f"SQL, line {self._text.place(offset)}: {problem}")

    def _sequence(self) -> Pattern:
        """Up to a closing bracket, which is left in place."""
        made: Pattern | None = None
        while True:
            match = _TOKEN.match(self._text.text, self._at)
            if match is None:
                raise self._error(self._at, "the pattern has no end; close its bracket")
            if match["close"]:
                if made is None:
                    raise self._error(match.start("close"), "an empty pattern; name a variable")
                self._at = match.start("close")
                return made
            if match["other"]:
                raise self._error(
                    match.start("other"),
                    f"{match['other']} is not supported in a pattern; use variables, brackets, * + ? {{n,m}}",
                )
            self._at = match.end()
            made = self._quantified(self._appended(made, match), greedy=bool(match["name"]))

    def _appended(self, made: Pattern | None, match: re.Match[str]) -> Pattern:
        what: str | Pattern
        if match["name"]:
            what = match["name"]
            if what in self.variables:
                raise self._error(match.start("name"), f"{what} stands twice in the pattern; name the second otherwise")
            self.variables.append(what)
        else:
            what = self._sequence()
            self._at += 1
        return pattern(what) if made is None else made.next(what)

    def _quantified(self, made: Pattern, *, greedy: bool) -> Pattern:
        match = _QUANTIFIER.match(self._text.text, self._at)
        if match is None:
            return made
        start, self._at = self._at, match.end()
        sign = match["sign"]
        low, high = (
            {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(sign, (0, None)) if sign else self._range(match, start)
        )
        if high == 1 and low == 1:
            return made
        if high == 1:
            return made.optional()
        repeated = made.times_or_more(max(low, 1)) if high is None else made.times(max(low, 1), high)
        repeated = repeated.consecutive()
        if greedy and not match["reluctant"]:
            repeated = repeated.greedy()
        return repeated.optional() if low == 0 else repeated

    def _range(self, match: re.Match[str], start: int) -> tuple[int, int | None]:
        if not match["low"] and not match["high"]:
            raise self._error(start, "an empty quantifier; give {n}, {n,}, {,m} or {n,m}")
        low = int(match["low"] or 0)
        if not match["comma"]:
            return low, low
        return low, int(match["high"]) if match["high"] else None
