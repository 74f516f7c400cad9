"""The matcher: a pure function of a key's partial matches and an event or a time.

Rules:

* ``step`` shows an event to every partial match, and to the start, from which a new one may begin at each event. The edges
  that are open to the event are those of the partial match's state and, over ``proceed`` edges, of the states behind it.
  Each open ``take`` or ``ignore`` edge gives one partial match; one whose path can already proceed to the end is a match.
* An event for which an edge to a stop state is open ends the partial match; matches that it completes still count.
* Two partial matches with the same path in the same state are one.
* ``advance`` sets the time. A partial match times out if its first event is ``within`` or more ago, or if its last
  event is so old that no stage it waits for will take another; if it waits for a forbidden event, or for the end of its
  run, it becomes a match then. Call it with an event's timestamp before ``step`` takes the event.
* If no condition depends on what a partial match has taken, all partial matches in one state have the same open edges,
  which are found once. An event that leaves the partial matches of every state unchanged looks at none of them, so the
  work per event does not grow with the partial matches that only wait.
* Found matches go through the skip strategy (``penstock.topologies.patterns.skip``).

A step either succeeds or raises what the user's condition raised, and changes nothing of what it was given.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from penstock.state.errors import ProcessingError
from penstock.topologies.patterns.automaton import Automaton, Edge, State
from penstock.topologies.patterns.conditions import User
from penstock.topologies.patterns.partials import NEVER, PartialMatches
from penstock.topologies.patterns.skip import Skip
from penstock.topologies.patterns.state import NOTHING, Kept, KeyState, Partial, PathNode

MatchedEvents = dict[str, list[Any]]
"""The events of a match by the name of their stage: names in the order of their first events, events oldest first."""


class Match(NamedTuple):
    """A match, or a partial one that timed out. ``ts``: of its last event, or when its time was up."""

    events: MatchedEvents
    ts: int


class MatchStep(NamedTuple):
    """The next state of the key, the matches found and the partial matches timed out, in order."""

    state: KeyState
    matches: tuple[Match, ...]
    timeouts: tuple[Match, ...]


class _Event:
    """The current event; its bytes are made when a path first holds it."""

    __slots__ = ("_data", "_kept", "number", "ts", "value")

    def __init__(self, value: Any, ts: int, number: int, data: bytes | None) -> None:
        self.value = value
        self.ts = ts
        self.number = number
        self._data = data
        self._kept: Kept | None = None

    def kept(self, encode: Callable[[Any], bytes]) -> Kept:
        """The event as paths hold it: one object for all."""
        if self._kept is None:
            self._kept = Kept(self.number, encode(self.value) if self._data is None else self._data)
        return self._kept


class Matcher:
    """Runs an automaton. ``encode`` and ``decode`` are those of the events' serde; every result is decoded again."""

    def __init__(self, automaton: Automaton, encode: Callable[[Any], bytes], decode: Callable[[bytes], Any]) -> None:
        self.automaton = automaton
        self._encode = encode
        self._decode = decode
        self._alike = [_alike(state) for state in automaton.states]
        """By state: whether its partial matches have the same open edges for an event."""

    def advance(self, state: KeyState, now_ms: int) -> MatchStep:
        """Advance the time to ``now_ms``."""
        partials = PartialMatches.of(state.partials)
        gone = partials.ended(now_ms, self._ends_at)
        if gone == 0:
            return MatchStep(state, (), ())
        timeouts: list[Match] = []
        certain: list[tuple[Partial, int]] = []
        left: list[Partial] = []
        for partial in partials if gone is None else partials[:gone]:
            end = self._ends_at(partial)
            if end > now_ms:
                left.append(partial)
            elif (kind := self.automaton.states[partial.state].kind) in ("pending", "ending"):
                certain.append((partial, int(end) if kind == "pending" else partial.last_ms))
            else:
                timeouts.append(Match(self._events(partial.node), int(end)))
        if gone is not None:
            rest = partials.without_first(gone, self._ends_at)
            if not certain and not state.held:
                return MatchStep(_left(state, rest, []), (), tuple(timeouts))
            left = list(rest)
        at = {id(p.node): end for p, end in certain}
        found = [p for p, _ in certain]
        matches, left, held = self._skip(state, found, left, at)
        return MatchStep(_left(state, left, held), tuple(matches), tuple(timeouts))

    def step(
        self, state: KeyState, value: Any, ts: int, processing_time: int = 0, data: bytes | None = None
    ) -> MatchStep:
        """Take an event; the time has been advanced to ``ts``. ``data``: its bytes, if known."""
        event = _Event(value, ts, state.next_event, data)
        shared: dict[int, bool] = {}
        kept = PartialMatches.of(state.partials)
        opened: dict[int, list[tuple[Edge, State]]] = {}
        for index in kept.states:
            if self._alike[index]:
                opened[index] = self._open(kept[0], _Scope(self, kept[0], event, processing_time, shared), ts, index)
        idle = {index for index, edges in opened.items() if _only_waits(edges, index)}
        waiting = len(idle) == len(kept.states)
        taken: dict[tuple[int, int], PathNode] = {}
        partials: dict[tuple[int, int], Partial] = {}
        found: dict[int, Partial] = {}
        for partial in (None,) if waiting else (*kept, None):
            if partial is not None and partial.state in idle:
                partials.setdefault((partial.state, id(partial.node)), partial)
                continue
            scope = _Scope(self, partial, event, processing_time, shared)
            stopped = False
            reached: list[Partial] = []
            edges = None if partial is None else opened.get(partial.state)
            for edge, source in self._open(partial, scope, ts) if edges is None else edges:
                new = self._follow(partial, edge, source, event, taken)
                if new is None:
                    continue
                kind = edge.target.kind
                if kind == "final":
                    found.setdefault(id(new.node), new)
                elif kind == "stop":
                    stopped = True
                else:
                    reached.append(new)
                    if edge.action == "take":
                        for beyond in self._settled(edge.target, scope):
                            if beyond.kind == "final":
                                found.setdefault(id(new.node), new)
                            else:
                                reached.append(new._replace(state=beyond.index))
            if not stopped:
                for new in reached:
                    partials.setdefault((new.state, id(new.node)), new)
        if waiting and not found:
            if not partials:
                return MatchStep(state, (), ())
            more = kept.with_more(list(partials.values()), self._ends_at)
            return MatchStep(state._replace(next_event=event.number + 1, partials=more), (), ())
        if waiting:
            partials = {(p.state, id(p.node)): p for p in kept} | partials
        if not taken and not found and _same(state.partials, partials):
            return MatchStep(state, (), ())
        matches, left, held = self._skip(state, list(found.values()), list(partials.values()), {})
        now = state._replace(next_event=event.number + 1)
        return MatchStep(_left(now, left, held), tuple(matches), ())

    def limited(self, state: KeyState, most: int) -> MatchStep:
        """Keep the ``most`` newest partial matches. Matches that waited for the others are found."""
        left = list(state.partials[max(len(state.partials) - most, 0) :])
        matches, left, held = self._skip(state, [], left, {})
        return MatchStep(_left(state, left, held), tuple(matches), ())

    def next_end_ms(self, state: KeyState) -> int | None:
        """When the first partial match times out; ``None``: never."""
        end = PartialMatches.of(state.partials).first_end(self._ends_at)
        return None if end == NEVER else int(end)

    # -- edges ---------------------------------------------------------------------------------------------------

    def _open(
        self, partial: Partial | None, scope: _Scope, ts: int, index: int | None = None
    ) -> list[tuple[Edge, State]]:
        """The edges that the event may go along, with their states of origin. Loops first, then what follows.
        ``index``: of any partial match in this state."""
        start = self.automaton.start if partial is None else self.automaton.states[partial.state]
        if index is not None:
            start = self.automaton.states[index]
        found: list[tuple[Edge, State]] = []
        seen = {start.index}
        waiting = [start]
        while waiting:
            at = waiting.pop()
            late = partial is not None and at.gap_ms is not None and ts - partial.last_ms >= at.gap_ms
            for edge in at.edges:
                if edge.action == "proceed":
                    if edge.target.index not in seen and edge.condition.test(scope):
                        seen.add(edge.target.index)
                        waiting.append(edge.target)
                elif not (late and edge.action == "take") and edge.condition.test(scope):
                    found.append((edge, at))
        return found

    def _settled(self, state: State, scope: _Scope) -> list[State]:
        """The ends that a path which has come to a state can proceed to: it is a match, or will be if nothing comes."""
        found = []
        seen = {state.index}
        waiting = [state]
        while waiting:
            for edge in waiting.pop().edges:
                if edge.action == "proceed" and edge.target.index not in seen and edge.condition.test(scope):
                    seen.add(edge.target.index)
                    if edge.target.kind in ("final", "pending", "ending"):
                        found.append(edge.target)
                    else:
                        waiting.append(edge.target)
        return found

    def _follow(
        self, partial: Partial | None, edge: Edge, source: State, event: _Event, taken: dict[tuple[int, int], PathNode]
    ) -> Partial | None:
        """The partial match after the edge; ``None`` for an event that the start skips."""
        if edge.action == "ignore":
            if partial is None or partial.state == edge.target.index:
                return partial
            return partial._replace(state=edge.target.index)
        parent = None if partial is None else partial.node
        if edge.target.kind == "stop":
            node = parent or PathNode(source.stage, event.kept(self._encode), None, event.number)
        else:
            at = (source.stage, id(parent))
            if at not in taken:
                first = event.number if parent is None else parent.first
                taken[at] = PathNode(source.stage, event.kept(self._encode), parent, first)
            node = taken[at]
        return Partial(edge.target.index, event.ts if partial is None else partial.start_ms, event.ts, node)

    # -- time ----------------------------------------------------------------------------------------------------

    def _ends_at(self, partial: Partial) -> float:
        within, patience = self.automaton.within_ms, self.automaton.states[partial.state].patience_ms
        end = NEVER if within is None else partial.start_ms + within
        return end if patience is None else min(end, partial.last_ms + patience)

    # -- matches -------------------------------------------------------------------------------------------------

    def _skip(
        self, state: KeyState, found: list[Partial], partials: list[Partial], at: dict[int, int]
    ) -> tuple[list[Match], list[Partial], list[Partial]]:
        """The matches to emit, and the remaining partial and held ones. ``at``: by node, when matches that waited for
        an event not to come became certain."""
        skip = self.automaton.skip
        held = sorted((*state.held, *found), key=_first_event)
        matches: list[Match] = []
        while held and (skip.strategy == "no_skip" or not any(p.node.first < held[0].node.first for p in partials)):
            match = held.pop(0)
            matches.append(Match(self._events(match.node), at.get(id(match.node), match.last_ms)))
            bar = _bar(skip, match.node, self.automaton.names)
            if bar is not None:
                held = [p for p in held if p.node.first >= bar]
                partials = [p for p in partials if p.node.first >= bar]
        return matches, partials, held

    def _events(self, node: PathNode) -> MatchedEvents:
        events: MatchedEvents = {}
        for at in _path(node):
            events.setdefault(self.automaton.names[at.stage], []).append(self._decode(at.event.data))
        return events

    def taken(self, partial: Partial | None, name: str | None) -> list[Any]:
        """The events of a partial match, of one stage or of all, decoded."""
        stage = None if name is None else self._stage(name)
        path = [] if partial is None else _path(partial.node)
        return [self._decode(n.event.data) for n in path if stage is None or n.stage == stage]

    def _stage(self, name: str) -> int:
        names = self.automaton.names
        if name not in names:
            raise ProcessingError(
                f"a condition asks for the events of {name!r}, but the stages of the pattern are: {', '.join(names)}"
            )
        return names.index(name)


class _Scope:
    """One event before one partial match: the ``Scope`` of conditions and the user's ``MatchContext``."""

    __slots__ = ("_event", "_matcher", "_own", "_partial", "_shared", "processing_time")

    def __init__(
        self,
        matcher: Matcher,
        partial: Partial | None,
        event: _Event,
        processing_time: int,
        shared: dict[int, bool],
    ) -> None:
        self._matcher = matcher
        self._partial = partial
        self._event = event
        self._shared = shared
        self._own: dict[int, bool] = {}
        self.processing_time = processing_time

    @property
    def timestamp(self) -> int:
        return self._event.ts

    def events(self, name: str | None = None) -> list[Any]:
        return self._matcher.taken(self._partial, name)

    def holds(self, condition: User) -> bool:
        known = self._own if condition.iterative else self._shared
        if id(condition) not in known:
            value = self._event.value
            try:
                found = condition.fn(value, self) if condition.iterative else condition.fn(value)
            except Exception as exc:
                exc.add_note(f"in the condition of {condition.where}")
                raise
            known[id(condition)] = bool(found)
        return known[id(condition)]


def _alike(start: State) -> bool:
    """Whether the open edges at a state depend on the event alone."""
    users: list[User] = []

    def seen(user: User) -> User:
        users.append(user)
        return user

    states = {start.index}
    waiting = [start]
    while waiting:
        at = waiting.pop()
        if at.gap_ms is not None:
            return False
        for edge in at.edges:
            edge.condition.replaced(seen)
            if edge.action == "proceed" and edge.target.index not in states:
                states.add(edge.target.index)
                waiting.append(edge.target)
    return not any(user.iterative for user in users)


def _only_waits(edges: list[tuple[Edge, State]], index: int) -> bool:
    """Whether these open edges leave a partial match unchanged in its state."""
    return len(edges) == 1 and edges[0][0].action == "ignore" and edges[0][0].target.index == index


def _same(before: tuple[Partial, ...], after: dict[tuple[int, int], Partial]) -> bool:
    return len(before) == len(after) and all(map(operator.is_, before, after.values()))


def _left(state: KeyState, partials: Sequence[Partial], held: list[Partial]) -> KeyState:
    """The state with these partial and held matches; numbers restart if there are none."""
    if not partials and not held:
        return NOTHING._replace(alarm_ms=state.alarm_ms)
    return state._replace(partials=PartialMatches.of(partials), held=tuple(held))


def _first_event(partial: Partial) -> int:
    return partial.node.first


def _path(node: PathNode) -> list[PathNode]:
    """The nodes of a path, oldest first."""
    path = []
    at: PathNode | None = node
    while at is not None:
        path.append(at)
        at = at.parent
    path.reverse()
    return path


def _bar(skip: Skip, node: PathNode, names: tuple[str, ...]) -> int | None:
    """The first event with which other matches may still begin once this match is emitted; ``None``: any."""
    if skip.strategy == "no_skip":
        return None
    if skip.strategy == "skip_to_next":
        return node.first + 1
    if skip.strategy == "skip_past_last_event":
        return node.event.number + 1
    there = [n.event.number for n in _path(node) if names[n.stage] == skip.stage]
    if not there:
        if skip.fails_on_miss:
            raise ProcessingError(f"{skip}: the match has no event of this stage; its skip strategy says that it must")
        return None
    bar = there[0] if skip.strategy == "skip_to_first" else there[-1]
    if skip.fails_on_miss and bar == node.first:
        raise ProcessingError(
            f"{skip}: this is the match's first event, from which the same match would be found again; skip to a later stage"
        )
    return bar
