"""What every test shares: Hypothesis' profile, a broker, the mark of the tests that start real processes, and how the
suite is spread over processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from penstock.streams.kafka.embedded import EmbeddedKafka
from tests.validation import validate_tasks

INTEGRATION = Path(__file__).parent / "integration"

validate_tasks()

# No deadline, and no verdict on slow data: a shared machine stalls now and then, and the timeout of pytest catches a hang.
# A failing example is printed with the line that replays it.
settings.register_profile("penstock", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
# In CI the examples follow from the tests alone: what chance finds belongs to who runs `make test`, not to whoever
# happens to bring a change.
settings.register_profile("ci", settings.get_profile("penstock"), derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")
    # Hypothesis mixes in the constants of whatever of our modules the process has imported by then, which depends on how
    # the suite was spread.
    vars(providers)["_get_local_constants"] = lambda: providers._local_constants
else:
    settings.load_profile("penstock")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what lies under ``tests/integration/``, so that ``-m 'not integration'`` is the quick run. Leave out the long
    forms, unless ``-m long`` asks for them."""
    if "long" not in str(config.option.markexpr):
        kept = [item for item in items if not item.get_closest_marker("long")]
        if len(kept) < len(items):
            config.hook.pytest_deselected(items=[item for item in items if item not in kept])
            items[:] = kept
    for item in items:
        if item.path.is_relative_to(INTEGRATION):
            item.add_marker("integration")
    if hasattr(config, "workerinput"):  # one of xdist's processes
        from tests.spread import in_order

        items[:] = in_order(items)


# pytest-xdist asks these; without it they are not hooks.


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """How many processes ``-n auto`` means."""
    from tests.spread import workers

    return workers()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Groups in the order of collection, whatever ``--dist`` says."""
    from tests.spread import ByGroup

    config.option.loadscopereorder = False
    return ByGroup(config, log)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """SIGINT interrupts this process and those it starts, also where it is ignored, as in a script's background job."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def bootstrap_servers() -> Iterator[str]:
    """One broker for all tests of the process. It allows short sessions; names of topics, groups and applications are
    each test's own."""
    with EmbeddedKafka() as cluster:
        yield cluster.bootstrap_servers
