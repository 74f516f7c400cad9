"""Triggers of cases as triggers of the DSL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.topologies import triggers
from penstock.topologies.triggers import Trigger
from tests.conformance.case_format import CaseError

Spec = dict[str, Any]


def beam_trigger(spec: Spec) -> Trigger:
    """A trigger as Beam has them."""
    if spec["type"] not in _BEAM:
        raise CaseError(f"trigger type {spec['type']!r} is unknown; the format has {', '.join(_BEAM)}")
    return _BEAM[spec["type"]](spec)


def _after_watermark(spec: Spec) -> Trigger:
    early, late = (None if spec.get(name) is None else beam_trigger(spec[name]) for name in ("early", "late"))
    return triggers.after_watermark(early=early, late=late)


def _several(make: Callable[..., Trigger]) -> Callable[[Spec], Trigger]:
    return lambda spec: make(*map(beam_trigger, spec["triggers"]))


def _or_finally(spec: Spec) -> Trigger:
    until = spec.get("until") or spec.get("finally")
    if until is None:
        first, second = spec["triggers"]
        return triggers.or_finally(beam_trigger(first), beam_trigger(second))
    return triggers.or_finally(beam_trigger(spec["trigger"]), beam_trigger(until))


_BEAM: dict[str, Callable[[Spec], Trigger]] = {
    "default": lambda spec: triggers.default_trigger(),
    "after_watermark": _after_watermark,
    "after_count": lambda spec: triggers.after_count(spec["n"]),
    "after_processing_time": lambda spec: triggers.after_processing_time(_first(spec, "delay", "delay_ms", default=0)),
    "repeatedly": lambda spec: triggers.repeatedly(beam_trigger(spec["trigger"])),
    "after_any": _several(triggers.after_any),
    "after_first": _several(triggers.after_any),
    "after_all": _several(triggers.after_all),
    "after_each": _several(triggers.after_each),
    "or_finally": _or_finally,
    "never": lambda spec: triggers.never(),
}


def _first(spec: Spec, *names: str, default: Any = None) -> Any:
    """The first of the names that the spec has."""
    return next((spec[name] for name in names if name in spec), default)
