"""The snapshot repository, on a local folder and through fsspec: what is published is whole, and the newest wins."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.state.errors import EnvironmentFault, SettingsError
from penstock.state.snapshots.manifest import StorePartition
from penstock.state.snapshots.repository import ABANDONED_MS, SnapshotRepository, open_repository
from penstock.state.snapshots.storage import open_storage
from penstock.streams.testing.contracts.snapshot_repository import NOW_MS, OF, published
from penstock.testing import RepositoryWorld, SnapshotRepositoryContract


@pytest.fixture(params=["local", "file url", "fsspec"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "fsspec":
        return f"memory://{uuid.uuid4().hex}/repository"
    return ("file://" if request.param == "file url" else "") + str(tmp_path / "repository")


class OurWorld(RepositoryWorld):
    """A repository at a URL."""

    def __init__(self, url: str) -> None:
        self._url = url

    def open(self) -> SnapshotRepository:
        return open_repository(self._url)

    def change(self, of: StorePartition, file: str, change: Callable[[bytes], bytes | None]) -> None:
        storage, path = open_storage(self._url), f"app%2F1/counts/{of.partition}/{file}"
        data = storage.read(path)
        assert data is not None
        if (changed := change(data)) is None:
            storage.delete(path)
        else:
            storage.write(path, changed)


class TestStoredSnapshots(SnapshotRepositoryContract):
    @pytest.fixture
    def world(self, url: str) -> RepositoryWorld:
        return OurWorld(url)


def test_a_damaged_manifest_is_told_of_and_the_one_before_is_used(url: str, tmp_path: Path) -> None:
    repository = open_repository(url)
    sound, bad = published(repository, tmp_path / "made", 5), published(repository, tmp_path / "made", 6)
    OurWorld(url).change(OF, bad.name, lambda data: data.replace(b'"topic_id":"t1"', b'"topic_id":"t2"'))
    found = repository.find(OF)
    assert found.manifests == (sound,)
    assert "checksum" in found.damaged[0]
    assert repository.newest(OF) == sound


def test_a_manifest_of_another_store_is_not_believed(url: str, tmp_path: Path) -> None:
    repository = open_repository(url)
    manifest = published(repository, tmp_path / "made", 5)
    other = StorePartition("app/1", "counts", 1)
    data = open_storage(url).read(f"app%2F1/counts/0/{manifest.name}")
    assert data is not None
    open_storage(url).write(f"app%2F1/counts/1/{manifest.name}", data)
    found = repository.find(other)
    assert found.manifests == ()
    assert "copied to a wrong place" in found.damaged[0]


def test_prune_leaves_the_files_of_a_newer_manifest_that_it_cannot_read(url: str, tmp_path: Path) -> None:
    repository = open_repository(url)
    published(repository, tmp_path / "made", 5)
    unreadable = published(repository, tmp_path / "made", 6)
    OurWorld(url).change(OF, unreadable.name, lambda data: data.replace(b'"version":2', b'"version":3'))
    assert repository.prune(OF, keep=1, now_ms=NOW_MS + 100 * ABANDONED_MS) == []
    assert len(repository.fetch(unreadable, tmp_path / "fetched")) == 2


def test_a_repository_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(EnvironmentFault, match="snapshot repository"):
        published(open_repository(tmp_path / "file"), tmp_path / "made", 1)
    with pytest.raises(SettingsError, match="nonsense://") as refused:
        open_repository("nonsense://user:secret@host/path")
    assert "secret" not in str(refused.value)
