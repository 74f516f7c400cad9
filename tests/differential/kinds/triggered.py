"""Kinds of triggered windows: every trigger and window, accumulating and discarding."""

from __future__ import annotations

from random import Random
from typing import Any

Spec = dict[str, Any]


def _count(n: int) -> Spec:
    return {"type": "after_count", "n": n}


def _repeatedly(of: Spec) -> Spec:
    return {"type": "repeatedly", "trigger": of}


def _watermark(early: Spec | None = None, late: Spec | None = None) -> Spec:
    parts = {"early": early, "late": late}
    return {"type": "after_watermark", **{name: part for name, part in parts.items() if part is not None}}


def _of(kind: str, *triggers: Spec) -> Spec:
    return {"type": kind, "triggers": list(triggers)}


TRIGGERS: dict[str, Spec] = {
    "default": {"type": "default"},
    "watermark": _watermark(),
    "watermark_early": _watermark(early=_count(2)),
    "watermark_late": _watermark(late=_count(1)),
    "watermark_early_late": _watermark(early=_count(2), late=_count(2)),
    "count": _count(2),
    "repeated_count": _repeatedly(_count(2)),
    "repeated_watermark": _repeatedly(_watermark()),
    "any": _repeatedly(_of("after_any", _count(3), _watermark())),
    "all": _of("after_all", _count(2), _watermark()),
    "repeated_all": _repeatedly(_of("after_all", _count(2), _watermark())),
    "each": _of("after_each", _count(1), _count(2)),
    "each_then_repeated": _of("after_each", _count(2), _watermark(), _repeatedly(_count(1))),
    "repeated_each": _repeatedly(_of("after_each", _count(1), _count(3))),
}

WINDOWS: dict[str, Spec] = {
    "fixed": {"type": "fixed", "size": 10},
    "sliding": {"type": "sliding", "size": 12, "period": 4},
    "session": {"type": "session", "gap": 5},
    "global": {"type": "global"},
}

KINDS: dict[str, tuple[str, str]] = {f"{w}_{t}": (w, t) for w in WINDOWS for t in TRIGGERS}
"""Window and trigger by name; how panes accumulate, when they are, and the allowed lateness are drawn."""


def drawn(name: str, rng: Random) -> Spec:
    """A pipeline of this kind."""
    window, trigger = KINDS[name]
    return {
        "window": WINDOWS[window],
        "trigger": TRIGGERS[trigger],
        "accumulation": rng.choice(("accumulating", "discarding")),
        "timestamp_combiner": rng.choice(("earliest", "latest", "end_of_window")),
        "allowed_lateness": rng.choice((0, 3, 20, "unlimited")),
    }
