"""The snapshot repository, on a local folder and through fsspec: what is published is whole, and the newest wins."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from penstock.state.errors import EnvironmentFault, RetriableError, SettingsError, StateCorruptedError
from penstock.state.machine.atomic_files import sha256_of
from penstock.state.rocksdb.rocksdb_backend import RocksDBBackend
from penstock.state.rocksdb.table_files import write_ssts
from penstock.state.snapshots.manifest import Manifest, SnapshotFile, StorePartition
from penstock.state.snapshots.repository import ABANDONED_MS, SnapshotRepository, new_attempt
from penstock.state.snapshots.storage import open_storage

NOW_MS = 1_700_000_000_000
OF = StorePartition("app/1", "counts", 0)
ENTRIES = [(b"%04d" % i, b"v%d" % i) for i in range(200)]


@pytest.fixture(params=["local", "file url", "fsspec"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "fsspec":
        return f"memory://{uuid.uuid4().hex}/repository"
    return ("file://" if request.param == "file url" else "") + str(tmp_path / "repository")


def made(folder: Path, offset: int, of: StorePartition = OF, now_ms: int = NOW_MS) -> Manifest:
    """A snapshot of two files in a local folder, not uploaded yet."""
    folder.mkdir(exist_ok=True)
    attempt = new_attempt(now_ms)
    files = [_file(folder, f"{attempt}-{n:05d}.sst", b"%d" % n, offset) for n in range(2)]
    return Manifest(
        application_id=of.application_id,
        store=of.store,
        kind="key_value",
        partition=of.partition,
        cluster_id="c1",
        topic="log",
        topic_id="t1",
        changelog_offset=offset,
        attempt=attempt,
        created_ms=now_ms,
        delete_retention_ms=1000,
        segment_ms=0,
        files=tuple(files),
    )


def _file(folder: Path, name: str, key: bytes, offset: int) -> SnapshotFile:
    path = folder / name
    path.write_bytes(b"%s at %d" % (name.encode(), offset))
    return SnapshotFile(name, path.stat().st_size, sha256_of(path), 1, key, key)


def published(repository: SnapshotRepository, folder: Path, offset: int, **kwargs: int) -> Manifest:
    manifest = made(folder, offset, **kwargs)  # type: ignore[arg-type]  # now_ms only
    repository.upload(OF, folder, manifest.files)
    repository.publish(manifest)
    return manifest


def test_an_empty_repository_has_nothing(url: str) -> None:
    repository = SnapshotRepository(url)
    assert repository.newest(OF) is None
    assert repository.contents(OF.application_id) == []
    assert repository.prune(OF, keep=1, now_ms=NOW_MS) == []


def test_what_is_published_is_fetched_as_it_was(url: str, tmp_path: Path) -> None:
    manifest = published(SnapshotRepository(url), tmp_path / "made", 7)
    found = SnapshotRepository(url).newest(OF)
    assert found == manifest
    paths = SnapshotRepository(url).fetch(found, tmp_path / "fetched")
    assert [p.name for p in paths] == [f.name for f in manifest.files]
    for path in paths:
        assert path.read_bytes() == (tmp_path / "made" / path.name).read_bytes()
    assert SnapshotRepository(url).contents("app/1") == [OF]


def test_nothing_is_visible_before_it_is_published(url: str, tmp_path: Path) -> None:
    repository = SnapshotRepository(url)
    manifest = made(tmp_path / "made", 7)
    repository.upload(OF, tmp_path / "made", manifest.files)
    assert repository.find(OF).manifests == ()


def test_an_incomplete_upload_is_not_published(url: str, tmp_path: Path) -> None:
    repository = SnapshotRepository(url)
    manifest = made(tmp_path / "made", 7)
    repository.upload(OF, tmp_path / "made", manifest.files[:1])
    with pytest.raises(StateCorruptedError, match=f"{manifest.files[1].name} has no bytes.*upload it again"):
        repository.publish(manifest)
    assert repository.newest(OF) is None


def test_the_highest_offset_wins_whoever_comes_last(url: str, tmp_path: Path) -> None:
    repository = SnapshotRepository(url)
    newer, older = made(tmp_path / "made", 1000), made(tmp_path / "made", 999)
    for manifest in (newer, older):
        repository.upload(OF, tmp_path / "made", manifest.files)
    assert repository.publish(newer)
    assert not repository.publish(older)
    assert repository.publish(newer)
    assert repository.find(OF).manifests == (newer, older)


def test_publishers_at_once_are_all_whole_and_never_go_back(url: str, tmp_path: Path) -> None:
    snapshots = [made(tmp_path / "made", offset) for offset in range(1, 13)]
    seen: list[int] = []

    def publish(manifest: Manifest) -> None:
        repository = SnapshotRepository(url)
        repository.upload(OF, tmp_path / "made", manifest.files)
        repository.publish(manifest)
        newest = repository.newest(OF)
        assert newest is not None
        assert newest.changelog_offset >= manifest.changelog_offset
        seen.append(newest.changelog_offset)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(publish, snapshots))
    assert len(seen) == 12
    assert [m.changelog_offset for m in SnapshotRepository(url).find(OF).manifests] == list(range(12, 0, -1))


def damage(url: str, name: str, change: Callable[[bytes], bytes]) -> None:
    storage = open_storage(url)
    path = f"app%2F1/counts/0/{name}"
    data = storage.read(path)
    assert data is not None
    storage.write(path, change(data))


def test_a_damaged_manifest_is_told_of_and_the_one_before_is_used(url: str, tmp_path: Path) -> None:
    repository = SnapshotRepository(url)
    sound, bad = published(repository, tmp_path / "made", 5), published(repository, tmp_path / "made", 6)
    damage(url, bad.name, lambda data: data.replace(b'"topic_id":"t1"', b'"topic_id":"t2"'))
    found = repository.find(OF)
    assert found.manifests == (sound,)
    assert "checksum" in found.damaged[0]
    assert repository.newest(OF) == sound


def test_a_manifest_of_another_store_is_not_believed(url: str, tmp_path: Path) -> None:
    repository = SnapshotRepository(url)
    manifest = published(repository, tmp_path / "made", 5)
    other = StorePartition("app/1", "counts", 1)
    data = open_storage(url).read(f"app%2F1/counts/0/{manifest.name}")
    assert data is not None
    open_storage(url).write(f"app%2F1/counts/1/{manifest.name}", data)
    found = repository.find(other)
    assert found.manifests == ()
    assert "copied to a wrong place" in found.damaged[0]


@pytest.mark.parametrize(
    "change", [lambda d: d[:-1], lambda d: d + b"x", lambda d: bytes([d[0] ^ 1]) + d[1:]], ids=["short", "long", "flip"]
)
def test_a_damaged_file_is_never_handed_over(url: str, tmp_path: Path, change: Callable[[bytes], bytes]) -> None:
    repository = SnapshotRepository(url)
    manifest = published(repository, tmp_path / "made", 5)
    damage(url, manifest.files[1].name, change)
    with pytest.raises(StateCorruptedError, match="is damaged"):
        repository.fetch(manifest, tmp_path / "fetched")
    assert list((tmp_path / "fetched").iterdir()) == []


def test_a_missing_file_is_damage_and_a_pruned_snapshot_is_not(url: str, tmp_path: Path) -> None:
    repository = SnapshotRepository(url)
    manifest = published(repository, tmp_path / "made", 5)
    open_storage(url).delete(f"app%2F1/counts/0/{manifest.files[1].name}")
    with pytest.raises(StateCorruptedError, match="is missing"):
        repository.fetch(manifest, tmp_path / "fetched")
    published(repository, tmp_path / "made", 6)
    repository.prune(OF, keep=1, now_ms=NOW_MS)
    with pytest.raises(RetriableError, match="was pruned"):
        repository.fetch(manifest, tmp_path / "fetched")
    assert list((tmp_path / "fetched").iterdir()) == []


def test_prune_spares_the_newest_and_whatever_is_under_way(url: str, tmp_path: Path) -> None:
    repository = SnapshotRepository(url)
    for offset in range(1, 5):
        published(repository, tmp_path / "made", offset)
    under_way = made(tmp_path / "made", 9, now_ms=NOW_MS - ABANDONED_MS)
    abandoned = made(tmp_path / "made", 9, now_ms=NOW_MS - ABANDONED_MS - 1)
    for attempt in (under_way, abandoned):
        repository.upload(OF, tmp_path / "made", attempt.files)
    removed = repository.prune(OF, keep=2, now_ms=NOW_MS)
    assert len(removed) == 2 * 3 + 2
    assert [m.changelog_offset for m in repository.find(OF).manifests] == [4, 3]
    for manifest in repository.find(OF).manifests:
        repository.fetch(manifest, tmp_path / "fetched")
    assert repository.publish(under_way)
    with pytest.raises(StateCorruptedError, match="not published"):
        repository.publish(abandoned)
    assert repository.prune(OF, keep=3, now_ms=NOW_MS) == []
    with pytest.raises(ValueError, match="at least 1"):
        repository.prune(OF, keep=0, now_ms=NOW_MS)


def test_prune_spares_what_is_said_to_live(url: str, tmp_path: Path) -> None:
    repository = SnapshotRepository(url)
    made_at = {offset: published(repository, tmp_path / "made", offset) for offset in (1, 2, 3)}
    repository.prune(OF, keep=1, now_ms=NOW_MS, live=[made_at[1].name])
    assert [m.changelog_offset for m in repository.find(OF).manifests] == [3, 1]
    assert len(repository.fetch(made_at[1], tmp_path / "fetched")) == 2


def test_an_old_snapshot_that_is_still_the_newest_is_not_abandoned(url: str, tmp_path: Path) -> None:
    repository = SnapshotRepository(url)
    manifest = published(repository, tmp_path / "made", 5, now_ms=NOW_MS)
    assert repository.prune(OF, keep=1, now_ms=NOW_MS + 100 * ABANDONED_MS) == []
    assert len(repository.fetch(manifest, tmp_path / "fetched")) == 2


def test_prune_leaves_the_files_of_a_newer_manifest_that_it_cannot_read(url: str, tmp_path: Path) -> None:
    repository = SnapshotRepository(url)
    published(repository, tmp_path / "made", 5)
    unreadable = published(repository, tmp_path / "made", 6)
    damage(url, unreadable.name, lambda data: data.replace(b'"version":2', b'"version":3'))
    assert repository.prune(OF, keep=1, now_ms=NOW_MS + 100 * ABANDONED_MS) == []
    assert len(repository.fetch(unreadable, tmp_path / "fetched")) == 2


def test_a_store_goes_through_the_repository_into_a_database(url: str, tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    attempt = new_attempt(NOW_MS)
    files = write_ssts(tmp_path / "made", attempt, ENTRIES, position=b"stands at 200", file_bytes=400)
    manifest = msgspec.structs.replace(made(tmp_path / "made", 200), attempt=attempt, files=tuple(files))
    repository = SnapshotRepository(url)
    repository.upload(OF, tmp_path / "made", files)
    repository.publish(manifest)
    shutil.rmtree(tmp_path / "made")
    backend = RocksDBBackend(tmp_path / "db", ["counts"])
    backend.ingest("counts", repository.fetch(manifest, tmp_path / "fetched"), move=True)
    assert (backend.position("counts"), list(backend.range("counts", None, None))) == (b"stands at 200", ENTRIES)
    backend.close()


def test_a_repository_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(EnvironmentFault, match="snapshot repository"):
        published(SnapshotRepository(tmp_path / "file"), tmp_path / "made", 1)
    with pytest.raises(SettingsError, match="nonsense://") as refused:
        SnapshotRepository("nonsense://user:secret@host/path")
    assert "secret" not in str(refused.value)
