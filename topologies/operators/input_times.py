"""Stream time by input, for aggregations of several streams (cogroups): each input has the highest timestamp of its own.

A stream that lags behind the others is late only by its own time, as in Kafka Streams, where each stream of a cogroup has
a processor. State must end some time: an input's time is never more than ``lag_ms`` behind the highest of all, for so much
longer are windows kept.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.topologies.operator_api.operator import NO_TIME


class InputTimes:
    """The times by name of in port, which ``saved`` gives to be committed."""

    def __init__(self, ports: Sequence[str], lag_ms: int) -> None:
        self._ports = ports
        self._lag_ms = lag_ms
        self.saved: dict[str, int] = {}

    def of(self, port: int) -> int:
        """An input's time; ``NO_TIME`` before any record."""
        if not self.saved:
            return NO_TIME
        return max(self.saved.get(self._ports[port], NO_TIME), max(self.saved.values()) - self._lag_ms)

    def show(self, port: int, time_ms: int) -> None:
        """Move an input's time, which never goes back."""
        name = self._ports[port]
        if time_ms > self.saved.get(name, NO_TIME):
            self.saved[name] = time_ms
