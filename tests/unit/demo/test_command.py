"""What the demo refuses before it starts anything, and how it is interrupted."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from demo.command import interruptible, main


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    assert main(["--dir", str(tmp_path)]) == 2
    assert "holds files that are not the demo's" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("events", ["10", "999999999"])
def test_too_few_and_too_many_events_are_refused(
    events: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--events", events, "--dir", str(tmp_path / "new")]) == 2
    assert f"--events {events}: give 2,000 to 30,000,000" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_stays_one_whatever_a_library_makes_of_it(number: signal.Signals) -> None:
    with pytest.raises(KeyboardInterrupt), interruptible():
        try:
            signal.raise_signal(number)
        except KeyboardInterrupt:
            raise SystemError("a result with an exception set") from None


def test_an_error_without_an_interruption_stays_an_error() -> None:
    with pytest.raises(ValueError, match="of its own"), interruptible():
        raise ValueError("of its own")
