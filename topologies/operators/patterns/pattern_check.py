"""A pattern on a few events, for the check of compiled kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.state import native
from penstock.topologies.operators.patterns.condition_bits import ConditionBits
from penstock.topologies.operators.patterns.packed_matches import patterns_of
from penstock.topologies.patterns.compiler import compile_pattern
from penstock.topologies.patterns.matcher import Match, Matcher
from penstock.topologies.patterns.pattern import pattern
from penstock.topologies.patterns.skip import skip_to_next
from penstock.topologies.patterns.state import NOTHING, decode

_KEYS = [b"a", b"", b"b"]
_EVENTS = b"xyxxzyxyyxzxxyzyxxyy" * 3
_LAST_MS = 1_000


def _pattern() -> Any:
    """One with a loop, an optional stage, something that must not come, and a limit of time."""
    made = (
        pattern("x")
        .where(lambda event: event == b"x")
        .one_or_more()
        .followed_by("y")
        .where(lambda event: event == b"y")
    )
    made = made.optional().followed_by("w").where(lambda event: event != b"z").not_followed_by("z")
    made = made.where(lambda event: event == b"z").followed_by_any("end").where(lambda event: event == b"x")
    return made.within(40).after_match(skip_to_next())


def patterns_matched() -> Any:
    """Matches and timeouts of each key, and its partial matches before the last time."""
    automaton = compile_pattern(_pattern())
    bits = ConditionBits(automaton)
    events = [bytes([_EVENTS[n]]) for n in range(len(_EVENTS))]
    numbers = np.arange(len(events)) * 7 % 5 % 3
    times = 3 * np.arange(len(events), dtype=np.int64)
    patterns = patterns_of(automaton, bits)
    if native.compiled() is None or patterns is None:
        return _matched(Matcher(automaton, bytes, bytes), events, numbers.tolist(), times.tolist())
    patterns.begin(-1, 0)
    out: dict[bytes, list[Any]] = {name: [] for name in _KEYS}
    states: dict[bytes, Any] = {}
    half = len(events) // 2
    for part in (slice(0, half), slice(half, None), slice(0, 0)):
        for name in _KEYS:
            patterns.hold(name, states.get(name))
        some, marks = events[part], times[part] if len(events[part]) else np.array([_LAST_MS])
        of_events = np.array([bits.of_value(event) for event in some], np.uint64)
        at, offsets = np.arange(len(some)), np.arange(len(some) + 1)
        found = patterns.take(_KEYS, numbers[part], times[part], of_events, at, marks, b"".join(some), offsets)
        for _, name, ts, timed_out, stages in found[1]:
            out[name].append((ts, timed_out, [(automaton.names[stage], event) for stage, event in stages]))
        if len(some):
            changed = patterns.changes()
            states |= zip(changed[0], changed[1], strict=True)
            patterns.begin(int(marks[-1]), len(events))
    return [(name, out[name], _left(states.get(name), automaton.shape)) for name in _KEYS]


def _left(entry: bytes | None, shape: int) -> Any:
    state = NOTHING if entry is None else decode(entry[8:], shape, "check")
    return state.next_event, state.partials, state.held


def _matched(matcher: Matcher, events: list[bytes], numbers: list[int], times: list[int]) -> Any:
    out: list[Any] = []
    for key, name in enumerate(_KEYS):
        state, listed = NOTHING, []
        mine = [(event, ts) for event, number, ts in zip(events, numbers, times, strict=True) if number == key]
        for event, ts in mine:
            advanced = matcher.advance(state, ts)
            stepped = matcher.step(advanced.state, event, ts)
            listed += _handed(advanced.timeouts, timed_out=True)
            listed += _handed((*advanced.matches, *stepped.matches), timed_out=False)
            state = stepped.state
        advanced = matcher.advance(state, times[-1])
        left = advanced.state
        last = matcher.advance(left, _LAST_MS)
        for step in (advanced, last):
            listed += [*_handed(step.timeouts, timed_out=True), *_handed(step.matches, timed_out=False)]
        out.append((name, listed, (left.next_event, tuple(left.partials), left.held)))
    return out


def _handed(found: tuple[Match, ...], *, timed_out: bool) -> list[Any]:
    return [(m.ts, timed_out, [(name, e) for name, events in m.events.items() for e in events]) for m in found]
