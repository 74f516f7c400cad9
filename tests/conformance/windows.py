"""Windows of cases as windows of the DSL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.state.log import Windowed
from penstock.topologies import windows
from tests.conformance.case_format import CaseError

Spec = dict[str, Any]


def dsl_window(spec: Spec) -> Any:
    """The window of an aggregation (Kafka Streams' kinds, in milliseconds)."""
    grace = spec.get("grace_ms", 0)
    kind = spec["type"]
    if kind == "tumbling":
        return windows.tumbling(spec["size_ms"], grace=grace)
    if kind == "hopping":
        return windows.hopping(spec["size_ms"], spec["advance_ms"], grace=grace)
    if kind == "sliding":
        return windows.sliding(spec["diff_ms"], grace=grace)
    if kind == "session":
        return windows.session(spec["gap_ms"], grace=grace)
    if kind == "unlimited":
        return windows.unlimited(spec.get("start_ms", 0))
    raise CaseError(f"window type {kind!r} is unknown; the format has tumbling, hopping, sliding, session, unlimited")


def plain_window(spec: Spec, *, before_epoch: bool, grace_ms: int = 0) -> windows.Windows:
    """The window of a case without a unit of time: ``size``, ``advance``, ``gap``, ``offset`` (Beam, Flink)."""
    kind, offset = spec["type"], _named(spec, "offset", 0)
    if kind in ("fixed", "tumbling"):
        return windows.tumbling(_named(spec, "size"), grace=grace_ms, offset=offset)
    if kind == "hopping":
        size, advance = _named(spec, "size"), _named(spec, "advance")
        return windows.hopping(size, advance, grace=grace_ms, offset=offset, before_epoch=before_epoch)
    if kind == "session":
        touching = bool(spec.get("touching_merges"))
        return windows.session(_named(spec, "gap"), grace=grace_ms, bounds="gap", touching=touching)
    if kind == "global":
        return windows.global_window()
    if kind == "unlimited":
        return windows.unlimited(_named(spec, "start", 0))
    raise CaseError(f"window type {kind!r} is unknown; the format has fixed, tumbling, hopping, session, global here")


def _named(spec: Spec, name: str, default: int | None = None) -> int:
    """A length, with or without a unit in its name."""
    found = spec.get(name, spec.get(f"{name}_ms", default))
    if found is None:
        raise CaseError(f"the {spec['type']} window has no {name}")
    return int(found)


def window_end(kind: str) -> Callable[[Windowed], int | None] | None:
    """How a case writes the end of such a window, where it is not the key's own: sliding windows and sessions include
    their last instant, and an unlimited window has no end."""
    if kind == "unlimited":
        return lambda windowed: None
    return None
