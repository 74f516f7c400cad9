"""The line of a command that takes its time."""

from __future__ import annotations

import io
import time

from rich.console import Console

from penstock.streams.cli.main import COMMANDS, waiting_line
from penstock.streams.cli.waiting import WaitingLine


def screen() -> Console:
    """A terminal that keeps what is written to it."""
    return Console(file=io.StringIO(), force_terminal=True, width=80)


def written(console: Console) -> str:
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def test_a_command_that_is_soon_done_shows_nothing() -> None:
    console = screen()
    with WaitingLine("penstock lag", after_s=600, console=console):
        pass
    assert written(console) == ""


def test_one_that_takes_longer_says_so_and_leaves_nothing_behind() -> None:
    console = screen()
    with WaitingLine("penstock up", after_s=0, console=console):
        until = time.monotonic() + 60
        while "penstock up: 0 s so far" not in written(console) and time.monotonic() < until:
            time.sleep(0.01)
    assert "Ctrl-C stops it" in written(console)
    assert written(console).endswith("\x1b[2K"), "the line is cleared"


def test_no_line_where_no_terminal_would_show_it() -> None:
    (up,) = [command for command in COMMANDS if command.name == "up"]
    assert up.waits
    assert not isinstance(waiting_line(up), WaitingLine), "standard error is pytest's"
