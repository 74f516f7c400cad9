"""Patterns of cases as patterns of the DSL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.topologies.patterns import skip
from penstock.topologies.patterns.conditions import MatchContext
from penstock.topologies.patterns.pattern import Pattern, pattern
from tests.conformance.case_format import CaseError
from tests.conformance.functions import expression

Spec = dict[str, Any]


def dsl_pattern(spec: Spec) -> Pattern:
    """The whole pattern."""
    made = _sequence(spec["stages"])
    if spec.get("within_ms") is not None:
        made = made.within(spec["within_ms"])
    return made.after_match(_skip(spec.get("skip", {"strategy": "no_skip"})))


def _sequence(stages: list[Spec]) -> Pattern:
    made: Pattern | None = None
    for stage in stages:
        what = _sequence(stage["group"]) if "group" in stage else stage["name"]
        contiguity = stage["contiguity"]
        if made is None:
            if contiguity != "begin":
                raise CaseError(f"stage {stage['name']!r} is the first and has contiguity {contiguity!r}, not begin")
            made = pattern(what)
        elif contiguity in ("next", "followed_by", "followed_by_any", "not_next", "not_followed_by"):
            made = getattr(made, contiguity)(what)
        else:
            raise CaseError(f"contiguity {contiguity!r} of stage {stage['name']!r} is unknown to the format")
        made = _described(made, stage)
    if made is None:
        raise CaseError("the pattern has no stages")
    return made


def _described(made: Pattern, stage: Spec) -> Pattern:
    """The pattern with what the case says of its last stage."""
    if stage.get("where") is not None:
        made = made.where(_condition(stage["where"]))
    low, high = stage.get("times", [1, 1])
    optional = bool(stage.get("optional")) or low == 0
    if "times" in stage or stage.get("greedy"):
        made = made.times_or_more(max(low, 1)) if high is None else made.times(max(low, 1), high)
    inner = stage.get("inner")
    if inner == "strict":
        made = made.consecutive()
    elif inner == "combinations":
        made = made.allow_combinations()
    elif inner not in (None, "relaxed"):
        raise CaseError(f"inner contiguity {inner!r} is unknown; the format has relaxed, strict, combinations")
    if optional:
        made = made.optional()
    if stage.get("greedy"):
        made = made.greedy()
    if stage.get("until") is not None:
        made = made.until(_condition(stage["until"]))
    return made


def _condition(text: str) -> Callable[..., Any]:
    """``e`` is the event at hand; ``prev(stage)`` what the partial match has taken for a stage, ``prev('*')`` for all."""
    test = expression(text, "e", "prev")
    if "prev" not in text:
        return lambda event: test(event, None)

    def iterative(event: Any, ctx: MatchContext) -> Any:
        return test(event, lambda stage: ctx.events(None if stage == "*" else stage))

    return iterative


def _skip(spec: Spec) -> skip.Skip:
    makers: dict[str, Callable[..., skip.Skip]] = {
        "no_skip": skip.no_skip,
        "skip_to_next": skip.skip_to_next,
        "skip_past_last_event": skip.skip_past_last_event,
        "skip_to_first": skip.skip_to_first,
        "skip_to_last": skip.skip_to_last,
    }
    name = spec["strategy"]
    if name not in makers:
        raise CaseError(f"skip strategy {name!r} is unknown; the format has {', '.join(makers)}")
    made = makers[name](spec["pattern"]) if name in ("skip_to_first", "skip_to_last") else makers[name]()
    return made.error_on_miss() if spec.get("error_on_miss") else made
