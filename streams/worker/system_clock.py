"""The machine's clocks, as the core asks for them."""

from __future__ import annotations

import time


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        """Wall clock."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """For intervals."""
        return time.monotonic()
