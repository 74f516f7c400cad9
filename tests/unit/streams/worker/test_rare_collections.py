"""Workers of one process share the thresholds of its garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from penstock.streams.worker.rare_collections import OLDER_ROUNDS, rare_collections


@pytest.fixture(autouse=True)
def usual_thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*before)


def test_thresholds_hold_while_a_worker_runs() -> None:
    with rare_collections(5_000):
        assert gc.get_threshold() == (5_000, OLDER_ROUNDS, 10)
    assert gc.get_threshold() == (700, 10, 10)


@pytest.mark.parametrize("first_ends_first", [True, False])
def test_workers_end_in_any_order(first_ends_first: bool) -> None:
    with ExitStack() as last:
        one, other = ExitStack(), ExitStack()
        one.enter_context(rare_collections(50_000))
        other.enter_context(rare_collections(5_000))
        assert gc.get_threshold() == (5_000, OLDER_ROUNDS, 10)
        ends, stays = (one, other) if first_ends_first else (other, one)
        last.callback(stays.close)
        ends.close()
        assert gc.get_threshold()[0] == (5_000 if first_ends_first else 50_000)
    assert gc.get_threshold() == (700, 10, 10)


def test_a_rarer_collector_of_the_process_stays_as_it_is() -> None:
    gc.set_threshold(100_000, 200, 10)
    with rare_collections(5_000):
        assert gc.get_threshold() == (100_000, 200, 10)


def test_a_collector_that_is_off_stays_off() -> None:
    gc.set_threshold(0, 10, 10)
    with rare_collections(5_000):
        assert gc.get_threshold()[0] == 0


def test_an_error_gives_the_thresholds_back() -> None:
    with pytest.raises(ValueError, match="gone"), rare_collections(5_000):
        raise ValueError("gone")
    assert gc.get_threshold() == (700, 10, 10)
