"""Work in a thread ends with its block."""

from __future__ import annotations

import threading

import pytest

from penstock.streams.batch.background import in_background


def test_the_work_runs_during_the_block_and_has_ended_after_it() -> None:
    began, steps = threading.Event(), list[str]()

    def work(stop: threading.Event) -> None:
        steps.append(threading.current_thread().name)
        began.set()
        assert stop.wait(60)
        steps.append("ended")

    with in_background(work, "steps"):
        assert began.wait(60)
        assert steps == ["penstock-steps"]
    assert steps == ["penstock-steps", "ended"]


def test_a_block_that_fails_ends_the_work_too() -> None:
    ended = threading.Event()

    def work(stop: threading.Event) -> None:
        assert stop.wait(60)
        ended.set()

    with pytest.raises(ValueError, match="the block"), in_background(work, "steps"):
        raise ValueError("the block")
    assert ended.is_set()
