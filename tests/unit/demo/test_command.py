"""What the demo refuses before it starts anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from demo.command import main


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
