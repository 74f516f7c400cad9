"""Calls that return in time, whatever they do."""

from __future__ import annotations

import threading

import pytest

from penstock.streams.kafka import bounded_calls
from penstock.streams.kafka.bounded_calls import BoundedCalls, StuckError


@pytest.fixture(autouse=True)
def _short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_calls, "GRACE_S", 0.05)
    monkeypatch.setattr(bounded_calls, "WOKEN_S", 0.05)


def test_answers_and_errors_come_back_from_one_thread() -> None:
    calls = BoundedCalls()
    first = calls.call(threading.get_ident, limit_s=30)
    assert first not in (None, threading.get_ident())
    with pytest.raises(KeyError, match="gone"):
        calls.call({}.__getitem__, "gone", limit_s=30)
    assert calls.call(threading.get_ident, limit_s=30) == first
    calls.close()


def test_a_call_that_does_not_return_is_left_behind_and_its_late_answer_is_nobodys() -> None:
    calls, goes_on, ended = BoundedCalls(), threading.Event(), threading.Event()

    def late() -> str:
        goes_on.wait(30)
        ended.set()
        return "late"

    with pytest.raises(StuckError):
        calls.call(late, limit_s=0.0)
    stuck = [t for t in threading.enumerate() if t.name == "penstock-transactions"]
    assert all(t.daemon for t in stuck)
    goes_on.set()
    assert ended.wait(30)
    for thread in stuck:
        thread.join(30)
        assert not thread.is_alive()
