"""Decimals as scaled whole numbers, which are written without being built."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from typing import Any

import numpy as np

from penstock.topologies.operator_api.columns import (
    CodedColumn,
    Codes,
    Column,
    Ints,
    Mask,
    NumberColumn,
    Places,
    joined,
)

PLAIN_SCALE_MAX = 6
"""Up to this scale no decimal is written with an exponent: 0.000001, but 1E-7."""

_EXACT = Context(prec=38)
_SAMPLE = Decimal("-1.50")


class DecimalColumn(CodedColumn):
    """``value[i]`` is the decimal ``unscaled[i] / 10**scale`` with that many places, or ``None`` where ``nulls`` says so.
    ``values`` are built at their first use, once per distinct one."""

    __slots__ = ("_coded", "nulls", "scale", "unscaled")

    def __init__(self, unscaled: Ints, scale: int, nulls: Mask | None = None) -> None:
        self.unscaled = unscaled
        self.scale = scale
        self.nulls = nulls
        self._coded: tuple[Codes, list[Any]] | None = None

    @property
    def codes(self) -> Codes:  # type: ignore[override]  # made at the first time
        """As for any coded column."""
        return self._distinct()[0]

    @property
    def values(self) -> list[Any]:  # type: ignore[override]  # made at the first time
        """As for any coded column."""
        return self._distinct()[1]

    def _distinct(self) -> tuple[Codes, list[Any]]:
        if self._coded is None:
            distinct, codes = np.unique(self.unscaled, return_inverse=True)
            values: list[Any] = list(map(self._value, distinct.tolist()))
            if self.nulls is not None:
                codes = np.where(self.nulls, len(values), codes)
                values.append(None)
            self._coded = codes.astype(np.int32), values
        return self._coded

    def _value(self, unscaled: int) -> Decimal:
        return Decimal(unscaled).scaleb(-self.scale, _EXACT)

    def __len__(self) -> int:
        return len(self.unscaled)

    def take(self, places: Places) -> DecimalColumn:
        return DecimalColumn(self.unscaled[places], self.scale, None if self.nulls is None else self.nulls[places])

    def slice(self, start: int, stop: int) -> DecimalColumn:
        nulls = None if self.nulls is None else self.nulls[start:stop]
        return DecimalColumn(self.unscaled[start:stop], self.scale, nulls)

    def followed_by(self, others: Sequence[Column]) -> DecimalColumn | None:
        parts = [self, *(c for c in others if isinstance(c, DecimalColumn) and c.scale == self.scale)]
        if len(parts) <= len(others):
            return None
        whole = joined([NumberColumn(c.unscaled, c.nulls) for c in parts])
        assert isinstance(whole, NumberColumn)
        return DecimalColumn(whole.array, self.scale, whole.nulls)


def quoted_by(encode: Callable[[Any], bytes]) -> bool | None:
    """Whether an encoder of JSON puts a decimal's text in quotes; ``None``: it writes others, or none."""
    try:
        return {str(_SAMPLE): False, f'"{_SAMPLE}"': True}.get(encode(_SAMPLE).decode())
    except Exception:  # not swallowed: after None the encoder writes the values, and raises it again
        return None
