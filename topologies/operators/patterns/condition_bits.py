"""The conditions of a pattern as bits: one per condition, set where it is true of an event.

A pattern whose conditions read the event alone, and have columns, is matched by the compiled part: there a condition of an
edge is logic over these bits.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.topologies.operator_api.batch import ColumnBatch
from penstock.topologies.operator_api.required_columns import RequiredColumns, union_of
from penstock.topologies.operators.columnar.stateless import ColumnarStep, mask_of, reads
from penstock.topologies.patterns.automaton import Automaton
from penstock.topologies.patterns.conditions import Always, Both, Condition, Either, Not, User

CONDITIONS_MAX = 64
Bits = NDArray[np.uint64]


class ConditionBits:
    """The conditions of one automaton."""

    def __init__(self, automaton: Automaton) -> None:
        self.users: list[User] = []
        for state in automaton.states:
            for edge in state.edges:
                edge.condition.replaced(self._noted)
        self._numbers = {id(user): number for number, user in enumerate(self.users)}

    @cached_property
    def _masks(self) -> list[ColumnarStep | None]:
        return [mask_of(user.fn) for user in self.users]

    def _noted(self, user: User) -> User:
        if not any(user is known for known in self.users):
            self.users.append(user)
        return user

    def why_not(self) -> str | None:
        """Why events are matched by rows; ``None``: they need not be."""
        if any(user.iterative for user in self.users):
            return "a condition reads what its match has taken"
        found = [what for user in self.users if isinstance(what := reads(user.fn), str)]
        if found:
            return found[0]
        return "it has more than 64 conditions" if len(self.users) > CONDITIONS_MAX else None

    def needs(self) -> RequiredColumns:
        """The columns that the conditions read."""
        return union_of(what for user in self.users if not isinstance(what := reads(user.fn), str))

    def of_columns(self, batch: ColumnBatch) -> Bits | None:
        """The bits of each record. ``None``: a condition may fail for one, or is computed by rows."""
        bits = np.zeros(len(batch), np.uint64)
        for number, step in enumerate(self._masks):
            mask = None if step is None else step.make(batch)
            if mask is None:
                return None
            bits |= mask.astype(np.uint64) << np.uint64(number)
        return bits

    def of_value(self, value: Any) -> int:
        """The bits of an event. Raises what a condition raises."""
        return sum(bool(user.fn(value)) << number for number, user in enumerate(self.users))

    def code(self, condition: Condition) -> bytes:
        """A condition in postfix order: 0 and the bit's number, 1 always, 2 both, 3 either, 4 not."""
        if isinstance(condition, User):
            return bytes((0, self._numbers[id(condition)]))
        if isinstance(condition, Always):
            return b"\1"
        if isinstance(condition, Not):
            return self.code(condition.inner) + b"\4"
        assert isinstance(condition, (Both, Either))
        return (
            self.code(condition.first) + self.code(condition.second) + (b"\2" if isinstance(condition, Both) else b"\3")
        )
