"""What a run put out, and how two of them are compared."""

from __future__ import annotations

import dataclasses
from typing import Any

from tests.conformance.compare import Row

Step = dict[str, list[Row]]
"""What one entry of the input put out, by sink; sinks without records are left out."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Of one run: what each entry put out, until an error, if there was one."""

    steps: list[Step]
    error: str | None = None

    @property
    def records(self) -> int:
        """How many records were put out."""
        return sum(len(rows) for step in self.steps for rows in step.values())

    def flat(self) -> list[tuple[str, Row]]:
        """Every record with its sink, in order."""
        return [(sink, row) for step in self.steps for sink, rows in step.items() for row in rows]


def outcome_of(answer: dict[str, Any]) -> Outcome:
    """What the other side answered."""
    return Outcome(answer["steps"], answer.get("error"))


def same(ours: Outcome, theirs: Outcome) -> bool:
    """The same records at every entry, in the same order, with the same timestamps, and no error on either side."""
    return ours.error is None and theirs.error is None and ours.steps == theirs.steps
