"""Pattern matching in the DSL."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, get_args

import msgspec

from penstock.state.errors import TopologyError
from penstock.state.serdes.serde import JSON, Serde
from penstock.topologies.dsl.handle import Handle
from penstock.topologies.dsl.typed import row_function
from penstock.topologies.dsl.wiring import check_function
from penstock.topologies.expressions.tree import Expression
from penstock.topologies.operators.patterns.pattern_match import MatchPatternSpec, WhenFull, match_stores
from penstock.topologies.patterns.conditions import User
from penstock.topologies.patterns.pattern import Pattern

if TYPE_CHECKING:
    from penstock.topologies.dsl.stream import KStream

EventOrder = Literal["time", "arrival"]


@dataclasses.dataclass(frozen=True)
class PatternMatches:
    """What ``match`` gives: streams under the keys of the events.

    ``matches``: what was looked for. ``timeouts``: partial matches that were not completed in time, as events by stage.
    ``late``: records that came after the watermark had passed them, as they came.
    """

    matches: KStream
    timeouts: KStream
    late: KStream


class PatternMethods(Handle):
    """Methods of ``KStream``."""

    def match(
        self,
        pattern: Pattern,
        *,
        select: Callable[[dict[str, list[Any]]], Any] | None = None,
        value: Any = None,
        order_by: Callable[[Any], Any] | Expression | None = None,
        event_order: EventOrder = "time",
        unbounded: bool = False,
        max_partial_matches: int | None = None,
        when_full: WhenFull = "shut_down",
        name: str | None = None,
    ) -> PatternMatches:
        """Look for a pattern among the records of each key, as FlinkCEP does.

        A match's value is ``select(events)`` of a dict from stage to its events (the dict itself without ``select``);
        ``value`` is its serde (by default JSON with ``select``, and that of events by stage without).

        ``event_order``: ``"time"`` takes the records of a key by timestamp (equal ones by ``order_by(value)``, then
        arrival), each when the watermark has reached it; ``"arrival"`` takes them as they come. Without a watermark
        strategy at the source the watermark is the task's stream time - 1.

        A pattern whose partial matches may wait for ever is refused unless ``unbounded=True`` accepts that its state
        grows; ``within`` bounds it.

        ``max_partial_matches``: how many partial matches a key may have. One more stops the application
        (``when_full="shut_down"``), or those that began first are forgotten and counted as dropped (``"drop_oldest"``), so
        that one busy key cannot hold up a task."""
        wiring = self._flow.wiring
        name = wiring.name(self._flow, "match", name)
        if not isinstance(pattern, Pattern):
            raise TopologyError(f"operator {name!r}: match takes a pattern, such as pattern('a'), not {pattern!r:.100}")
        pattern.check(name)
        if event_order not in ("time", "arrival"):
            raise TopologyError(f"operator {name!r}: event_order is 'time' or 'arrival', not {event_order!r}")
        if event_order == "arrival" and order_by is not None:
            raise TopologyError(f"operator {name!r}: order_by sorts events of one time; in order of arrival none waits")
        if not pattern.bounded and not unbounded:
            raise TopologyError(
                f"operator {name!r}: partial matches of this pattern may wait for ever, so its state would only grow; add "
                ".within(…) to the pattern, or accept it by match(…, unbounded=True)"
            )
        _check_limit(max_partial_matches, when_full, name)
        flow = wiring.by_key(self._flow)

        def typed(condition: User) -> User:
            if not isinstance(condition.fn, Expression):
                return condition
            return User(row_function(condition.fn, name, flow, ("value",), condition=True), iterative=False)

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
        behind = self._stream(flow)
        events = events_by_stage(flow.value)
        made = value if value is not None else events if select is None else JSON
        return PatternMatches(
            matches=self._stream(behind._behind(name, port="matches", value=made)),
            timeouts=self._stream(behind._behind(name, port="timeouts", value=events)),
            late=self._stream(behind._behind(name, port="late")),
        )


def _check_limit(most: Any, when_full: Any, name: str) -> None:
    if most is not None and (type(most) is not int or most < 1):
        raise TopologyError(
            f"operator {name!r}: max_partial_matches={most!r} is no bound; give a number from 1 on, or leave it out"
        )
    if when_full not in get_args(WhenFull):
        raise TopologyError(f"operator {name!r}: when_full={when_full!r} is unknown; use 'shut_down' or 'drop_oldest'")


def events_by_stage(event: Serde[Any]) -> Serde[Any]:
    """The serde of a dict from stage to a list of events. Where events are JSON it is a JSON object of arrays; else it is
    msgpack, with the bytes of each event."""
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
