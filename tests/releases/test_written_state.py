"""O4: what a release has written is read by this one, and what this one writes is written down."""

from __future__ import annotations

import json

import pytest

import penstock as ps
from tests.releases.written_state import FOLDER, SPLIT, records, restored, taken, written

FILES = sorted(FOLDER.glob("*.json"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_state_of_a_release_is_restored_and_goes_on(path) -> None:  # type: ignore[no-untyped-def]  # pytest names it
    kept = json.loads(path.read_text())
    with restored(kept) as driver:
        driver.pipe_sequence(records()[SPLIT:])
        driver.restart()
        assert taken(driver) == kept["after"]


def test_what_this_release_keeps_is_written_down() -> None:
    """A change of a format, or of an answer, shows here: then read the old form too, and write the new one down."""
    path = FOLDER / f"{ps.__version__}.json"
    known, now = json.loads(path.read_text()), written()
    assert now["after"] == known["after"]
    assert now["changelogs"] == known["changelogs"]


def test_the_state_matters() -> None:
    """Without the changelogs every output is another."""
    kept = json.loads(FILES[-1].read_text())
    with restored({**kept, "changelogs": []}) as driver:
        driver.pipe_sequence(records()[SPLIT:])
        driver.restart()
        now = taken(driver)
    assert all(kept["before"][topic] or kept["after"][topic] for topic in now), "an output that nothing comes out of"
    assert [topic for topic in now if now[topic] == kept["after"][topic]] == []
