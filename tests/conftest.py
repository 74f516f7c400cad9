"""What every test shares: Hypothesis' profile, and the mark of the tests that start real processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

INTEGRATION = Path(__file__).parent / "integration"

# No deadline: a shared machine stalls now and then, and the timeout of pytest catches a hang.
# A failing example is printed with the line that replays it.
settings.register_profile("penstock", deadline=None, print_blob=True)
settings.load_profile("penstock")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what lies under ``tests/integration/``, so that ``-m 'not integration'`` is the quick run."""
    for item in items:
        if item.path.is_relative_to(INTEGRATION):
            item.add_marker("integration")
