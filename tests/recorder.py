"""A sink that keeps what is reported, for tests to look at."""

from __future__ import annotations

from collections import Counter
from typing import TypeVar

from penstock.streams.events.facts import Fact
from penstock.streams.events.measurements import Measurement

F = TypeVar("F")


class Recorder:
    """Keeps facts and measurements in their order."""

    def __init__(self) -> None:
        self.facts: list[Fact] = []
        self.measurements: list[Measurement] = []

    def emit(self, fact: Fact) -> None:
        self.facts.append(fact)

    def measure(self, measurement: Measurement) -> None:
        self.measurements.append(measurement)

    def of(self, kind: type[F]) -> list[F]:
        """The facts or measurements of one class."""
        return [given for given in (*self.facts, *self.measurements) if isinstance(given, kind)]

    def counts(self) -> Counter[str]:
        """How often each class of fact was reported."""
        return Counter(type(fact).__name__ for fact in self.facts)
