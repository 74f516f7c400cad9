"""How a message of Faust becomes a record."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.state.log import TIMESTAMP_ZERO_HEADER, Headers
from penstock.streams.faust import app


def arrived(headers: Any) -> tuple[int, Headers]:
    message = SimpleNamespace(
        topic="in", partition=0, offset=7, key=b"k", value=b"v", timestamp=1.5, headers=headers, generation_id=3
    )
    found = app._arrived(message)
    assert found.generation == 3
    return found.timestamp_ms, found.headers


@pytest.mark.parametrize("kind", [list, dict])
def test_only_the_mark_itself_stands_for_time_0(kind: Any) -> None:
    assert arrived(kind([("a", b"1"), (TIMESTAMP_ZERO_HEADER, b"0")])) == (0, (("a", b"1"),))
    for other in (b"1", b"", None):
        assert arrived(kind([(TIMESTAMP_ZERO_HEADER, other)])) == (1500, ((TIMESTAMP_ZERO_HEADER, other),))


def test_a_message_may_have_no_headers() -> None:
    assert arrived(None) == (1500, ())
