"""The state folder: names that cannot escape it, one owner per task, one application per folder."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.state.errors import (
    EnvironmentFault,
    IncompatibleError,
    RetriableError,
    SettingsError,
    StateCorruptedError,
)
from penstock.state.machine import state_directory
from penstock.state.machine.state_directory import QUARANTINED_MAX, StateDirectory, safe_name


def test_plain_names_stay_and_others_are_encoded() -> None:
    assert safe_name("my-app_1.2") == "my-app_1.2"
    assert safe_name("a/b%c d") == "a%2Fb%25c%20d"
    assert safe_name("é\x00") == "%C3%A9%00"
    assert (safe_name("."), safe_name("..")) == ("%2E", "%2E%2E")


@pytest.mark.parametrize("name", ["", "x" * 201, "/" * 70])
def test_names_without_length_or_with_too_much_are_refused(name: str) -> None:
    with pytest.raises(SettingsError, match="1 to 200"):
        safe_name(name)


NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=16)


@given(NAMES, NAMES)
def test_a_name_is_one_folder_and_its_own(one: str, other: str) -> None:
    folder = Path("/state") / safe_name(one)
    assert folder.parent == Path("/state")
    assert os.path.normpath(folder) == str(folder)
    assert (safe_name(one) == safe_name(other)) == (one == other)


@pytest.mark.parametrize("file", ["CURRENT", "stores.sqlite"])
def test_the_layout_is_as_documented_and_private(tmp_path: Path, file: str) -> None:
    directory = StateDirectory(tmp_path / "state", "app/1")
    directory.lock("0_3", timeout_s=0).release()
    assert directory.database_path("0_3") == tmp_path / "state" / "app%2F1" / "0_3" / "rocksdb"
    assert stat.S_IMODE((tmp_path / "state" / "app%2F1" / "0_3").stat().st_mode) == 0o700
    assert directory.tasks() == []
    directory.database_path("0_3").mkdir()
    assert directory.tasks() == []
    (directory.database_path("0_3") / file).touch()
    assert directory.tasks() == ["0_3"]


def drawn(text: str) -> set[str]:
    """The paths in the diagram of a docstring: what is indented more lies inside; a name ends where its meaning begins."""
    paths: set[str] = set()
    above: list[tuple[int, str]] = []
    for line in text.partition("::\n\n")[2].partition("\n\n")[0].splitlines():
        indent = len(line) - len(line.lstrip())
        above = [(at, name) for at, name in above if at < indent]
        above.append((indent, line.split()[0]))
        paths.add("".join(name for _, name in above))
    return paths


def test_the_diagram_shows_what_is_in_the_folder(tmp_path: Path) -> None:
    directory = StateDirectory(tmp_path, "app")
    directory.claim(cluster_id="c", fingerprint="f")
    with directory.lock("0_3", timeout_s=0):
        directory.database_path("0_3").mkdir()
        directory.quarantine("0_3", "by a test")
        directory.database_path("0_3").mkdir()
    words = {"<state_dir>": str(tmp_path), "<application.id>": "app", "<task>": "0_3", "<n>": "1"}
    shown = {re.sub("<.*?>", lambda word: words[word[0]], path) for path in drawn(state_directory.__doc__ or "")}
    inside = [path for path in directory.path.rglob("*") if path.name != "reason.txt"]
    assert shown == {f"{path}/" if path.is_dir() else str(path) for path in [directory.path, *inside]}


def test_a_folder_keeps_its_identity(tmp_path: Path) -> None:
    first = StateDirectory(tmp_path, "app").claim(cluster_id="c1", fingerprint="f1")
    again = StateDirectory(tmp_path, "app").claim(cluster_id="c1", fingerprint="f1")
    assert again == first
    assert len(first.process_uuid) == 36
    other = StateDirectory(tmp_path, "other").claim(cluster_id="c1", fingerprint="f1")
    assert other.process_uuid != first.process_uuid


@pytest.mark.parametrize(
    ("cluster_id", "fingerprint", "words"),
    [("c2", "f1", "cluster 'c1', and this is cluster 'c2'"), ("c1", "f2", "topology 'f1', and this is topology 'f2'")],
)
def test_a_folder_of_something_else_is_refused_with_what_to_do(
    tmp_path: Path, cluster_id: str, fingerprint: str, words: str
) -> None:
    StateDirectory(tmp_path, "app").claim(cluster_id="c1", fingerprint="f1")
    with pytest.raises(IncompatibleError, match=f"{words}.*remove {tmp_path / 'app'}"):
        StateDirectory(tmp_path, "app").claim(cluster_id=cluster_id, fingerprint=fingerprint)


def test_a_folder_renamed_to_another_application_is_refused(tmp_path: Path) -> None:
    StateDirectory(tmp_path, "app").claim(cluster_id="c1", fingerprint="f1")
    (tmp_path / "app").rename(tmp_path / "stolen")
    with pytest.raises(IncompatibleError, match="application 'app', and this is application 'stolen'"):
        StateDirectory(tmp_path, "stolen").claim(cluster_id="c1", fingerprint="f1")


def test_an_identity_that_cannot_be_read_is_not_replaced(tmp_path: Path) -> None:
    folder = StateDirectory(tmp_path, "app")
    folder.claim(cluster_id="c1", fingerprint="f1")
    identity = folder.path / "identity.json"
    whole = identity.read_bytes()
    for bad in (b"", whole[:20], b"[]", whole.replace(b'"app"', b'"a\xb7p"'), b"[" * 100_000):
        identity.write_bytes(bad)
        with pytest.raises(StateCorruptedError, match=r"identity\.json cannot be read"):
            folder.claim(cluster_id="c1", fingerprint="f1")
        assert identity.read_bytes() == bad
    identity.write_bytes(whole.replace(b'"version": 1', b'"version": 9'))
    with pytest.raises(IncompatibleError, match="version 9"):
        folder.claim(cluster_id="c1", fingerprint="f1")


def test_a_copied_folder_gets_a_name_of_its_own(tmp_path: Path) -> None:
    """Two processes of one name would fence each other for ever."""
    first = StateDirectory(tmp_path / "one", "app").claim(cluster_id="c1", fingerprint="f1")
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    copied = StateDirectory(tmp_path / "two", "app").claim(cluster_id="c1", fingerprint="f1")
    assert copied.process_uuid != first.process_uuid
    assert StateDirectory(tmp_path / "two", "app").claim(cluster_id="c1", fingerprint="f1") == copied
    assert StateDirectory(tmp_path / "one", "app").claim(cluster_id="c1", fingerprint="f1") == first
    (tmp_path / "one").rename(tmp_path / "moved")
    assert StateDirectory(tmp_path / "moved", "app").claim(cluster_id="c1", fingerprint="f1") == first


@pytest.mark.parametrize("what", ["host", "machine"])
def test_a_volume_on_another_machine_gets_a_name_of_its_own(
    tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = StateDirectory(tmp_path, "app").claim(cluster_id="c1", fingerprint="f1")
    if what == "host":
        monkeypatch.setattr(socket, "gethostname", lambda: "another")
    else:
        (tmp_path / "machine-id").write_text("another\n")
        monkeypatch.setattr(state_directory, "MACHINE_ID_FILES", (tmp_path / "machine-id",))
    assert StateDirectory(tmp_path, "app").claim(cluster_id="c1", fingerprint="f1").process_uuid != first.process_uuid


def test_an_identity_without_a_place_keeps_its_name(tmp_path: Path) -> None:
    """One that an earlier release has written."""
    folder = StateDirectory(tmp_path, "app")
    first = folder.claim(cluster_id="c1", fingerprint="f1")
    identity = folder.path / "identity.json"
    fields = json.loads(identity.read_bytes())
    del fields["place"]
    identity.write_text(json.dumps(fields))
    assert folder.claim(cluster_id="c1", fingerprint="f1") == first
    assert "place" in json.loads(identity.read_bytes())


def test_processes_that_start_together_in_a_copy_agree_on_the_identity(tmp_path: Path) -> None:
    first = claim(str(tmp_path / "one"))
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        names = set(pool.map(claim, [str(tmp_path / "two")] * 8, chunksize=1))
    assert len(names) == 1
    assert first not in names


@pytest.mark.parametrize("call", ["ftruncate", "pwrite"])
def test_a_full_disk_is_told_with_what_to_do(tmp_path: Path, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    folder = StateDirectory(tmp_path, "app")
    folder.claim(cluster_id="c1", fingerprint="f1")
    with monkeypatch.context() as full:
        full.setattr(os, call, refuses)
        with pytest.raises(EnvironmentFault, match=r"cannot write to .*lock: .*free space on the disk"):
            folder.lock("0_0", timeout_s=0)
    lock = folder.lock("0_0", timeout_s=0)
    with monkeypatch.context() as full:
        full.setattr(os, call, refuses)
        lock.release()
    folder.lock("0_0", timeout_s=0).release()


def claim(path: str) -> str:
    return StateDirectory(path, "app").claim(cluster_id="c1", fingerprint="f1").process_uuid


def test_processes_that_start_together_agree_on_the_identity(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert len(set(pool.map(claim, [str(tmp_path)] * 8, chunksize=1))) == 1
    assert sorted(p.name for p in (tmp_path / "app").iterdir()) == ["identity.json"]


HOLD = """
import sys
from penstock.state.machine.state_directory import StateDirectory
lock = StateDirectory(sys.argv[1], "app").lock("0_0", timeout_s=0)
print("held", flush=True)
sys.stdin.read()
"""


def test_a_task_has_one_owner_until_it_dies(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"held\n"
        directory = StateDirectory(tmp_path, "app")
        with pytest.raises(RetriableError, match=f"held by process {child.pid}, for 0.1 s"):
            directory.lock("0_0", timeout_s=0.1)
        directory.lock("0_1", timeout_s=0).release()
        child.send_signal(signal.SIGKILL)
        with directory.lock("0_0", timeout_s=120), pytest.raises(RetriableError, match=f"process {os.getpid()}"):
            directory.lock("0_0", timeout_s=0)
        directory.lock("0_0", timeout_s=0).release()
    finally:
        child.kill()
        child.communicate()


def test_a_lock_file_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    directory = StateDirectory(tmp_path, "app")
    directory.task_path("0_0").mkdir(parents=True)
    (tmp_path / "precious").write_text("keep me")
    (directory.task_path("0_0") / "lock").symlink_to(tmp_path / "precious")
    with pytest.raises(EnvironmentFault, match="symbolic link"):
        directory.lock("0_0", timeout_s=0)
    assert (tmp_path / "precious").read_text() == "keep me"


def test_quarantine_keeps_the_files_and_the_reason_and_not_for_ever(tmp_path: Path) -> None:
    directory = StateDirectory(tmp_path, "app")
    for number in range(1, QUARANTINED_MAX + 3):
        directory.database_path("0_0").mkdir(parents=True)
        (directory.database_path("0_0") / "CURRENT").write_text(str(number))
        place = directory.quarantine("0_0", f"reason {number}")
        assert place.name == f"rocksdb.quarantine-{number}"
        assert (place / "CURRENT").read_text() == str(number)
        assert (place / "reason.txt").read_text() == f"reason {number}\n"
        assert not directory.database_path("0_0").exists()
    assert len(list(directory.task_path("0_0").iterdir())) == QUARANTINED_MAX
    assert directory.tasks() == []


def test_what_is_not_there_cannot_be_quarantined(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match="quarantine"):
        StateDirectory(tmp_path, "app").quarantine("0_0", "why")
