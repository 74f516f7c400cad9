"""The contract of a snapshot repository: what is published is whole, and the newest wins."""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from penstock.state.errors import RetriableError, StateCorruptedError
from penstock.state.machine.atomic_files import sha256_of
from penstock.state.rocksdb.scratch import read_tables
from penstock.state.rocksdb.table_files import write_ssts
from penstock.state.snapshots.manifest import Manifest, SnapshotFile, StorePartition
from penstock.state.snapshots.repository import ABANDONED_MS, SnapshotRepository, new_attempt

NOW_MS = 1_700_000_000_000
OF = StorePartition("app/1", "counts", 0)
ENTRIES = [(b"%04d" % i, b"v%d" % i) for i in range(200)]


class RepositoryWorld(ABC):
    """The repository that is tested: a fixture ``world`` gives an empty one."""

    @abstractmethod
    def open(self) -> SnapshotRepository:
        """Open it; each call as another process would."""

    @abstractmethod
    def change(self, of: StorePartition, file: str, change: Callable[[bytes], bytes | None]) -> None:
        """Replace an uploaded table file by what ``change`` makes of its bytes; ``None`` removes it."""


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


class SnapshotRepositoryContract:
    """The contract of every repository. Subclass it, with a fixture ``world`` that gives a ``RepositoryWorld``."""

    def test_an_empty_repository_has_nothing(self, world: RepositoryWorld) -> None:
        repository = world.open()
        assert repository.newest(OF) is None
        assert repository.contents(OF.application_id) == []
        assert repository.prune(OF, keep=1, now_ms=NOW_MS) == []

    def test_what_is_published_is_fetched_as_it_was(self, world: RepositoryWorld, tmp_path: Path) -> None:
        manifest = published(world.open(), tmp_path / "made", 7)
        found = world.open().newest(OF)
        assert found == manifest
        paths = world.open().fetch(found, tmp_path / "fetched")
        assert [p.name for p in paths] == [f.name for f in manifest.files]
        for path in paths:
            assert path.read_bytes() == (tmp_path / "made" / path.name).read_bytes()
        assert world.open().contents("app/1") == [OF]

    def test_nothing_is_visible_before_it_is_published(self, world: RepositoryWorld, tmp_path: Path) -> None:
        repository = world.open()
        manifest = made(tmp_path / "made", 7)
        repository.upload(OF, tmp_path / "made", manifest.files)
        assert repository.find(OF).manifests == ()

    def test_an_incomplete_upload_is_not_published(self, world: RepositoryWorld, tmp_path: Path) -> None:
        repository = world.open()
        manifest = made(tmp_path / "made", 7)
        repository.upload(OF, tmp_path / "made", manifest.files[:1])
        with pytest.raises(StateCorruptedError, match=f"{manifest.files[1].name} has no bytes.*upload it again"):
            repository.publish(manifest)
        assert repository.newest(OF) is None

    def test_the_highest_offset_wins_whoever_comes_last(self, world: RepositoryWorld, tmp_path: Path) -> None:
        repository = world.open()
        newer, older = made(tmp_path / "made", 1000), made(tmp_path / "made", 999)
        for manifest in (newer, older):
            repository.upload(OF, tmp_path / "made", manifest.files)
        assert repository.publish(newer)
        assert not repository.publish(older)
        assert repository.publish(newer)
        assert repository.find(OF).manifests == (newer, older)

    def test_publishers_at_once_are_all_whole_and_never_go_back(self, world: RepositoryWorld, tmp_path: Path) -> None:
        snapshots = [made(tmp_path / "made", offset) for offset in range(1, 13)]
        seen: list[int] = []

        def publish(manifest: Manifest) -> None:
            repository = world.open()
            repository.upload(OF, tmp_path / "made", manifest.files)
            repository.publish(manifest)
            newest = repository.newest(OF)
            assert newest is not None
            assert newest.changelog_offset >= manifest.changelog_offset
            seen.append(newest.changelog_offset)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(publish, snapshots))
        assert len(seen) == 12
        assert [m.changelog_offset for m in world.open().find(OF).manifests] == list(range(12, 0, -1))

    @pytest.mark.parametrize(
        "change",
        [lambda d: d[:-1], lambda d: d + b"x", lambda d: bytes([d[0] ^ 1]) + d[1:]],
        ids=["short", "long", "flip"],
    )
    def test_a_damaged_file_is_never_handed_over(
        self, world: RepositoryWorld, tmp_path: Path, change: Callable[[bytes], bytes]
    ) -> None:
        repository = world.open()
        manifest = published(repository, tmp_path / "made", 5)
        world.change(OF, manifest.files[1].name, change)
        with pytest.raises(StateCorruptedError, match="is damaged"):
            repository.fetch(manifest, tmp_path / "fetched")
        assert list((tmp_path / "fetched").iterdir()) == []

    def test_a_missing_file_is_damage_and_a_pruned_snapshot_is_not(
        self, world: RepositoryWorld, tmp_path: Path
    ) -> None:
        repository = world.open()
        manifest = published(repository, tmp_path / "made", 5)
        world.change(OF, manifest.files[1].name, lambda _: None)
        with pytest.raises(StateCorruptedError, match="is missing"):
            repository.fetch(manifest, tmp_path / "fetched")
        published(repository, tmp_path / "made", 6)
        repository.prune(OF, keep=1, now_ms=NOW_MS)
        with pytest.raises(RetriableError, match="was pruned"):
            repository.fetch(manifest, tmp_path / "fetched")
        assert list((tmp_path / "fetched").iterdir()) == []

    def test_prune_spares_the_newest_and_whatever_is_under_way(self, world: RepositoryWorld, tmp_path: Path) -> None:
        repository = world.open()
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

    def test_prune_spares_what_is_said_to_live(self, world: RepositoryWorld, tmp_path: Path) -> None:
        repository = world.open()
        made_at = {offset: published(repository, tmp_path / "made", offset) for offset in (1, 2, 3)}
        repository.prune(OF, keep=1, now_ms=NOW_MS, live=[made_at[1].name])
        assert [m.changelog_offset for m in repository.find(OF).manifests] == [3, 1]
        assert len(repository.fetch(made_at[1], tmp_path / "fetched")) == 2

    def test_an_old_snapshot_that_is_still_the_newest_is_not_abandoned(
        self, world: RepositoryWorld, tmp_path: Path
    ) -> None:
        repository = world.open()
        manifest = published(repository, tmp_path / "made", 5, now_ms=NOW_MS)
        assert repository.prune(OF, keep=1, now_ms=NOW_MS + 100 * ABANDONED_MS) == []
        assert len(repository.fetch(manifest, tmp_path / "fetched")) == 2

    def test_a_store_goes_through_the_repository_into_a_database(self, world: RepositoryWorld, tmp_path: Path) -> None:
        (tmp_path / "made").mkdir()
        attempt = new_attempt(NOW_MS)
        files = write_ssts(tmp_path / "made", attempt, ENTRIES, position=b"stands at 200", file_bytes=400)
        manifest = msgspec.structs.replace(made(tmp_path / "made", 200), attempt=attempt, files=tuple(files))
        repository = world.open()
        repository.upload(OF, tmp_path / "made", files)
        repository.publish(manifest)
        shutil.rmtree(tmp_path / "made")
        with read_tables(repository.fetch(manifest, tmp_path / "fetched")) as (position, entries):
            assert (position, list(entries)) == (b"stands at 200", ENTRIES)
