"""Commands set up the log of their process; here it is the tests'."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def own_log() -> Iterator[None]:
    """Put the log back as it was."""
    root, mine = logging.getLogger(), logging.getLogger("penstock")
    handlers, levels = list(root.handlers), (root.level, mine.level)
    yield
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    mine.setLevel(levels[1])
