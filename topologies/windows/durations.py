"""Durations as users write them."""

from __future__ import annotations

import re

from penstock.state.errors import TopologyError

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"\s*(\d+)\s*(ms|s|min|m|h|d)\s*")


def duration_ms(value: int | str) -> int:
    """Milliseconds of ``1500``, ``"10s"``, ``"5m"``, ``"1h"``, ``"7d"``. Raises ``TopologyError`` for anything else."""
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 0:
            raise TopologyError(f"a duration cannot be negative: {value}")
        return value
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise TopologyError(
            f"{value!r} is not a duration; write milliseconds or a number with one of {', '.join(_UNITS_MS)}"
        )
    return int(match[1]) * _UNITS_MS[match[2]]


def offset_ms(value: int | str) -> int:
    """The same for a shift, which may be negative: ``-100``, ``"-15m"``."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().startswith("-"):
        return -duration_ms(value.strip()[1:])
    return duration_ms(value)
