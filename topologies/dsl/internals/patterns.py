"""Pattern matching, and the serde of the events in a match."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, NamedTuple, get_args

import msgspec

from penstock.state.errors import TopologyError
from penstock.state.serdes.serde import JSON, Serde
from penstock.topologies.dsl.typed import row_function, traced
from penstock.topologies.dsl.wiring import Flow, check_function
from penstock.topologies.expressions.tree import Expression
from penstock.topologies.operators.patterns.pattern_match import MatchPatternSpec, MatchWhenFull, match_stores
from penstock.topologies.patterns.conditions import User
from penstock.topologies.patterns.pattern import Pattern

EventOrder = Literal["time", "arrival"]


class Matched(NamedTuple):
    """The flows of the operator's out ports."""

    matches: Flow
    timeouts: Flow
    late: Flow


def matched(
    flow: Flow,
    pattern: Pattern,
    *,
    select: Any,
    value: Any,
    order_by: Any,
    event_order: EventOrder,
    unbounded: bool,
    max_partial_matches: int | None,
    when_full: MatchWhenFull,
    name: str | None,
) -> Matched:
    """Look for a pattern among the records of each key: see ``KStream.match``."""
    wiring = flow.wiring
    name = wiring.name(flow, "match", name)
    if not isinstance(pattern, Pattern):
        raise TopologyError(f"operator {name!r}: match needs a pattern, such as pattern('a'), not {pattern!r:.100}")
    pattern.check(name)
    if event_order not in ("time", "arrival"):
        raise TopologyError(f"operator {name!r}: event_order must be 'time' or 'arrival', not {event_order!r}")
    if event_order == "arrival" and order_by is not None:
        raise TopologyError(f"operator {name!r}: order_by needs event_order='time'; leave order_by out")
    if not pattern.bounded and not unbounded:
        raise TopologyError(
            f"operator {name!r}: partial matches of this pattern may wait forever, so its state would only grow; add "
            ".within(…) to the pattern, or accept this with match(…, unbounded=True)"
        )
    if max_partial_matches is not None and (type(max_partial_matches) is not int or max_partial_matches < 1):
        raise TopologyError(
            f"operator {name!r}: max_partial_matches={max_partial_matches!r} is not a bound; give at least 1, or "
            "leave it out"
        )
    if when_full not in get_args(MatchWhenFull):
        raise TopologyError(f"operator {name!r}: when_full={when_full!r} is unknown; use 'shut_down' or 'drop_oldest'")
    flow = wiring.by_key(flow)

    def typed(condition: User) -> User:
        if condition.iterative:
            return condition
        if not isinstance(condition.fn, Expression):
            return dataclasses.replace(condition, fn=traced(condition.fn, flow, ("value",), "condition"))
        checked = row_function(condition.fn, name, flow, ("value",), condition=True)
        return dataclasses.replace(condition, fn=checked, iterative=False)

    spec = MatchPatternSpec(
        stores=match_stores(name, flow.key, pattern),
        pattern=pattern.with_conditions(typed),
        value_serde=flow.value,
        select=None if select is None else check_function(select, name),
        order_by=None if order_by is None else row_function(order_by, name, flow, ("value",)),
        in_arrival_order=event_order == "arrival",
        max_partial_matches=max_partial_matches,
        when_full=when_full,
    )
    wiring.add(name, spec, flow)
    events = events_by_stage(flow.value)
    made = value if value is not None else events if select is None else JSON
    return Matched(
        matches=flow.behind(name, port="matches", value=made),
        timeouts=flow.behind(name, port="timeouts", value=events),
        late=flow.behind(name, port="late"),
    )


def events_by_stage(event: Serde[Any]) -> Serde[Any]:
    """Return the serde of a dict from stage to a list of events: a JSON object of arrays if events are JSON, else
    msgpack with the bytes of each event."""
    write, read = event.serialize, event.deserialize
    if event.name == "json" or event.name.startswith("json:"):
        texts = msgspec.json.Decoder(dict[str, list[msgspec.Raw]])

        def as_text(events: dict[str, list[Any]]) -> bytes:
            return msgspec.json.encode({n: [msgspec.Raw(write(e)) for e in es] for n, es in events.items()})

        def from_text(data: bytes) -> dict[str, list[Any]]:
            return {n: [read(bytes(raw)) for raw in es] for n, es in texts.decode(data).items()}

        return Serde(f"json:events-by-stage({event.name})", as_text, from_text)
    packed = msgspec.msgpack.Decoder(dict[str, list[bytes]])

    def as_pack(events: dict[str, list[Any]]) -> bytes:
        return msgspec.msgpack.encode({n: [write(e) for e in es] for n, es in events.items()})

    def from_pack(data: bytes) -> dict[str, list[Any]]:
        return {n: [read(raw) for raw in es] for n, es in packed.decode(data).items()}

    return Serde(f"events-by-stage({event.name})", as_pack, from_pack)
