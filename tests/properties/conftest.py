"""Columnar operators take even the smallest batches here, so that every cut of the input meets them."""

from __future__ import annotations

import pytest

from penstock.topologies.operators.columnar import parts


@pytest.fixture(autouse=True)
def _columns_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "FEWEST", 1)
