"""The clocks of simulated workers."""

from __future__ import annotations

from penstock.streams.testing.memory_log import MemoryLog

BEGAN_MS = 10_000_000
"""On the wall."""


SKEW_MAX_MS = 500
"""How much the wall clocks of workers differ from the log's."""


class SimClock:
    """A host's clocks. That on the wall is off by ``skew_ms``. Both run too fast by the part ``drift`` of the time, or too
    slowly. The one on the wall is set when it is off by more than ``SKEW_MAX_MS``: back, or ahead, to the other end."""

    def __init__(self, log: MemoryLog, skew_ms: int = 0, drift: float = 0.0) -> None:
        self._log = log
        self._skew_ms = skew_ms
        self._drift = drift

    def now_ms(self) -> int:
        off = self._skew_ms + int(self._drift * self._log.now_ms)
        if self._drift:
            off = (off + SKEW_MAX_MS) % (2 * SKEW_MAX_MS) - SKEW_MAX_MS
        return BEGAN_MS + self._log.now_ms + off

    def monotonic_s(self) -> float:
        return self._log.now_ms * (1 + self._drift) / 1000
