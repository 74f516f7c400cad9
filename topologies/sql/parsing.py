"""From text to sqlglot's tree, and from a node of the tree back to its place in the text.

sqlglot reads the dialect of Trino, which has MATCH_RECOGNIZE; ``WITHIN`` behind a pattern, as Flink has it, is taken out
of the text before.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, TokenError

from penstock.state.errors import TopologyError

_UNITS_MS = {"MILLISECOND": 1, "SECOND": 1000, "MINUTE": 60_000, "HOUR": 3_600_000, "DAY": 86_400_000}
_WITHIN = re.compile(r"\)(\s*)(WITHIN\s+INTERVAL\s+'(\d+)'\s+([A-Za-z]+))", re.IGNORECASE)

_SESSION = re.compile(r"\bSESSION(?=\s*\()", re.IGNORECASE)
SESSION = "SESSI0N"
"""What stands for SESSION, of equal length: a word of the dialect that cannot name a function."""


class Text:
    """One statement: its text, its tree, and the ``WITHIN`` durations in milliseconds by the place of their pattern's
    closing bracket. Raises ``TopologyError`` for what is no single SELECT."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.within_ms: dict[int, int] = {}
        plain = _WITHIN.sub(self._taken_out, text)
        try:
            statements = sqlglot.parse(_SESSION.sub(SESSION, plain), read="trino")
        except ParseError as exc:
            first = exc.errors[0]
            problem = re.sub(r" but got <Token.*", ", but there is none", str(first["description"]))
            raise TopologyError(f"SQL, line {first['line']}:{first['col']}: {problem}") from exc
        except TokenError as exc:
            raise TopologyError(f"SQL: the text cannot be read ({exc}); is a quote or bracket left open?") from exc
        if len(statements) != 1 or not isinstance(statements[0], exp.Select):
            raise TopologyError(f"SQL, line 1:1: {text.strip()[:40]!r}… is no single SELECT; give one SELECT")
        self.select = statements[0]

    def _taken_out(self, match: re.Match[str]) -> str:
        unit = match[4].upper().removesuffix("S")
        if unit not in _UNITS_MS:
            raise TopologyError(f"SQL, line {self.place(match.start(4))}: {match[4]} is no unit of time here")
        self.within_ms[match.start()] = int(match[3]) * _UNITS_MS[unit]
        return ")" + match[1] + re.sub(r"[^\n]", " ", match[2])

    def place(self, offset: int) -> str:
        """``line:column`` of a place in the text, counted from 1."""
        before = self.text[:offset]
        return f"{before.count(chr(10)) + 1}:{offset - (before.rfind(chr(10)) + 1) + 1}"

    def start(self, node: Any) -> int:
        """Where a node begins: the first of its tokens whose place is known, else its parent's."""
        seen = node
        while isinstance(seen, exp.Expression):
            starts = [n.meta["start"] for n in seen.walk() if "start" in n.meta]
            if starts:
                return int(min(starts))
            seen = seen.parent
        return 0

    def error(self, node: Any, problem: str) -> TopologyError:
        """The refusal of a node."""
        return TopologyError(f"SQL, line {self.place(self.start(node))}: {problem}")

    @contextlib.contextmanager
    def at(self, node: Any) -> Iterator[None]:
        """Tells where what the DSL refuses stands in the text."""
        try:
            yield
        except TopologyError as exc:
            if str(exc).startswith("SQL"):
                raise
            raise self.error(node, str(exc)) from exc

    def only(self, node: exp.Expression, *allowed: str) -> None:
        """Refuse every part of a node that is none of these."""
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
