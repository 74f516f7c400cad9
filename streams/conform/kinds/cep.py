"""Kind ``cep``: a pattern, events with watermarks and restarts between them, and what is to be found.

Without watermarks events are taken in the order of the list, with them in event time. Matches are compared as multisets of
multisets of events; stages only where the case asserts them. What a case says of measures belongs to SQL and is not
looked at here.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from penstock.streams.conform.cases import Case, CaseError
from penstock.streams.conform.compare import assignable, plain
from penstock.streams.conform.functions import expression
from penstock.streams.conform.marks import mark, read_stream
from penstock.streams.conform.patterns import dsl_pattern
from penstock.streams.conform.scenario import KEY, VALUE, Played, Put, Restart, Scenario, Setting, Step
from penstock.topologies.dsl.builder import StreamsBuilder

LONE_KEY = 0
"""The key of all events of a case without keys."""
_SINKS = ("matches", "timeouts", "late")


def scenario(case: Case, setting: Setting) -> Scenario:
    """Read the events, look for the pattern, write what is found, timed out and late to a topic each."""
    topic = f"{setting.prefix}in"
    sinks = {name: f"{setting.prefix}{name}" for name in _SINKS}
    watermarks = any(entry["event"] == "watermark" for entry in case.input)
    builder = StreamsBuilder(case.id, key=KEY, value=VALUE)
    found = read_stream(builder, topic, watermarks=watermarks).match(
        dsl_pattern(case.data["pattern"]),
        value=VALUE,
        event_order="time" if watermarks else "arrival",
        order_by=_order(case) if watermarks else None,
        unbounded=True,
    )
    found.matches.to(sinks["matches"])
    found.timeouts.to(sinks["timeouts"], value=VALUE)
    found.late.to(sinks["late"])
    steps = tuple(_steps(case, topic))
    return Scenario(topology=builder.build(), steps=steps, inputs=(topic,), sinks=sinks)


def verdict(case: Case, played: Played) -> list[str]:
    """Hold what was found to what was to be found."""
    if case.data.get("expected_error"):
        return [] if played.error is not None else [f"expected to fail ({case.data['expected_error']}), did not"]
    if played.error is not None:
        return [f"failed at entry {played.error[0]}: {played.error[1]}"]
    matches = [row["v"] for _, row in played.outputs["matches"]]
    timeouts = [row["v"] for _, row in played.outputs["timeouts"]]
    late = [row["v"] for _, row in played.outputs["late"]]
    wrong = _differences(
        "matches", [_bag(m["events"]) for m in case.expectations()], [_bag(_events(m)) for m in matches]
    )
    if "expected_timeouts" in case.data and not assignable(case.data["expected_timeouts"], timeouts, _is_timeout):
        wrong += [f"timeouts: expected {case.data['expected_timeouts']}, found {timeouts}"]
    if "expected_timeouts" in case.data and len(case.data["expected_timeouts"]) != len(timeouts):
        wrong += [f"timeouts: {len(case.data['expected_timeouts'])} expected, {len(timeouts)} found"]
    if "expected_late" in case.data:
        wrong += _differences("late", [_text(e) for e in case.data["expected_late"]], [_text(e) for e in late])
    if "expected_by_stage" in case.data:
        expected = [_text(m) for m in case.data["expected_by_stage"]]
        wrong += _differences("matches by stage", expected, [_text(m) for m in matches])
    if "expected_stage_order" in case.data:
        wrong += _stage_orders(case.data["expected_stage_order"], [list(m) for m in matches])
    return wrong


def _steps(case: Case, topic: str) -> Iterator[Step]:
    for index, entry in enumerate(case.input):
        event = entry["event"]
        if isinstance(event, dict):
            yield Put(index, topic, entry.get("key", LONE_KEY), event, entry.get("ts") or 0)
        elif event == "watermark":
            yield mark(index, topic, entry["ts"])
        elif event == "restart":
            yield Restart(index)
        else:
            raise CaseError(f"event {event!r} is unknown; the format has watermark, restart and events of fields")


def _order(case: Case) -> Callable[[Any], Any] | None:
    """What events of one time are sorted by: an expression over ``e``, or the name of a field."""
    text = case.data.get("order_by", case.data["pattern"].get("order_by"))
    if text is None:
        return None
    return expression(f"e[{text!r}]" if text.isidentifier() else text, "e")


def _events(match: dict[str, list[Any]]) -> list[Any]:
    return [event for events in match.values() for event in events]


def _is_timeout(expected: dict[str, Any], found: dict[str, list[Any]]) -> bool:
    """A case shows the first event of a partial match, or all of them."""
    events = _events(found)
    if "events" in expected:
        return _bag(expected["events"]) == _bag(events)
    return bool(plain(expected["first_event"]) == plain(events[0]))


def _stage_orders(expected: list[Any], found: list[list[str]]) -> list[str]:
    """Of each match, or one of all matches."""
    if expected and all(isinstance(e, str) for e in expected):
        expected = [expected] * len(found)
    return _differences("stages", [_text(e) for e in expected], [_text(f) for f in found])


def _bag(events: list[Any]) -> str:
    return _text(sorted(_text(e) for e in events))


def _text(value: Any) -> str:
    """Equal for equal values: 1 and 1.0 too, as JSON does not tell them apart."""
    return json.dumps(_numbers(plain(value)), sort_keys=True)


def _numbers(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_numbers(v) for v in value]
    return {k: _numbers(v) for k, v in value.items()} if isinstance(value, dict) else value


def _differences(what: str, expected: list[str], found: list[str]) -> list[str]:
    missing, extra = Counter(expected) - Counter(found), Counter(found) - Counter(expected)
    lines = [f"{what}: not found: {text}" for text in missing.elements()]
    return lines + [f"{what}: not expected: {text}" for text in extra.elements()]
