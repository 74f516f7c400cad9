"""Bars of a restore on a terminal: only where it takes long, and gone when it is over."""

from __future__ import annotations

import io

from rich.console import Console

from penstock.state.log import TaskId
from penstock.state.recovery.restore_decision import RestoreProgress
from penstock.streams.worker.restore_progress import AFTER_S, RestoreBars

SHOWN, HIDDEN = "\x1b[?25l", "\x1b[?25h"
"""What takes the cursor away while bars are drawn, and brings it back."""


class Restore:
    """A terminal and a clock."""

    def __init__(self) -> None:
        self.terminal, self.now_s = io.StringIO(), 100.0
        console = Console(file=self.terminal, force_terminal=True, width=100)
        self.bars = RestoreBars(console, lambda: self.now_s)

    def read(self, store: str, offset: int) -> None:
        """A store of ten offsets has come to this one."""
        self.bars.update(TaskId(0, 1), store, RestoreProgress(0, 10, offset))

    @property
    def drawn(self) -> str:
        return self.terminal.getvalue()


def test_a_short_restore_draws_nothing() -> None:
    restore = Restore()
    with restore.bars:
        for offset in (0, 5, 10):
            restore.read("counts", offset)
            restore.now_s += AFTER_S / 3
    assert restore.drawn == ""


def test_a_long_restore_has_bars_until_it_is_over() -> None:
    restore = Restore()
    with restore.bars:
        restore.read("counts", 0)
        restore.now_s += AFTER_S
        restore.read("counts", 4)
        restore.read("users", 2)
        assert restore.drawn.count(SHOWN) == 1 and HIDDEN not in restore.drawn
        restore.read("counts", 10)
        assert HIDDEN not in restore.drawn, "the other store is still restoring"
        restore.read("users", 10)
        assert restore.drawn.endswith(HIDDEN) or HIDDEN in restore.drawn[restore.drawn.rindex(SHOWN) :]
        over = restore.drawn
        restore.now_s += 60
        restore.read("more", 3)
        assert restore.drawn == over, "another restore, which has just begun"
    assert "counts of task 0_1" in over and "4/10 offsets" in over


def test_stores_one_after_another_are_one_long_restore() -> None:
    restore = Restore()
    with restore.bars:
        for number in range(8):
            restore.read(f"s{number}", 0)
            restore.now_s += AFTER_S / 3
            restore.read(f"s{number}", 5)
            restore.read(f"s{number}", 10)
    assert "s7 of task 0_1" in restore.drawn and "s0 of task 0_1" not in restore.drawn
    assert restore.drawn.count(SHOWN) == restore.drawn.count(HIDDEN) > 0
