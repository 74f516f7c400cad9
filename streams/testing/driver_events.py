"""Events of the test driver: what a worker would warn of because a topology is probably wrong is logged here, too."""

from __future__ import annotations

from penstock.streams.events.facts import ColumnsMissing, Fact, NullsDropped
from penstock.streams.events.logging_adapter import LoggingEvents
from penstock.streams.events.measurements import Measurement
from penstock.streams.events.port import EventSink


class DriverEvents:
    """``inner``, with warnings of columns that no record has and of nulls that an operator drops. Without logging that is
    set up, Python prints them on standard error; pytest shows them with a test that fails."""

    def __init__(self, inner: EventSink) -> None:
        self._inner = inner
        self._log = LoggingEvents()

    def emit(self, fact: Fact) -> None:
        """See ``EventSink``."""
        self._inner.emit(fact)
        if isinstance(fact, ColumnsMissing | NullsDropped):
            self._log.emit(fact)

    def measure(self, measurement: Measurement) -> None:
        """See ``EventSink``."""
        self._inner.measure(measurement)
