"""A pattern as an automaton: states, and edges along which an event may move it.

``take``: the event becomes part of the match, under the name of the edge's state of origin. ``ignore``: the event is
skipped. ``proceed``: the event is tried again from the target state, as if the match were already there.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

from penstock.topologies.patterns.conditions import ALWAYS, Condition
from penstock.topologies.patterns.skip import Skip

Action = Literal["take", "ignore", "proceed"]
EdgeType = Literal["normal", "final", "stop", "pending", "ending"]
"""``final``: a match. ``stop``: a forbidden event has come. ``pending``: a match unless a forbidden event comes in
time. ``ending``: a match once the run of its last stage is over, by an event or by time."""


@dataclasses.dataclass(eq=False)
class Edge:
    """An edge out of a state. The condition may be narrowed while the automaton is built, never afterwards."""

    action: Action
    target: State
    condition: Condition


@dataclasses.dataclass(eq=False)
class State:
    """A state. ``stage``: the place of its name among the pattern's names. ``gap_ms``: an event is taken here only less
    than this after the one before it."""

    index: int
    name: str
    stage: int
    kind: EdgeType = "normal"
    gap_ms: int | None = None
    edges: list[Edge] = dataclasses.field(default_factory=list)
    patience_ms: int | None = None
    """How long after the last event taken the state can still lead to a match; ``None``: unlimited."""

    def add(self, action: Action, target: State, condition: Condition = ALWAYS) -> None:
        """Add an edge."""
        self.edges.append(Edge(action, target, condition))


@dataclasses.dataclass(frozen=True, eq=False)
class Automaton:
    """A compiled pattern. ``names``: the names of the stages, as numbered by paths. ``shape`` identifies it in stored
    state."""

    states: tuple[State, ...]
    start: State
    names: tuple[str, ...]
    within_ms: int | None
    skip: Skip
    shape: int


def patience_ms(state: State) -> int | None:
    """The value for ``State.patience_ms``: the longest gap of the states that take an event from here."""
    if state.kind == "pending":
        return state.gap_ms
    longest = 0
    seen: set[int] = set()
    waiting = [state]
    while waiting:
        at = waiting.pop()
        if at.index in seen or at.kind == "stop":
            continue
        seen.add(at.index)
        for edge in at.edges:
            if edge.action == "proceed" or (edge.action == "ignore" and edge.target.kind != "final"):
                waiting.append(edge.target)
            elif at.gap_ms is None:
                return None
            else:
                longest = max(longest, at.gap_ms)
    return longest or None
