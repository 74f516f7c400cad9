"""Kind ``cep``: patterns over events, as FlinkCEP has them.

Matches are compared as a multiset of multisets of events. Without watermarks events are taken as they come; with them, by
time. One matcher per key; without keys there is one.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from typing import Any

from penstock.topologies.dsl.builder import StreamsBuilder
from tests.conformance.case_format import Case, CaseError
from tests.conformance.compare import assignable, plain
from tests.conformance.functions import expression, function
from tests.conformance.marks import mark, read_stream
from tests.conformance.patterns import dsl_pattern
from tests.conformance.scenario import KEY, VALUE, Clock, Played, Put, Restart, Scenario, Setting, Step, hashable

ONLY_KEY = "all"
SINKS = ("matches", "timeouts", "late")


def scenario(case: Case, setting: Setting) -> Scenario:
    """The pattern over one topic, and a sink for each of its outputs."""
    topic = f"{setting.prefix}events"
    by_time = any(entry.get("event") == "watermark" for entry in case.input)
    builder: Any = StreamsBuilder("conform", key=KEY, value=VALUE)
    found = read_stream(builder, topic, watermarks=by_time).match(
        dsl_pattern(case.data["pattern"]),
        order_by=_order(case) if by_time else None,
        event_order="time" if by_time else "arrival",
        unbounded=True,
    )
    sinks = {name: f"{setting.prefix}{name}" for name in SINKS}
    for name, sink in sinks.items():
        getattr(found, name).to(sink, value=VALUE)
    return Scenario(topology=builder.build(), steps=steps(case, topic), inputs=(topic,), sinks=sinks)


def _order(case: Case) -> Callable[[Any], Any] | None:
    """How events of one time are ordered: a field's name, several, or a function of the event; each may end in ``asc`` or
    ``desc``."""
    by = case.data.get("order_by", case.data["pattern"].get("order_by"))
    if by is None:
        return None
    parts = [_ordered_by(part) for part in (by if isinstance(by, list) else [by])]
    return parts[0] if len(parts) == 1 else lambda event: tuple(part(event) for part in parts)


def _ordered_by(text: str) -> Callable[[Any], Any]:
    name, _, direction = text.strip().rpartition(" ")
    if direction.lower() not in ("asc", "desc") or not name:
        name, direction = text.strip(), "asc"
    name = name.strip()
    if name.startswith("lambda"):
        of = function(name)
    else:
        of = expression(name, "e") if "[" in name else lambda event: event[name]
    return of if direction.lower() == "asc" else lambda event: _Descending(of(event))


@functools.total_ordering
class _Descending:
    """Sorts the other way round."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Descending) and bool(self._value == other._value)

    def __lt__(self, other: _Descending) -> bool:
        return bool(other._value < self._value)

    __hash__ = None  # type: ignore[assignment]  # it is only compared


def steps(case: Case, topic: str) -> tuple[Step, ...]:
    """What comes on the topic, and what else happens."""
    return tuple(_steps(case, topic))


def _steps(case: Case, topic: str) -> Iterator[Step]:
    for index, entry in enumerate(case.input):
        event = entry["event"]
        if isinstance(event, dict):
            yield Put(index, topic, hashable(entry.get("key", ONLY_KEY)), event, entry.get("ts") or 0)
        elif event == "watermark":
            yield mark(index, topic, entry["ts"])
        elif event == "restart":
            yield Restart(index)
        elif event == "processing_time":
            yield Clock(index, entry["ts"])
        else:
            raise CaseError(f"event {event!r} is unknown; the format has events, watermark, processing_time, restart")


def verdict(case: Case, played: Played) -> list[str]:
    """Every expectation that the case has, but for measures: they are what a query language makes of matches."""
    if "expected_error" in case.data:
        return [] if played.error is not None else [f"expected to fail ({case.data['expected_error']}), did not"]
    if played.error is not None:
        return [f"failed at entry {played.error[0]}: {played.error[1]}"]
    matches, timeouts, late = ([row["v"] for _, row in played.outputs[name]] for name in SINKS)
    wrong = []
    if case.expectations() is not None:
        expected = [sorted(map(_text, m["events"])) for m in case.expectations()]
        wrong += _compare("matches", expected, [sorted(map(_text, _events(m))) for m in matches])
    if "expected_timeouts" in case.data:
        wrong += _compare("timeouts", case.data["expected_timeouts"], timeouts, _timed_out)
    if "expected_late" in case.data:
        wrong += _compare("late", list(map(_text, case.data["expected_late"])), list(map(_text, late)))
    return wrong + _by_stage(case, matches)


def _by_stage(case: Case, matches: list[dict[str, list[Any]]]) -> list[str]:
    wrong = []
    expected = case.data.get("expected_by_stage")
    if expected is not None:
        listed = expected if isinstance(expected, list) else [expected]
        wrong += _compare("matches by stage", listed, matches, lambda e, m: bool(plain(e) == plain(m)))
    order = case.data.get("expected_stage_order")
    if order is not None:
        orders = order if order and isinstance(order[0], list) else [order] * len(matches)
        wrong += _compare("order of stages", orders, [list(m) for m in matches])
    return wrong


def _events(match: dict[str, list[Any]]) -> list[Any]:
    return [event for events in match.values() for event in events]


def _timed_out(expected: dict[str, Any], found: dict[str, list[Any]]) -> bool:
    """A partial match, of which a case may name the first event or all."""
    if "events" in expected:
        return sorted(map(_text, expected["events"])) == sorted(map(_text, _events(found)))
    return bool(plain(expected["first_event"]) == plain(_events(found)[0]))


def _compare(
    what: str, expected: list[Any], found: list[Any], fits: Callable[[Any, Any], bool] = lambda e, f: bool(e == f)
) -> list[str]:
    if len(expected) == len(found) and assignable(expected, found, fits):
        return []
    lines = [f"{what}: {len(expected)} expected, {len(found)} found"]
    lines += [f"    expected {_text(e)}" for e in expected]
    return lines + [f"    actual   {_text(f)}" for f in found]


def _text(value: Any) -> str:
    return json.dumps(plain(value), sort_keys=True)
