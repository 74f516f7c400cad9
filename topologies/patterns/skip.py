"""Skip strategies: what happens to other matches once one is found.

Matches are emitted in the order of their first events: under every strategy but ``no_skip`` a match is held until no
partial match with an earlier first event is left. Each emitted match removes partial and held matches by the position
of *their* first event:

| strategy | removed: those that begin |
| --- | --- |
| ``no_skip()`` | (none) |
| ``skip_to_next()`` | with the match's first event |
| ``skip_past_last_event()`` | with any event up to the match's last |
| ``skip_to_first(name)`` | before the first event of that stage |
| ``skip_to_last(name)`` | before the last event of that stage |

The last two remove nothing if the match has no event of the stage; with ``.error_on_miss()`` that is a
``ProcessingError``, and so is a skip to the match's own first event, which would find it again.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

SkipStrategy = Literal["no_skip", "skip_to_next", "skip_past_last_event", "skip_to_first", "skip_to_last"]


@dataclasses.dataclass(frozen=True)
class Skip:
    """An after-match skip strategy; create it with the functions of this module."""

    strategy: SkipStrategy
    stage: str | None = None
    fails_on_miss: bool = False

    def error_on_miss(self) -> Skip:
        """Fail, by the operator's error policy, when the match has no event of the stage."""
        return dataclasses.replace(self, fails_on_miss=True)

    def __str__(self) -> str:
        text = self.strategy if self.stage is None else f"{self.strategy}({self.stage})"
        return f"{text}.error_on_miss" if self.fails_on_miss else text


def no_skip() -> Skip:
    """Every match counts (the default)."""
    return Skip("no_skip")


def skip_to_next() -> Skip:
    """At most one match per first event."""
    return Skip("skip_to_next")


def skip_past_last_event() -> Skip:
    """No two matches overlap."""
    return Skip("skip_past_last_event")


def skip_to_first(stage: str) -> Skip:
    """Go on from the first event that the match has for the stage."""
    return Skip("skip_to_first", stage)


def skip_to_last(stage: str) -> Skip:
    """Go on from the last event that the match has for the stage."""
    return Skip("skip_to_last", stage)
