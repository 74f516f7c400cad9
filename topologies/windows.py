"""Windows as values, and durations as users write them."""

from __future__ import annotations

import dataclasses
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
            f"{value!r} is no duration; write milliseconds or a number with one of {', '.join(_UNITS_MS)}"
        )
    return int(match[1]) * _UNITS_MS[match[2]]


@dataclasses.dataclass(frozen=True)
class TumblingWindows:
    """Windows ``[n * size, (n + 1) * size)`` in event time, aligned to the epoch.

    A record updates its window while ``window end > stream time - grace``, stream time being the highest timestamp that
    the operator has seen, this record's included (Kafka Streams, TimeWindows). Later ones are dropped and counted.
    """

    size_ms: int
    grace_ms: int

    def __post_init__(self) -> None:
        if self.size_ms <= 0:
            raise TopologyError(f"a window's size must be above 0 ms, not {self.size_ms}")
        if self.grace_ms < 0:
            raise TopologyError(f"a window's grace cannot be negative: {self.grace_ms} ms")


def tumbling(size: int | str, *, grace: int | str) -> TumblingWindows:
    """Tumbling windows; ``grace`` has no default, because every choice loses either late records or memory."""
    return TumblingWindows(duration_ms(size), duration_ms(grace))
