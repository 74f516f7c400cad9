"""Whole values that a ready aggregate keeps: the latest or earliest of them, the best one, or the best.

An operator that has values as columns uses it to fold them by their times or ranks, and their bytes.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, TypeAlias

from penstock.state.serdes.serde import Serde
from penstock.topologies.aggregators.best_of import BestOf

if TYPE_CHECKING:
    from penstock.topologies.expressions.row_function import ExpressionFunction


@dataclasses.dataclass(frozen=True)
class KeptByTime:
    """Accumulators ``(timestamp_ms, bytes)``. ``later``: the value with the latest time, the last of several; else the one
    with the earliest, the first of several. ``serde``: of the values."""

    serde: Serde[Any]
    later: bool


@dataclasses.dataclass(frozen=True)
class KeptBest:
    """Accumulators of ``best``. ``by``: the parts of the rank; ``single``: the rank is the only part, else a tuple of
    them."""

    serde: Serde[Any]
    best: BestOf
    by: tuple[ExpressionFunction, ...]
    single: bool


@dataclasses.dataclass(frozen=True)
class KeptByRank:
    """Accumulators ``()`` or ``(bytes,)``: the value with the highest rank, or with the lowest one. ``by``: the parts of the
    rank."""

    serde: Serde[Any]
    by: tuple[ExpressionFunction, ...]
    largest: bool


KeptRecords: TypeAlias = KeptByTime | KeptBest | KeptByRank
