"""Pane headers."""

from __future__ import annotations

import pytest

from penstock.state.errors import SerdeError
from penstock.topologies.operator_api.pane_info import HEADER, PaneInfo, decode, encode, pane_of

PANE = PaneInfo(is_first=False, is_last=True, timing="ON_TIME", index=12, nonspeculative_index=0)


@pytest.mark.parametrize("pane", [PANE, PaneInfo(True, False, "EARLY", 0, -1), PaneInfo(False, False, "LATE", 3, 2)])
def test_a_pane_comes_back_from_its_header(pane: PaneInfo) -> None:
    assert decode(encode(pane)) == pane
    assert pane_of((("other", None), *pane.headers)) == pane


def test_the_layout_is_fixed() -> None:
    assert encode(PANE) == b"ON_TIME;0;1;12;0"


def test_other_records_are_no_panes() -> None:
    assert pane_of(()) is None
    assert pane_of((("other", b"x"),)) is None


@pytest.mark.parametrize("data", [b"", b"ON_TIME;0;1;12", b"SOON;0;1;2;3", b"LATE;2;0;0;0", b"LATE;0;0;x;0", b"\xff"])
def test_what_is_no_pane_is_refused(data: bytes) -> None:
    with pytest.raises(SerdeError, match=HEADER):
        decode(data)
