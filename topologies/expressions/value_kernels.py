"""Kernels over arrays whose results are values of any kind, by their codes: branches of texts, and functions of time, which
give the same within a step of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from penstock.topologies.expressions.kernels import Array, Distinct, NoKernel, Vec, either, true_of
from penstock.topologies.operator_api.columns import Mask

STEPS_MAX = 4_096
"""If the times of a batch lie in more steps, their distinct values are used."""


def by_steps(times: Vec, step_ms: int, compute: Callable[[int], Any]) -> Distinct:
    """``compute`` of each time, called once per step. Raises ``NoKernel`` unless all rows have a time, and few steps."""
    array = times.array
    if (
        array.dtype != np.int64
        or not array.ndim
        or not len(array)
        or times.nulls is not None
        or times.errors is not None
    ):
        raise NoKernel
    first = int(array.min()) // step_ms
    if int(array.max()) // step_ms - first >= STEPS_MAX:
        raise NoKernel
    codes = array // step_ms - first
    there = np.bincount(codes).tolist()
    values: list[Any] = [None] * len(there)
    wrong = [False] * len(there)
    for code, rows in enumerate(there):
        if not rows:
            continue
        try:
            values[code] = compute((first + code) * step_ms)
        except Exception:  # not swallowed: a row of this step takes the row path, which raises it again
            wrong[code] = True
    errors = np.array(wrong, np.bool_)[codes] if any(wrong) else None
    return Distinct(codes.astype(np.int32), values, errors)


def chosen_values(branches: Sequence[tuple[Vec, Distinct]], default: Distinct) -> Distinct:
    """For each row the value of the first branch whose condition is true; see ``kernels.chosen``."""
    values: list[Any] = []
    codes: Array = np.zeros((), np.int64)
    errors: Mask | None = None
    left: Mask = np.ones((), np.bool_)
    for holds, then in (*branches, (None, default)):
        taken = left if holds is None else left & true_of(holds)
        if holds is not None and holds.errors is not None:
            errors = either(errors, left & holds.errors)
            taken = taken & ~holds.errors
        codes = np.where(taken, then.codes + len(values), codes)
        values += then.values
        if then.errors is not None:
            errors = either(errors, taken & then.errors)
        left = left & ~taken
    return Distinct(codes.astype(np.int32), values, errors)
