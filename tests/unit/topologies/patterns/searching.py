"""Patterns over words: ``find(pattern, "c a1 a2 b")`` gives what is found in those events, as words again."""

from __future__ import annotations

from collections.abc import Callable

import orjson

from penstock.topologies.patterns.compiler import compile_pattern
from penstock.topologies.patterns.matcher import Match, Matcher
from penstock.topologies.patterns.pattern import Pattern, pattern
from penstock.topologies.patterns.state import NOTHING, KeyState, decode, encode


def starts(letter: str) -> Callable[[str], bool]:
    return lambda event: event.startswith(letter)


def words(text: str) -> Pattern:
    """``"a . b"``: stages by their letters, ``>`` next, ``.`` followed by, ``*`` followed by any."""
    parts = text.split()
    made = pattern(parts[0]).where(starts(parts[0]))
    for sign, name in zip(parts[1::2], parts[2::2], strict=True):
        add = {">": made.next, ".": made.followed_by, "*": made.followed_by_any}[sign]
        made = add(name).where(starts(name))
    return made


class Search:
    """A matcher that is shown one event after the other."""

    def __init__(self, looked_for: Pattern) -> None:
        looked_for.check("search")
        self.matcher = Matcher(compile_pattern(looked_for), orjson.dumps, orjson.loads)
        self.state: KeyState = NOTHING
        self.matches: list[Match] = []
        self.timeouts: list[Match] = []

    def event(self, value: object, ts: int) -> None:
        self.time(ts)
        outcome = self.matcher.step(self.state, value, ts)
        self.state = outcome.state
        self.matches += outcome.matches
        # what is stored is all there is
        assert decode(encode(self.state, 1), 1, "search") == self.state._replace(
            held=tuple(p._replace(state=-1) for p in self.state.held)
        )

    def time(self, now_ms: int) -> None:
        outcome = self.matcher.advance(self.state, now_ms)
        self.state = outcome.state
        self.matches += outcome.matches
        self.timeouts += outcome.timeouts


def search(looked_for: Pattern, events: str) -> Search:
    """Events are words, one per millisecond, or ``word@time``."""
    made = Search(looked_for)
    for number, word in enumerate(events.split()):
        name, _, ts = word.partition("@")
        made.event(name, int(ts) if ts else number)
    return made


def shown(matches: list[Match]) -> list[str]:
    """Each match's events in the order of its stages, sorted."""
    return sorted(" ".join(str(e) for events in m.events.values() for e in events) for m in matches)


def find(looked_for: Pattern, events: str) -> list[str]:
    return shown(search(looked_for, events).matches)
