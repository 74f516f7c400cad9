"""Compile patterns to automata.

States are built from the last stage to the first; each stage gets the state after it (its sink). These choices decide
the semantics:

* An optional stage, or a loop that may be left, has a ``proceed`` edge to its sink. If an event were ignored and the
  state kept, every event would proceed to the sink again; so ignoring leads to a twin of the state without that edge.
* A greedy loop narrows the edges of its sink: no event that the loop takes goes along them. An event that ends the loop by
  ``until`` goes to a copy of the sink that is not narrowed.
* If the last stage is ``is_longest``, its exits lead to an ``ending`` state, from which an event that the stage does
  not take leads to the end. Its last repetition, if there is one, leads to the end at once.
* ``not_followed_by`` has no state of its own: every state in which it counts has a ``proceed`` edge to a stop state. It
  counts in the stage behind it, and in those behind optional stages; once such an optional stage has taken an event it no
  longer does, so the stage leads to a copy of its sink without those edges. In the loop before it, it counts from the
  loop's first event on.
* The contiguity of a group is that of its first stage; between repetitions of the group, its inner contiguity.
"""

from __future__ import annotations

import dataclasses
import zlib

from penstock.topologies.patterns.automaton import Automaton, EdgeType, State, patience_ms
from penstock.topologies.patterns.conditions import ALWAYS, Both, Condition, Either, Not
from penstock.topologies.patterns.pattern import Contiguity, Inner, Pattern, Stage

END = "(end)"


def compile_pattern(pattern: Pattern) -> Automaton:
    """Compile a pattern that has passed ``check``."""
    return _PatternCompiler(pattern).compile()


@dataclasses.dataclass(frozen=True)
class _Group:
    """The group around a stage. ``first``: whether this is its first repetition. ``spare``: whether it is optional."""

    stage: Stage
    first: bool
    spare: bool
    place: _StagePlace


@dataclasses.dataclass(frozen=True)
class _StagePlace:
    """A stage in its sequence; ``following``: the stage that comes next, also if it is after the group."""

    stages: tuple[Stage, ...]
    index: int
    group: _Group | None
    following: Stage | None

    @property
    def stage(self) -> Stage:
        return self.stages[self.index]

    @property
    def head(self) -> bool:
        """Whether it is the first stage of a group."""
        return self.group is not None and self.index == 0

    @property
    def until(self) -> Condition | None:
        """The conditions that end the loops of the groups around it."""
        if self.group is None:
            return None
        own, outer = self.group.stage.until, self.group.place.until
        return Either(own, outer) if own is not None and outer is not None else own or outer

    @property
    def contiguity(self) -> Contiguity | Inner:
        """The contiguity to what precedes the stage: the first one of a group as the group, or, when the group is
        repeated, as its inner contiguity says."""
        if self.index or self.group is None:
            return self.stage.contiguity
        return self.group.place.contiguity if self.group.first else self.group.stage.inner

    @property
    def gap_ms(self) -> int | None:
        """How soon it must follow, likewise."""
        if self.index or self.group is None:
            return self.stage.gap_ms
        return self.group.place.gap_ms if self.group.first else self.group.stage.repeat_gap_ms

    @property
    def heads_spare(self) -> bool:
        """Whether it is the first stage of an optional repetition."""
        if self.index or self.group is None:
            return False
        return self.group.spare or (self.group.first and self.group.place.heads_spare)


class _PatternCompiler:
    def __init__(self, pattern: Pattern) -> None:
        self.pattern = pattern
        self.names = pattern.names()
        self.states: list[State] = []
        self.stops: dict[str, State] = {}
        self.unnarrowed: dict[int, State] = {}
        """By sink: its copy made before a greedy loop narrowed it."""
        self.backs: dict[int, tuple[list[State], list[Condition]]] = {}
        """The states at the ends of repeated groups, whose edge back is added last: the copies that need it too, and
        the conditions that narrow it."""

    def compile(self) -> Automaton:
        end = self._state(END, -1, "final")
        start = self._sequence(self.pattern.stages, None, end, None)
        for state in self.states:
            state.patience_ms = patience_ms(state)
        return Automaton(
            states=tuple(self.states),
            start=start,
            names=self.names,
            within_ms=self.pattern.within_ms,
            skip=self.pattern.skip,
            shape=zlib.crc32(self.pattern.shape().encode()),
        )

    # -- sequences and stages ------------------------------------------------------------------------------------

    def _sequence(self, stages: tuple[Stage, ...], group: _Group | None, sink: State, following: Stage | None) -> State:
        """The first state of a sequence that leads to ``sink``."""
        for index in reversed(range(len(stages))):
            place = _StagePlace(stages, index, group, following)
            stage = place.stage
            if stage.contiguity == "not_followed_by":
                if sink.kind == "final":
                    sink = self._pending(place)
            elif stage.contiguity == "not_next":
                sink = self._not_next(place, sink)
            else:
                sink = self._stage(place, sink)
            following = stage
        return sink

    def _pending(self, place: _StagePlace) -> State:
        """The end of a pattern that ends in ``not_followed_by``."""
        taken = self._takes(place)
        state = self._new(place, place.stage.gap_ms, kind="pending")
        state.add("proceed", self._stop(place.stage, taken), taken)
        state.add("ignore", state, Not(taken))
        return state

    def _not_next(self, place: _StagePlace, sink: State) -> State:
        taken = self._takes(place)
        state = self._new(place, place.stage.gap_ms)
        # at the end wait for the event itself: ignore others instead of proceeding
        state.add("ignore" if sink.kind == "final" else "proceed", sink, Not(taken))
        state.add("proceed", self._stop(place.stage, taken), taken)
        return state

    def _stage(self, place: _StagePlace, sink: State) -> State:
        stage = place.stage
        beyond = self._ending(place, sink) if stage.is_longest else sink
        if stage.looping:
            loop = self._loop(place, self._without_nots(place, beyond))
            first = self._repeated(place, loop, beyond)
        elif stage.quantified:
            first = self._repeated(place, sink, beyond)
        else:
            gap = place.gap_ms
            first = self._single(place, sink, beyond, self._takes(place), self._ignores(place), stage.is_optional, gap)
        self._add_stops(first, place)
        return first

    def _ending(self, place: _StagePlace, end: State) -> State:
        """The state before the end of a pattern, in which a run of the last stage waits until it is over."""
        state = self._new(place, None, kind="ending")
        state.add("ignore", end, Not(self._takes(place)))
        return state

    def _repeated(self, place: _StagePlace, sink: State, beyond: State) -> State:
        """The counted repetitions of a stage, before ``sink``; from optional ones to ``beyond``."""
        stage = place.stage
        ignores = _unless(stage.until, self._inner_ignores(place))
        takes = _unless(stage.until, self._takes(place)) or ALWAYS
        low, high = stage.low, stage.low if stage.high is None else stage.high
        if stage.is_greedy and low != high:
            if stage.until is not None:
                self.unnarrowed[sink.index] = self._copy(sink)
            self._narrow(sink, takes)
        for count in range(high - 1):
            spare = count < high - low
            target = beyond if spare else None
            sink = self._single(place, sink, target, takes, ignores, spare, stage.repeat_gap_ms, first=False)
            self._add_stop_of_following(sink, place)
        own = self._ignores(place)
        return self._single(place, sink, beyond, takes, own, stage.is_optional, place.gap_ms)

    def _single(
        self,
        place: _StagePlace,
        sink: State,
        beyond: State | None,
        takes: Condition,
        ignores: Condition | None,
        optional: bool,
        gap_ms: int | None,
        *,
        first: bool = True,
    ) -> State:
        """One repetition of a stage before ``sink``; if optional, with an edge past it to ``beyond``."""
        stage = place.stage
        if stage.group is not None:
            spare = optional and beyond is not None
            head = self._sequence(stage.group.stages, _Group(stage, first, spare, place), sink, place.following)
            if beyond is not None and optional:
                head.add("proceed", beyond, self._always(place))
            return head
        state = self._new(place, gap_ms)
        sink = self._without_nots(place, sink)
        state.add("take", sink, takes)
        if optional and beyond is not None:
            self._leave(state, place, beyond, stage.until if stage.is_greedy else None)
        if ignores is not None:
            twin = state
            if optional or place.heads_spare:
                twin = self._new(place, gap_ms)
                twin.add("take", sink, takes)
                twin.add("ignore", twin, ignores)
                if first:
                    self._add_stops(twin, place)
                    self._add_stops_of_group(twin, place)
                else:
                    self._add_stop_of_following(twin, place)
            state.add("ignore", twin, ignores)
        return state

    def _leave(self, state: State, place: _StagePlace, beyond: State, until: Condition | None) -> None:
        """An exit from a state that need not take an event; ``until``: that of a greedy loop."""
        always = self._always(place)
        if until is None:
            state.add("proceed", beyond, always)
        else:
            state.add("proceed", self.unnarrowed.get(beyond.index, beyond), Both(always, until))
            state.add("proceed", beyond, Both(always, Not(until)))

    def _loop(self, place: _StagePlace, sink: State) -> State:
        """The part of a loop after its counted repetitions."""
        stage = place.stage
        if stage.group is not None:
            back = self._new_named(stage.group.names()[0], None)
            self.backs[back.index] = ([], [])
            head = self._sequence(stage.group.stages, _Group(stage, False, True, place), back, place.following)
            head.add("proceed", sink, self._always(place))
            copies, narrowings = self.backs[back.index]
            for copy in copies:
                copy.add("proceed", head, self._always(place))
            back.add("proceed", head, self._always(place))
            for takes in narrowings:
                _narrow(back, takes)
            self._add_stop_of_following(head, place)
            return head
        ignores = _unless(stage.until, self._inner_ignores(place))
        takes = _unless(stage.until, self._takes(place)) or ALWAYS
        state = self._new(place, stage.repeat_gap_ms)
        if stage.is_greedy and stage.until is not None:
            self.unnarrowed[sink.index] = self._copy(sink)
        self._leave(state, place, sink, stage.until if stage.is_greedy else None)
        if stage.is_greedy:
            self._narrow(sink, self._takes(place))
        state.add("take", state, takes)
        self._add_stop_of_following(state, place)
        if ignores is not None:
            twin = self._new(place, stage.repeat_gap_ms)
            twin.add("take", state, takes)
            twin.add("ignore", twin, ignores)
            state.add("ignore", twin, ignores)
            self._add_stop_of_following(twin, place)
        return state

    # -- what must not come --------------------------------------------------------------------------------------

    def _nots(self, place: _StagePlace) -> list[tuple[str, Condition]]:
        """The events forbidden before the stage: by a stage directly before it, or before optional stages that precede
        it."""
        found: list[tuple[str, Condition]] = []
        for index in reversed(range(place.index)):
            stage = place.stages[index]
            if stage.contiguity == "not_followed_by":
                before = _StagePlace(place.stages, index, place.group, None)
                found.append((str(stage.name), self._takes(before)))
            elif not stage.is_optional:
                break
        return found

    def _stop(self, stage: Stage, condition: Condition) -> State:
        name = str(stage.name)
        if name not in self.stops:
            stop = self.stops[name] = self._state(name, self.names.index(name), "stop")
            stop.add("take", stop, condition)
        return self.stops[name]

    def _add_stops(self, state: State, place: _StagePlace) -> None:
        for name, condition in self._nots(place):
            state.add("proceed", self._stop(Stage(name, "not_followed_by"), condition), condition)

    def _add_stop_of_following(self, state: State, place: _StagePlace) -> None:
        following = place.following
        if following is not None and following.contiguity == "not_followed_by":
            condition = following.takes if place.until is None else Both(Not(place.until), following.takes)
            state.add("proceed", self._stop(following, condition), condition)

    def _add_stops_of_group(self, state: State, place: _StagePlace) -> None:
        """The events forbidden before the group that this state waits for, or after the loop that the group is."""
        if place.index == 0 and place.group is not None:
            around = place.group.place
            if place.group.first:
                self._add_stops(state, around)
                self._add_stops_of_group(state, around)
            else:
                self._add_stop_of_following(state, around)

    def _without_nots(self, place: _StagePlace, sink: State) -> State:
        nots = {name for name, _ in self._nots(place)}
        if not nots or not place.stage.is_optional:
            return sink
        return self._copy_without(sink, nots, {})

    def _copy_without(self, state: State, nots: set[str], made: dict[int, State]) -> State:
        if state.index in made:
            return made[state.index]
        if state.kind == "final" or state.index in self.backs:
            return state
        copy = made[state.index] = self._state(state.name, state.stage, state.kind, state.gap_ms)
        for edge in state.edges:
            target = edge.target
            if target is state:
                target = copy
            elif edge.action == "proceed":
                if target.kind == "stop" and target.name in nots:
                    continue
                if target.kind != "stop":
                    target = self._copy_without(target, nots, made)
            copy.add(edge.action, target, edge.condition)
        return copy

    # -- conditions ----------------------------------------------------------------------------------------------

    def _takes(self, place: _StagePlace) -> Condition:
        return _unless(place.until, place.stage.takes) or ALWAYS

    def _always(self, place: _StagePlace) -> Condition:
        return ALWAYS if place.until is None else Not(place.until)

    def _ignores(self, place: _StagePlace) -> Condition | None:
        """The events that may be skipped while waiting for the stage; ``None``: none."""
        return _unless(place.until, _passing(place.contiguity, place.stage))

    def _inner_ignores(self, place: _StagePlace) -> Condition | None:
        """The events that may be skipped between repetitions; ``None``: none."""
        inner = place.group.stage.inner if place.head and place.group is not None else place.stage.inner
        return _unless(place.until, _passing(inner, place.stage))

    # -- states --------------------------------------------------------------------------------------------------

    def _new(self, place: _StagePlace, gap_ms: int | None, *, kind: EdgeType = "normal") -> State:
        return self._new_named(str(place.stage.name), gap_ms, kind)

    def _new_named(self, name: str, gap_ms: int | None, kind: EdgeType = "normal") -> State:
        return self._state(name, self.names.index(name), kind, gap_ms)

    def _state(self, name: str, stage: int, kind: EdgeType, gap_ms: int | None = None) -> State:
        state = State(len(self.states), name, stage, kind, gap_ms)
        self.states.append(state)
        return state

    def _copy(self, state: State) -> State:
        if state.kind == "final":
            return state
        copy = self._state(state.name, state.stage, state.kind, state.gap_ms)
        if state.index in self.backs:
            self.backs[state.index][0].append(copy)
        for edge in state.edges:
            copy.add(edge.action, copy if edge.target is state else edge.target, edge.condition)
        return copy

    def _narrow(self, sink: State, takes: Condition) -> None:
        """Narrow the edges of the sink, so that no event that a greedy loop takes goes along them."""
        if sink.index in self.backs:
            self.backs[sink.index][1].append(takes)
        _narrow(sink, takes)


def _passing(contiguity: Contiguity | Inner, stage: Stage) -> Condition | None:
    """The events that this contiguity skips."""
    if contiguity in ("followed_by", "relaxed"):
        return Not(stage.takes)
    if contiguity in ("followed_by_any", "combinations"):
        return ALWAYS
    return None


def _unless(until: Condition | None, condition: Condition | None) -> Condition | None:
    return condition if until is None or condition is None else Both(Not(until), condition)


def _narrow(sink: State, takes: Condition) -> None:
    for edge in sink.edges:
        edge.condition = Both(edge.condition, Not(takes))
