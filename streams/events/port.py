"""The port through which the core reports facts and measurements. Pure."""

from __future__ import annotations

from typing import Final, Protocol

from penstock.streams.events.facts import Fact
from penstock.streams.events.measurements import Measurement


class EventSink(Protocol):
    """Receives facts and measurements, from the run loop's thread and from the restore thread. Must return soon and never
    raise."""

    def emit(self, fact: Fact) -> None:
        """Something has happened. Called once per fact."""

    def measure(self, measurement: Measurement) -> None:
        """A batch was measured."""


class NoEvents:
    """Ignores everything: the default."""

    def emit(self, fact: Fact) -> None:
        """Ignore it."""

    def measure(self, measurement: Measurement) -> None:
        """Ignore it."""


NO_EVENTS: Final[EventSink] = NoEvents()


class Fanout:
    """Passes everything to several sinks, in their order."""

    def __init__(self, *sinks: EventSink) -> None:
        self._sinks = sinks

    def emit(self, fact: Fact) -> None:
        """To each of them."""
        for sink in self._sinks:
            sink.emit(fact)

    def measure(self, measurement: Measurement) -> None:
        """To each of them."""
        for sink in self._sinks:
            sink.measure(measurement)
