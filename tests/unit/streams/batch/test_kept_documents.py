"""Savepoints and replays are read as they were written by earlier releases, and not at all if anything is wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.state.errors import StateCorruptedError
from penstock.streams.batch.published import InputRange, Replay, TaskReport, load_replay, publish_replay
from penstock.streams.batch.savepoint import SavedInput, SavedOutput, SavedStore, Savepoint, SavepointRepository

SAVEPOINT = Savepoint(
    application_id="app",
    cluster_id="c1",
    name="1700000000000-0a1b2c3d",
    inputs=(SavedInput("views", 3, 99, "m"),),
    stores=(SavedStore("counts", 3, "manifest-1-a1.json"),),
    outputs=(SavedOutput("out", 0, 7),),
    outputs_exact=True,
)
SAVEPOINT_FILE = "app/savepoints/1700000000000-0a1b2c3d.json"
SAVEPOINT_WRITTEN = (
    b'{"version":1,"sha256":"8e5384d3dcb3504b229f7fad44b828795cc2ded8ca8e1584e5ab8faa631f9745","savepoint":'
    b'{"application_id":"app","cluster_id":"c1","name":"1700000000000-0a1b2c3d","inputs":[{"topic":"views","partition":3,'
    b'"offset":99,"metadata":"m"}],"stores":[{"store":"counts","partition":3,"manifest":"manifest-1-a1.json"}],'
    b'"outputs":[{"topic":"out","partition":0,"offset":7}],"outputs_exact":true}}'
)
REPLAY = Replay(
    run="1700000000000-a1",
    application_id="app",
    topology="t:t",
    started_from="start",
    recomputed=False,
    inputs=(InputRange("views", 3, 0, 99),),
    tasks=(TaskReport(subtopology=0, task=3, records=99, outputs=(), stores=(), dropped={}, failures={"x": 1}),),
)
REPLAY_FILE = "current.json"
REPLAY_WRITTEN = (
    b'{"version":1,"sha256":"88e2125d159f215e6772e4b04886d274b9cf63517ede0e8304ea408a99b6a2a7","replay":'
    b'{"run":"1700000000000-a1","application_id":"app","topology":"t:t","started_from":"start","recomputed":false,'
    b'"inputs":[{"topic":"views","partition":3,"start":0,"stop":99}],"tasks":[{"subtopology":0,"task":3,"records":99,'
    b'"outputs":[],"stores":[],"dropped":{},"failures":{"x":1}}],"cautions":[]}}'
)


def savepoint_of(folder: Path) -> Savepoint:
    return SavepointRepository(str(folder)).load("app")


def replay_of(folder: Path) -> Replay:
    return load_replay(str(folder))


def test_they_are_written_as_ever(tmp_path: Path) -> None:
    SavepointRepository(str(tmp_path / "a")).publish(SAVEPOINT)
    assert (tmp_path / "a" / SAVEPOINT_FILE).read_bytes() == SAVEPOINT_WRITTEN
    publish_replay(str(tmp_path / "b"), REPLAY)
    assert (tmp_path / "b" / REPLAY_FILE).read_bytes() == REPLAY_WRITTEN


@pytest.mark.parametrize(
    ("file", "written", "load", "kept"),
    [
        pytest.param(SAVEPOINT_FILE, SAVEPOINT_WRITTEN, savepoint_of, SAVEPOINT, id="savepoint"),
        pytest.param(REPLAY_FILE, REPLAY_WRITTEN, replay_of, REPLAY, id="replay"),
    ],
)
def test_what_was_written_is_read_and_nothing_damaged(
    tmp_path: Path, file: str, written: bytes, load: Callable[[Path], object], kept: object
) -> None:
    place = tmp_path / file
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(written)
    assert load(tmp_path) == kept
    for damaged, said in (
        (written[:-1], "is not a"),
        (b"[" * 100_000, "is not a"),
        (written.replace(b'"version":1', b'"version":2', 1), "version 2, and this release reads version 1 only"),
        (written.replace(b"views", b"view5"), "its checksum is"),
    ):
        place.write_bytes(damaged)
        with pytest.raises(StateCorruptedError, match=said):
            load(tmp_path)
