"""A producer's unit by itself: when it gives up."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.state.errors import RetriableError
from penstock.streams.unit import ABORTS_MAX, Unit


class StandingClock:
    """Time stands."""

    def now_ms(self) -> int:
        """Wall clock."""
        return 0

    def monotonic_s(self) -> float:
        """For intervals."""
        return 0.0


class Flushes:
    """What a unit of at-most-once needs of a committer; some flushes time out."""

    guarantee = "at_most_once"

    def __init__(self, late: set[int]) -> None:
        self.late = late
        self.asked = 0

    def finish_ahead(self, tasks: Any, now_ms: int) -> None:
        """One flush."""
        self.asked += 1
        if self.asked in self.late:
            raise RetriableError("records were not acknowledged")


def test_at_most_once_gives_up_after_time_outs_in_a_row_only() -> None:
    apart = Flushes(set(range(10, 1_000, 10)))
    unit = Unit(apart, StandingClock(), lambda task: None)  # type: ignore[arg-type]  # the part of a committer that is used
    for _ in range(1_000):
        unit.commit()
    unit = Unit(Flushes(set(range(1, 100))), StandingClock(), lambda task: None)  # type: ignore[arg-type]  # the same
    for _ in range(ABORTS_MAX):
        unit.commit()
    with pytest.raises(RetriableError):
        unit.commit()
