"""The partial matches of one key, as a value, and their bytes.

Nothing here is changed in place: a step makes a new state that shares the unchanged parts. Paths share their beginnings
as linked nodes. An event is kept once, as the bytes of its serde, for as long as a path holds it, under a number that
only grows while any event is kept.

Bytes: msgpack ``[version, shape, next_event, alarm_ms, events, nodes, partials, held]``; events ``[number, bytes]``, nodes
``[stage, event number, place of the parent or -1]``, parents first; partial matches ``[state, start ms, last ms, place of
the node]``, held ones without state. Everything is ordered by creation, so equal histories give equal bytes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from penstock.state.errors import IncompatibleError
from penstock.state.serdes.serde import Serde

VERSION = 1


class Kept(NamedTuple):
    """An event that paths hold, as its bytes. ``number``: its index among the key's events."""

    number: int
    data: bytes


class PathNode(NamedTuple):
    """An event in a path: taken for ``stage`` (its index among the pattern's names), after those of ``parent``."""

    stage: int
    event: Kept
    parent: PathNode | None
    first: int
    """The number of the path's first event."""


class Partial(NamedTuple):
    """A path at a state of the automaton. ``start_ms`` and ``last_ms``: timestamps of its first and last events."""

    state: int
    start_ms: int
    last_ms: int
    node: PathNode


class KeyState(NamedTuple):
    """The pattern state of one key. ``held``: matches that wait for earlier partial ones (under a skip strategy; their
    ``state`` means nothing). ``alarm_ms``: the operator's timer for this key."""

    next_event: int = 0
    partials: tuple[Partial, ...] = ()
    held: tuple[Partial, ...] = ()
    alarm_ms: int | None = None

    @property
    def empty(self) -> bool:
        """Whether it can be deleted without loss."""
        return not self.partials and not self.held


NOTHING = KeyState()


def encode(state: KeyState, shape: int) -> bytes:
    """Encode a state of the pattern with this ``shape``."""
    places: dict[int, int] = {}
    nodes: list[tuple[int, int, int]] = []
    events: dict[int, bytes] = {}

    def place(node: PathNode) -> int:
        chain = []
        at: PathNode | None = node
        while at is not None and id(at) not in places:
            chain.append(at)
            at = at.parent
        for new in reversed(chain):
            parent = -1 if new.parent is None else places[id(new.parent)]
            places[id(new)] = len(nodes)
            nodes.append((new.stage, new.event.number, parent))
            events[new.event.number] = new.event.data
        return places[id(node)]

    partials = [(p.state, p.start_ms, p.last_ms, place(p.node)) for p in state.partials]
    held = [(p.start_ms, p.last_ms, place(p.node)) for p in state.held]
    head = (VERSION, shape, state.next_event, state.alarm_ms)
    return msgspec.msgpack.encode((*head, sorted(events.items()), nodes, partials, held))


def decode(data: bytes, shape: int, operator: str) -> KeyState:
    """Decode a state. Raises ``IncompatibleError`` if the bytes are of another pattern or format."""
    version, found, *rest = msgspec.msgpack.decode(data)
    if version != VERSION or found != shape:
        raise IncompatibleError(
            f"operator {operator!r}: its store holds partial matches of another pattern (shape {found}, format {version}; "
            f"this one is {shape}, format {VERSION}); give the operator a new name, which starts it with empty state, or go "
            "back to the pattern that wrote them"
        )
    next_event, alarm_ms, raw_events, raw_nodes, partials, held = rest
    events = {number: Kept(number, data) for number, data in raw_events}
    nodes: list[PathNode] = []
    for stage, number, parent in raw_nodes:
        before = None if parent < 0 else nodes[parent]
        nodes.append(PathNode(stage, events[number], before, number if before is None else before.first))
    return KeyState(
        next_event,
        tuple(Partial(s, start, last, nodes[n]) for s, start, last, n in partials),
        tuple(Partial(-1, start, last, nodes[n]) for start, last, n in held),
        alarm_ms,
    )


def key_state_serde(shape: int, operator: str) -> Serde[Any]:
    """The serde of the states of a pattern with this ``shape``."""
    return Serde(
        f"partial-matches:{shape:08x}",
        lambda state: encode(state, shape),
        lambda data: decode(data, shape, operator),
        immutable=True,
        exact=KeyState,
    )
