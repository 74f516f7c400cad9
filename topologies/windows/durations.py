"""Durations as users write them."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TypeAlias

from penstock.state.errors import TopologyError

Duration: TypeAlias = int | str | timedelta
"""Milliseconds, a text such as ``"5m"``, or a ``timedelta``."""
_MS = timedelta(milliseconds=1)
_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"\s*(\d+)\s*(ms|s|min|m|h|d)\s*")


def duration_ms(value: Duration) -> int:
    """Milliseconds of ``1500``, ``"10s"``, ``"5m"``, ``"1h"``, ``"7d"``, ``timedelta(minutes=5)``. Raises
    ``TopologyError`` for anything else, and for a ``timedelta`` that is not a whole number of milliseconds."""
    if isinstance(value, timedelta):
        value = _whole_ms(value)
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 0:
            raise TopologyError(f"a duration cannot be negative: {value}")
        return value
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise TopologyError(
            f"{value!r} is not a duration; write milliseconds, a number with one of {', '.join(_UNITS_MS)}, or a "
            "timedelta"
        )
    return int(match[1]) * _UNITS_MS[match[2]]


def duration_s(value: Duration) -> float:
    """Seconds of what ``duration_ms`` takes."""
    return duration_ms(value) / 1000


def offset_ms(value: Duration) -> int:
    """Milliseconds of a shift, which may be negative: ``-100``, ``"-15m"``, ``-timedelta(minutes=15)``."""
    if isinstance(value, timedelta):
        return _whole_ms(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().startswith("-"):
        return -duration_ms(value.strip()[1:])
    return duration_ms(value)


def _whole_ms(value: timedelta) -> int:
    whole_ms, rest = divmod(value, _MS)
    if rest:
        raise TopologyError(
            f"{value!r} is not a whole number of milliseconds, the finest step of time here; round it, for example to "
            f"timedelta(milliseconds={whole_ms})"
        )
    return whole_ms
