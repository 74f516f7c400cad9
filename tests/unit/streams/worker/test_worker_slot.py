"""Which slot of a state folder a worker takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.state.errors import PenstockError
from penstock.state.machine.state_directory import StateDirectory
from penstock.streams.worker.worker_slot import SLOTS_MAX, take_slot


def test_the_preferred_one_if_it_is_free_else_the_first_free_one(tmp_path: Path) -> None:
    directory = StateDirectory(str(tmp_path), "app")
    wanted = [(2, 2), (2, 0), (0, 1), (0, 3)]
    taken = [take_slot(directory, preferred) for preferred, _ in wanted]
    assert [number for _, number in taken] == [number for _, number in wanted]
    taken[0][0].release()
    again, number = take_slot(directory, 2)
    assert number == 2, "who comes back finds its own"
    for lock in (again, *(lock for lock, _ in taken[1:])):
        lock.release()


def test_more_than_the_folder_has_are_refused(tmp_path: Path) -> None:
    directory = StateDirectory(str(tmp_path), "app")
    taken = [take_slot(directory, 5)[0] for _ in range(SLOTS_MAX)]
    with pytest.raises(PenstockError, match="give this one a state_dir of its own"):
        take_slot(directory)
    for lock in taken:
        lock.release()
