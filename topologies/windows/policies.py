"""The policies of ``evicting`` windows: ``count(n)``, ``delta(of, distance)``, ``time(span)``, ``punctuation(fn)``."""

from __future__ import annotations

from penstock.topologies.windows.evicting import Policy, count, delta, punctuation, time

__all__ = ["Policy", "count", "delta", "punctuation", "time"]
