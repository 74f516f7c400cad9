"""Columnar operators take even the smallest batches here, so that every cut of the input meets them."""

from __future__ import annotations

import pytest

from penstock.topologies.columnar import column_parts


@pytest.fixture(autouse=True)
def _columns_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_parts, "FEWEST", 1)
