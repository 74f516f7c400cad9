"""The row patterns of MATCH_RECOGNIZE: ``A B+ C? D{2,3} (E F)*``.

Variables follow each other strictly; quantifiers are greedy, and reluctant with ``?`` after them. A greedy quantifier
on the last variable takes the longest run: the match is emitted when its run is over, by a row that does not belong
to it or by ``WITHIN``. A pattern whose last run has no definite end is refused: if the last element is a group, may
be omitted after another one of variable length, or follows a reluctant quantifier.

Matches are not retried with fewer rows: a row that a greedy variable takes is never given to the next variable. An
optional variable, and a repeated group, end with the first row that the variable after them takes. So the conditions
of such a variable and of the next one should exclude each other; a variable that takes any row is refused there.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from penstock.state.errors import TopologyError
from penstock.topologies.patterns.pattern import Pattern, pattern
from penstock.topologies.sql.parsing import Text

_TOKEN = re.compile(r"\s*(?:(?P<name>[A-Za-z_]\w*)|(?P<open>\()|(?P<close>\))|(?P<other>\S))")
_QUANTIFIER = re.compile(
    r"\s*(?:(?P<sign>[*+?])|\{\s*(?P<low>\d*)\s*(?P<comma>,)?\s*(?P<high>\d*)\s*\})(?P<reluctant>\?)?"
)
_SIGNS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}


@dataclasses.dataclass(frozen=True)
class _Element:
    """A variable, or a group with its own elements, and how often it occurs. ``first``: the first variable in it."""

    start: int
    text: str
    first: str
    group: tuple[_Element, ...] = ()
    low: int = 1
    high: int | None = 1
    reluctant: bool = False

    @property
    def varies(self) -> bool:
        return self.low != self.high


class RowPattern:
    """Reads a row pattern that begins at ``offset`` of the text and ends at its closing bracket. ``end`` is the place
    of that bracket; ``variables`` are the names in order."""

    def __init__(self, text: Text, offset: int) -> None:
        self._text = text
        self._at = offset
        self.variables: list[str] = []
        self._conditioned: dict[str, tuple[_Element, str]] = {}
        """The variables that must not take any row: the first of each element concerned, and the reason."""
        try:
            made, elements = self._sequence()
        except TopologyError as exc:
            if str(exc).startswith("SQL"):
                raise
            raise self._error(offset, str(exc)) from exc
        self.pattern = self._ended(made, elements)
        self.end = self._at

    def check_conditions(self, defined: set[str]) -> None:
        """Refuse a quantifier that would never end because its variable takes any row. ``defined``: the variables
        with a condition."""
        for name, (element, why) in self._conditioned.items():
            if name not in defined:
                raise self._error(
                    element.start,
                    f"{element.text}: {name} takes any row, so that {why}; DEFINE {name}, or take as few rows as possible: "
                    "+? *? {n,m}?",
                )

    def _error(self, offset: int, problem: str) -> TopologyError:
        return TopologyError(f"SQL, line {self._text.place(offset)}: {problem}")

    def _sequence(self) -> tuple[Pattern, tuple[_Element, ...]]:
        """Up to a closing bracket, which is left in place."""
        made: Pattern | None = None
        elements: list[_Element] = []
        while True:
            match = _TOKEN.match(self._text.text, self._at)
            if match is None:
                raise self._error(self._at, "the pattern has no end; close its bracket")
            if match["close"]:
                if made is None:
                    raise self._error(match.start("close"), "an empty pattern; name a variable")
                self._at = match.start("close")
                self._require_conditions(elements)
                return made, tuple(elements)
            if match["other"]:
                raise self._error(
                    match.start("other"),
                    f"{match['other']} is not supported in a pattern; use variables, brackets, * + ? {{n,m}}",
                )
            self._at = match.end()
            what, element = self._what(match)
            element = self._quantified(element)
            made = _repeated(pattern(what) if made is None else made.next(what), element)
            elements.append(element)

    def _what(self, match: re.Match[str]) -> tuple[str | Pattern, _Element]:
        if not match["name"]:
            start = match.start("open")
            group, inside = self._sequence()
            self._at += 1
            return group, _Element(start, self._text.text[start : self._at], inside[0].first, inside)
        name, start = match["name"], match.start("name")
        if name in self.variables:
            raise self._error(start, f"{name} occurs twice in the pattern; give the second another name")
        self.variables.append(name)
        return name, _Element(start, name, name)

    def _quantified(self, element: _Element) -> _Element:
        match = _QUANTIFIER.match(self._text.text, self._at)
        if match is None:
            return element
        start, self._at = self._at, match.end()
        low, high = _SIGNS[match["sign"]] if match["sign"] else self._range(match, start)
        text = self._text.text[element.start : self._at]
        if low == 0 and high == 1 and match["reluctant"]:
            raise self._error(
                element.start,
                f"{text}: a reluctant optional is not supported; write it with ?, or search with and without it by two "
                "statements",
            )
        inside = _open_end(element.group)
        if high != 1 and inside is not None and inside.high != 1 and inside.first in _beginnings(element.group):
            raise self._error(
                element.start,
                f"{text}: which repetition takes a row of {inside.first} is not defined; write one quantifier",
            )
        return dataclasses.replace(element, text=text, low=low, high=high, reluctant=bool(match["reluctant"]))

    def _range(self, match: re.Match[str], start: int) -> tuple[int, int | None]:
        if not match["low"] and not match["high"]:
            raise self._error(start, "an empty quantifier; give {n}, {n,}, {,m} or {n,m}")
        low = int(match["low"] or 0)
        if not match["comma"]:
            return low, low
        return low, int(match["high"]) if match["high"] else None

    # -- what is refused -----------------------------------------------------------------------------------------

    def _require_conditions(self, elements: list[_Element]) -> None:
        for element in elements[:-1]:
            if element.varies and not element.reluctant:
                self._conditioned[element.first] = element, "none is left for the next variable"
        last = elements[-1]
        if last.high is None and not last.reluctant:
            self._conditioned[last.first] = last, "it never ends"

    def _ended(self, made: Pattern, elements: tuple[_Element, ...]) -> Pattern:
        """The pattern, whose last stage takes the longest run if its quantifier is greedy."""
        open_end = _open_end(elements)
        if open_end is None:
            if all(map(_may_be_empty, elements)):
                raise self._error(
                    elements[0].start,
                    "as few rows as possible would be none here; use a quantifier that needs at least one",
                )
            return made
        last, before = elements[-1], elements[:-1]
        certain = last.low > 0 or _open_end(before) is None
        if open_end is not last or last.group or not certain or any(map(_is_reluctant, before)):
            raise self._error(
                open_end.start,
                f"{open_end.text} is greedy at the end of the pattern, where the end of its longest run is not certain; add "
                "a variable after it that ends the run, or take as few rows as possible: +? *? {n,m}?",
            )
        return _with_last(made, is_longest=True)


def _with_last(made: Pattern, **changes: Any) -> Pattern:
    """The pattern with its last stage changed."""
    *others, last = made.stages
    return dataclasses.replace(made, stages=(*others, dataclasses.replace(last, **changes)))


def _repeated(made: Pattern, element: _Element) -> Pattern:
    """The pattern with its last stage repeated."""
    low, high = element.low, element.high
    if high == 1:
        # the first variable of a group follows the group's contiguity, also between repetitions of the group
        made = _with_last(made, inner="strict") if element.group else made
        return made if low == 1 else made.optional()
    repeated = made.times_or_more(max(low, 1)) if high is None else made.times(max(low, 1), high)
    repeated = repeated.consecutive()
    if not element.group and not element.reluctant:
        repeated = repeated.greedy()
    return repeated.optional() if low == 0 else repeated


def _open_end(elements: tuple[_Element, ...]) -> _Element | None:
    """The last greedy element that nothing may follow; ``None`` if there is none."""
    for element in reversed(elements):
        if element.varies and not element.reluctant:
            return element
        inside = _open_end(element.group)
        if inside is not None or not _may_be_empty(element):
            return inside
    return None


def _beginnings(elements: tuple[_Element, ...]) -> set[str]:
    """The variables that a sequence may begin with."""
    found: set[str] = set()
    for element in elements:
        found |= _beginnings(element.group) or {element.first}
        if not _may_be_empty(element):
            break
    return found


def _may_be_empty(element: _Element) -> bool:
    return element.low == 0 or (bool(element.group) and all(map(_may_be_empty, element.group)))


def _is_reluctant(element: _Element) -> bool:
    return (element.varies and element.reluctant) or any(map(_is_reluctant, element.group))
