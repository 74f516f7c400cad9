"""Parse a text into sqlglot's tree, and find the place of a node in the text.

sqlglot reads the dialect of Trino, which has MATCH_RECOGNIZE. Text that this dialect does not accept is rewritten
first: ``WITHIN`` after a pattern, as in Flink, is removed, and ``SESSION (`` gets another name. Both are found among
the tokens, so literals, quoted names and comments stay as they are, and so does every place in the text.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import sqlglot
from sqlglot import Token, TokenType, exp
from sqlglot.dialects.trino import Trino
from sqlglot.errors import ParseError, TokenError

from penstock.state.errors import TopologyError

_UNITS_MS = {"MILLISECOND": 1, "SECOND": 1000, "MINUTE": 60_000, "HOUR": 3_600_000, "DAY": 86_400_000}
_QUOTED = (TokenType.STRING, TokenType.IDENTIFIER)
SESSION = "SESSI0N"
"""The replacement for SESSION, of equal length: a word of the dialect that cannot name a function."""


class _Dialect(Trino):
    """Trino's dialect, with array indices as written: sqlglot shifts some of them, depending on types."""

    INDEX_OFFSET = 0


class Text:
    """One statement: its text, its tree, and the ``WITHIN`` durations in milliseconds by the place of their pattern's
    closing bracket. Raises ``TopologyError`` for anything but a single SELECT."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.within_ms: dict[int, int] = {}
        try:
            self._tokens = sqlglot.tokenize(text, read=_Dialect)
            statements = sqlglot.parse(self._put_otherwise(), read=_Dialect)
        except ParseError as exc:
            first = exc.errors[0]
            problem = re.sub(r" but got <Token.*", ", but there is none", str(first["description"]))
            near = f", at {first['highlight']!r:.60}" if first["highlight"] else ""
            raise TopologyError(f"SQL, line {first['line']}:{first['col']}: {problem}{near}") from exc
        except TokenError as exc:
            raise TopologyError(f"SQL: the text cannot be read ({exc}); is a quote or bracket left open?") from exc
        if len(statements) != 1 or not isinstance(statements[0], exp.Select):
            raise TopologyError(f"SQL, line 1:1: {text.strip()[:40]!r}… is not a single SELECT; give one SELECT")
        self.select = statements[0]

    def _put_otherwise(self) -> str:
        """The text in a form that the dialect accepts, with every place unchanged."""
        made = list(self.text)
        for at, token in enumerate(self._tokens):
            if self._words(at, "SESSION", "("):
                made[token.start : token.end + 1] = SESSION
            elif self._words(at, ")", "WITHIN", "INTERVAL"):
                self.within_ms[token.start], last = self._within(at)
                for place in range(self._tokens[at + 1].start, last.end + 1):
                    made[place] = made[place] if made[place] == "\n" else " "
        return "".join(made)

    def _words(self, at: int, *words: str) -> bool:
        """Whether these words follow from a token on, none of them quoted."""
        found = self._tokens[at : at + len(words)]
        return len(found) == len(words) and all(
            t.token_type not in _QUOTED and t.text.upper() == w for t, w in zip(found, words, strict=True)
        )

    def _within(self, at: int) -> tuple[int, Token]:
        """The milliseconds of the ``WITHIN`` after a closing bracket, and its last token."""
        parts = self._tokens[at + 3 : at + 5]
        place = self.place(self._tokens[at + 2].start)
        if len(parts) < 2 or parts[0].token_type != TokenType.STRING or not re.fullmatch(r"\d+", parts[0].text):
            raise TopologyError(f"SQL, line {place}: give a duration such as INTERVAL '10' SECOND (MILLISECOND to DAY)")
        unit = parts[1].text.upper().removesuffix("S")
        if unit not in _UNITS_MS:
            raise TopologyError(f"SQL, line {self.place(parts[1].start)}: {parts[1].text} is not a unit of time here")
        return int(parts[0].text) * _UNITS_MS[unit], parts[1]

    def pattern(self, node: Any) -> int | None:
        """The place after ``PATTERN (`` in a node; ``None`` if it has none."""
        start = self.start(node)
        for at, token in enumerate(self._tokens):
            if token.start >= start and self._words(at, "PATTERN", "("):
                return int(self._tokens[at + 1].end) + 1
        return None

    def place(self, offset: int) -> str:
        """``line:column`` of a place in the text, counted from 1."""
        before = self.text[:offset]
        return f"{before.count(chr(10)) + 1}:{offset - (before.rfind(chr(10)) + 1) + 1}"

    def start(self, node: Any) -> int:
        """The beginning of a node: the first of its tokens whose place is known, else its parent's."""
        seen = node
        while isinstance(seen, exp.Expression):
            starts = [n.meta["start"] for n in seen.walk() if "start" in n.meta]
            if starts:
                return int(min(starts))
            seen = seen.parent
        return 0

    def error(self, node: Any, problem: str) -> TopologyError:
        """An error about a node, with its place."""
        return TopologyError(f"SQL, line {self.place(self.start(node))}: {problem}")

    @contextlib.contextmanager
    def at(self, node: Any) -> Iterator[None]:
        """Add the place in the text to errors that the DSL raises."""
        try:
            yield
        except TopologyError as exc:
            if str(exc).startswith("SQL"):
                raise
            raise self.error(node, str(exc)) from exc

    def only(self, node: exp.Expression, *allowed: str) -> None:
        """Refuse every part of a node that is not one of these."""
        for name, part in node.args.items():
            if part and name not in allowed:
                what = name.rstrip("_").replace("_", " ").upper()
                place = part[0] if isinstance(part, list) else part
                raise self.error(place if isinstance(place, exp.Expression) else node, f"{what} is not supported here")


def interval_ms(text: Text, node: Any) -> int:
    """The milliseconds of ``INTERVAL '10' SECOND``."""
    if isinstance(node, exp.Interval) and isinstance(node.this, exp.Literal):
        unit = str(node.args.get("unit") or "").upper().removesuffix("S")
        if unit in _UNITS_MS and re.fullmatch(r"\d+", str(node.this.this)):
            return int(node.this.this) * _UNITS_MS[unit]
    raise text.error(node, "give a duration such as INTERVAL '10' SECOND (MILLISECOND to DAY)")
