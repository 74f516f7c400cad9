"""Counts as people write them."""

from __future__ import annotations

import pytest

from penstock.streams.cli.counts import counted


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 records"), (1, "1 record"), (2, "2 records"), (12345, "12,345 records")]
)
def test_one_is_not_several(count: int, text: str) -> None:
    assert counted(count, "record") == text
