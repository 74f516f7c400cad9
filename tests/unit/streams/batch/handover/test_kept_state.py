"""Pieces find the stores of earlier ones, unless another process holds them."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.state.log import TaskId
from penstock.state.machine.state_directory import StateDirectory
from penstock.streams.batch.handover import kept_state
from penstock.streams.batch.handover.kept_state import kept_folder

APP = "app"


def test_the_folder_is_kept_and_given_to_the_next(tmp_path: Path) -> None:
    for _ in range(2):
        with kept_folder(str(tmp_path), APP, [TaskId(1, 3), TaskId(0, 3)]) as folder:
            assert folder == str(tmp_path)
            # The worker's own locks are free.
            StateDirectory(folder, APP).lock("0_3", timeout_s=0).release()


@pytest.mark.parametrize("held", ["0_3", "1_3", "piece-3"])
def test_what_another_process_holds_is_restored_elsewhere(
    tmp_path: Path, held: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_state, "LOCK_WAIT_S", 0.0)
    with StateDirectory(tmp_path, APP).lock(held, timeout_s=0):
        with kept_folder(str(tmp_path), APP, [TaskId(0, 3), TaskId(1, 3)]) as folder:
            assert folder != str(tmp_path) and Path(folder).is_dir() and not list(Path(folder).iterdir())
        assert not Path(folder).exists()
        with kept_folder(str(tmp_path), APP, [TaskId(0, 2)]) as other:
            assert other == str(tmp_path)


def test_two_attempts_on_one_piece_do_not_meet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_state, "LOCK_WAIT_S", 0.0)
    task = TaskId(0, 3)
    with kept_folder(str(tmp_path), APP, [task]) as first, kept_folder(str(tmp_path), APP, [task]) as second:
        assert first == str(tmp_path) != second
