"""The options of ``penstock stream``, as far as they need no cluster."""

from __future__ import annotations

import os
import signal

import pytest

from penstock.streams.cli.main import main
from penstock.streams.cli.stream import _stopped_by_signals

WORD_COUNT = "penstock.topologies.examples.word_count:build"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--available-now", "--every", "5s"], "not allowed with argument"),
        (["--every", "often"], "is not a duration"),
    ],
)
def test_a_wrong_command_line_is_refused(more: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["stream", WORD_COUNT, "--application-id", "a", *more])
    assert left.value.code == 2 and said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("named", "said"),
    [("json:nothing", "json has no nothing"), ("string:digits", "string:digits is a str; give a function")],
)
def test_a_hook_that_is_no_function_is_refused(named: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stream", WORD_COUNT, "--application-id", "a", "--foreach-batch", named]) == 2
    assert said in capsys.readouterr().err


def test_the_first_signal_asks_for_the_end_and_the_second_one_interrupts() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with _stopped_by_signals() as stop:
        assert not stop.is_set()
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.wait(60)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
            signal.sigtimedwait([], 1)
    assert signal.getsignal(signal.SIGTERM) is before
