"""The snapshot repository: table files and manifests of store partitions.

::

    <url>/<application.id>/<store>/<partition>/<attempt>-00000.sst            table files; names are never reused
    <url>/<application.id>/<store>/<partition>/manifest-<offset>-<attempt>.json

Writing the manifest publishes a snapshot: one atomic step, after all of its files are uploaded. The name holds the
changelog offset, and the snapshot with the highest offset is the newest. So the newest can only move forward,
concurrent publishers need no lock, and publishing a snapshot again changes nothing.
"""

from __future__ import annotations

import dataclasses
import re
import uuid
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote

from penstock.state.errors import PenstockError, RetriableError, StateCorruptedError
from penstock.state.failpoints import failpoint
from penstock.state.machine.atomic_files import environment_fault, sha256_of
from penstock.state.machine.state_directory import safe_name
from penstock.state.snapshots.manifest import (
    FILE_NAME,
    Manifest,
    SnapshotFile,
    StorePartition,
    decode_manifest,
    encode_manifest,
)
from penstock.state.snapshots.storage import open_storage

ABANDONED_MS = 24 * 3600 * 1000
"""The age after which the unpublished files of an attempt may be removed: no writer takes that long."""

_MANIFEST = re.compile(r"manifest-\d{20}-[A-Za-z0-9._-]+\.json")
_ATTEMPT = re.compile(r"\.?(?:manifest-\d{20}-)?(\d{13})-")
"""Also of what a dead process has written and not renamed yet: those names begin with a dot."""


def new_attempt(now_ms: int) -> str:
    """A name for one run that makes snapshots; ``prune`` reads its age from it."""
    return f"{now_ms:013d}-{uuid.uuid4().hex[:12]}"


def begun_ms(attempt: str) -> int | None:
    """When the run of this name began; ``None`` for any other name."""
    found = _ATTEMPT.match(attempt)
    return None if found is None else int(found[1])


@dataclasses.dataclass(frozen=True, slots=True)
class SnapshotListing:
    """The published snapshots of a store partition, newest first, and what is wrong with those that are damaged."""

    manifests: tuple[Manifest, ...]
    damaged: tuple[str, ...]


class SnapshotRepository(Protocol):
    """Snapshots of store partitions. Many processes use one at once, without locks.

    Every method may raise ``EnvironmentFault`` (the disk refuses) and ``RetriableError`` (the service does not answer).
    ``penstock.testing.SnapshotRepositoryContract`` tests what is promised here.
    """

    def upload(self, of: StorePartition, folder: Path, files: Sequence[SnapshotFile]) -> None:
        """Copy finished table files from a local folder. They are invisible before ``publish``."""

    def publish(self, manifest: Manifest) -> bool:
        """Make an uploaded snapshot visible in one step; returns whether it is the newest. Idempotent.

        Raises ``StateCorruptedError``, publishing nothing, when a file is not there or has another size.
        """

    def find(self, of: StorePartition) -> SnapshotListing:
        """Everything published for a store partition. Reports damaged manifests and never uses them."""

    def newest(self, of: StorePartition) -> Manifest | None:
        """The published snapshot with the highest changelog offset whose manifest is valid; ``None`` without one."""

    def contents(self, application_id: str) -> list[StorePartition]:
        """The store partitions of an application that have a published snapshot, sorted."""

    def fetch(self, manifest: Manifest, folder: Path) -> list[Path]:
        """Copy a snapshot's files into a local folder and verify each, in the order to ingest them.

        Raises ``StateCorruptedError`` if a file is missing or differs from what was written; no file is left in the folder
        then. Raises ``RetriableError`` if the snapshot was pruned meanwhile: call ``newest`` again.
        """

    def prune(self, of: StorePartition, *, keep: int, now_ms: int, live: Collection[str] = ()) -> list[str]:
        """Remove all snapshots except the ``keep`` newest valid ones and those whose manifests ``live`` names. Also
        remove the files of attempts that were never published and are older than ``ABANDONED_MS``. Returns the removed
        names."""


class StoredSnapshots:
    """A ``SnapshotRepository`` at a local path or an fsspec URL."""

    def __init__(self, url: str | Path) -> None:
        self._storage = open_storage(url)

    def upload(self, of: StorePartition, folder: Path, files: Sequence[SnapshotFile]) -> None:
        """See the port."""
        for file in files:
            self._storage.put(folder / file.name, _path(of, file.name))
        failpoint("publish.uploaded")

    def publish(self, manifest: Manifest) -> bool:
        """See the port."""
        of = manifest.of
        data = encode_manifest(manifest)
        for file in manifest.files:
            size = self._storage.size_bytes(_path(of, file.name))
            if size != file.size_bytes:
                raise StateCorruptedError(
                    f"the snapshot of {of} at offset {manifest.changelog_offset} is not published: file {file.name} has "
                    f"{'no' if size is None else size} bytes in the repository where {file.size_bytes} were written; "
                    "upload it again"
                )
        failpoint("publish.checked")
        self._storage.write(_path(of, manifest.name), data)
        failpoint("publish.done")
        return self._manifest_names(of)[-1] == manifest.name

    def find(self, of: StorePartition) -> SnapshotListing:
        """See the port."""
        manifests: list[Manifest] = []
        damaged: list[str] = []
        for name in reversed(self._manifest_names(of)):
            data = self._storage.read(_path(of, name))
            if data is None:
                continue  # pruned since it was listed
            try:
                manifest = decode_manifest(data, _path(of, name))
            except StateCorruptedError as exc:
                damaged.append(str(exc))
                continue
            if manifest.of == of and manifest.name == name:
                manifests.append(manifest)
            else:
                damaged.append(
                    f"the manifest {_path(of, name)} is that of {manifest.of} at offset {manifest.changelog_offset}, "
                    "copied to a wrong place; remove it"
                )
        return SnapshotListing(tuple(manifests), tuple(damaged))

    def newest(self, of: StorePartition) -> Manifest | None:
        """See the port."""
        manifests = self.find(of).manifests
        return manifests[0] if manifests else None

    def contents(self, application_id: str) -> list[StorePartition]:
        """See the port."""
        root = safe_name(application_id)
        found = [
            StorePartition(application_id, unquote(store), int(partition))
            for store in self._storage.names(root)
            for partition in self._storage.names(f"{root}/{store}")
            if partition.isdecimal()
        ]
        return sorted(of for of in found if self._manifest_names(of))

    def fetch(self, manifest: Manifest, folder: Path) -> list[Path]:
        """See the port."""
        paths: list[Path] = []
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for file in manifest.files:
                paths.append(folder / file.name)
                self._fetch_file(manifest, file, paths[-1])
        except OSError as exc:
            _remove(paths)
            raise environment_fault(exc, f"fetch a snapshot into {folder}") from exc
        except PenstockError:
            _remove(paths)
            raise
        return paths

    def _fetch_file(self, manifest: Manifest, file: SnapshotFile, target: Path) -> None:
        if not FILE_NAME.fullmatch(file.name):
            raise StateCorruptedError(
                f"{file.name!r} is not a valid name of a snapshot file; the manifest is not valid"
            )
        of, offset = manifest.of, manifest.changelog_offset
        if not self._storage.get(_path(of, file.name), target):
            if manifest.name not in self._manifest_names(of):
                raise RetriableError(f"the snapshot of {of} at offset {offset} was pruned; fetch the newest one")
            raise StateCorruptedError(
                f"file {file.name} of the snapshot of {of} at offset {offset} is missing; "
                "an older snapshot or the changelog is used instead"
            )
        size = target.stat().st_size
        digest = sha256_of(target) if size == file.size_bytes else "not computed"
        if size != file.size_bytes or digest != file.sha256:
            raise StateCorruptedError(
                f"file {file.name} of the snapshot of {of} at offset {offset} is damaged: {size} bytes with SHA-256 "
                f"{digest} where {file.size_bytes} bytes with {file.sha256} were written; "
                "an older snapshot or the changelog is used instead"
            )

    def prune(self, of: StorePartition, *, keep: int, now_ms: int, live: Collection[str] = ()) -> list[str]:
        """See the port."""
        if keep < 1:
            raise ValueError(f"prune would keep {keep} snapshots; keep at least 1")
        found = self.find(of).manifests
        newest = found[:keep]
        if not newest:
            return []
        names = self._storage.names(_path(of, "").rstrip("/"))
        old_manifests = [n for n in names if _MANIFEST.fullmatch(n) and n < newest[-1].name and n not in live]
        kept = {file.name for m in found if m in newest or m.name in live for file in m.files}
        published = {n.removesuffix(".json").split("-", 2)[2] for n in names if _MANIFEST.fullmatch(n)}
        retired = {n.removesuffix(".json").split("-", 2)[2] for n in old_manifests}
        removed = list(old_manifests)
        for name in names:
            if name in kept or _MANIFEST.fullmatch(name):
                continue
            attempt = name.rsplit("-", 1)[0]
            began = begun_ms(name)
            abandoned = began is not None and now_ms - began > ABANDONED_MS
            if attempt in retired or (abandoned and attempt not in published):
                removed.append(name)
        # Manifests first: a manifest that readers can find must have its files.
        for i, name in enumerate(removed):
            if i == len(old_manifests):
                failpoint("prune.manifests_removed")
            self._storage.delete(_path(of, name))
        failpoint("prune.done")
        return removed

    def _manifest_names(self, of: StorePartition) -> list[str]:
        return sorted(n for n in self._storage.names(_path(of, "").rstrip("/")) if _MANIFEST.fullmatch(n))


def open_repository(url: str | Path) -> SnapshotRepository:
    """The repository at a local path or URL. Raises ``SettingsError`` for a URL that no installed package can read."""
    return StoredSnapshots(url)


def _path(of: StorePartition, name: str) -> str:
    return f"{safe_name(of.application_id)}/{safe_name(of.store)}/{of.partition}/{name}"


def _remove(paths: Sequence[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)
