"""What must not be cut in two by an interrupt."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from demo.workers import interrupts_held


def test_an_interrupt_takes_effect_after_the_block() -> None:
    done = []
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), interrupts_held():
        signal.raise_signal(signal.SIGINT)
        done.append(True)
    assert done == [True]
    assert signal.getsignal(signal.SIGTERM) is before


def test_other_threads_hold_nothing() -> None:
    def held() -> bool:
        with interrupts_held():
            return True

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(held).result()
