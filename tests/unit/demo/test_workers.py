"""What must not be cut in two by an interrupt."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from demo.workers import interrupts_held


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_takes_effect_after_the_block() -> None:
    done = []
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), interrupts_held():
        signal.raise_signal(signal.SIGINT)
        done.append(True)
    assert done == [True]
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.usefixtures("interruptible")
def test_an_ignored_interrupt_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with interrupts_held():
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_other_threads_hold_nothing() -> None:
    def held() -> bool:
        with interrupts_held():
            return True

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(held).result()
