"""The clocks of simulated workers."""

from __future__ import annotations

from penstock.streams.testing.memory_log import MemoryLog

BEGAN_MS = 10_000_000
"""On the wall."""


class SimClock:
    """The log's time; the wall clock is off by ``skew_ms``."""

    def __init__(self, log: MemoryLog, skew_ms: int = 0) -> None:
        self._log = log
        self._skew_ms = skew_ms

    def now_ms(self) -> int:
        return BEGAN_MS + self._log.now_ms + self._skew_ms

    def monotonic_s(self) -> float:
        return self._log.now_ms / 1000
