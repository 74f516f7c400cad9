"""Workers killed and frozen at failpoints. Here a sample of them: one of each way to get there is killed, some are frozen.
``make failpoints`` strikes at all. ``FAILPOINTS_SEED`` draws another sample."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from penstock.state.failpoints import FAILPOINTS
from tests.integration.faults.scenarios import SCENARIOS, strike

AT_ONCE = 6
FROZEN = 3


def drawn() -> list[tuple[str, str]]:
    """Points and actions."""
    rng = random.Random(int(os.environ.get("FAILPOINTS_SEED", "0")))
    ways = list(dict.fromkeys(SCENARIOS[name] for name in FAILPOINTS))
    killed = [rng.choice([name for name in FAILPOINTS if SCENARIOS[name] is way]) for way in ways]
    return [(name, "kill") for name in killed] + [(name, "stop") for name in rng.sample(list(FAILPOINTS), FROZEN)]


CASES = drawn()


@pytest.fixture(scope="module")
def running(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[tuple[str, str], Future[set[str]]]]:
    """Every case, a few at once, the long ones first."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {
            (point, action): pool.submit(strike, kafka, tmp_path_factory.mktemp("failpoints"), point, action)
            for point, action in sorted(CASES, key=lambda case: case[1], reverse=True)
        }


@pytest.mark.parametrize("case", CASES, ids=" ".join)
def test_exact_and_without_a_needless_restore(
    case: tuple[str, str], running: dict[tuple[str, str], Future[set[str]]]
) -> None:
    assert case[0] in running[case].result()


def test_every_failpoint_is_passed(running: dict[tuple[str, str], Future[set[str]]]) -> None:
    """A point that stands where nothing comes by would be struck by nobody."""
    assert set(FAILPOINTS) - set[str]().union(*(case.result() for case in running.values())) == set()
