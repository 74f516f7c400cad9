"""Commands that run again and again."""

from __future__ import annotations

import pytest

from penstock.state.errors import EnvironmentFault, SettingsError
from penstock.streams.cli.main import build_parser
from penstock.streams.cli.schedule import repeated


def test_a_run_that_failed_for_now_is_followed_by_the_next_at_its_time(capsys: pytest.CaptureFixture[str]) -> None:
    now, slept, runs = [0.0], [], 0

    def run() -> int:
        nonlocal runs
        runs += 1
        now[0] += (10.0, 100.0, 10.0)[runs - 1]
        if runs == 1:
            raise EnvironmentFault("the disk is full")
        if runs == 3:
            raise SettingsError("there is no such store")
        return 0

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    with pytest.raises(SettingsError):
        repeated(60.0, run, clock=lambda: now[0], sleep=sleep)
    assert slept == [50.0, 0.0]
    assert "the disk is full" in capsys.readouterr().err


def test_one_run_ends_as_it_ends() -> None:
    assert repeated(None, lambda: 3) == 3
    with pytest.raises(EnvironmentFault):
        repeated(None, lambda: (_ for _ in ()).throw(EnvironmentFault("no")).send(None))


def test_durations_are_read() -> None:
    words = ["compact", "m:t", "--application-id", "a", "--every", "90m"]
    assert build_parser(words).parse_args(words).every == 5_400
    with pytest.raises(SystemExit):
        build_parser(words).parse_args([*words[:-1], "soon"])
