"""What every test shares: Hypothesis' profile, and the mark of the tests that start real processes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

INTEGRATION = Path(__file__).parent / "integration"

# No deadline: a shared machine stalls now and then, and the timeout of pytest catches a hang.
# A failing example is printed with the line that replays it.
settings.register_profile("penstock", deadline=None, print_blob=True)
# In CI the examples follow from the tests alone: what chance finds belongs to who runs `make test`, not to whoever
# happens to bring a change.
settings.register_profile("ci", settings.get_profile("penstock"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "penstock")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what lies under ``tests/integration/``, so that ``-m 'not integration'`` is the quick run."""
    for item in items:
        if item.path.is_relative_to(INTEGRATION):
            item.add_marker("integration")
