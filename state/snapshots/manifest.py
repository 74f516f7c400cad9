"""The manifest of a snapshot: which files hold one store partition at one exact changelog offset.

A checksummed document (``checksummed.py``). A manifest that is damaged, incomplete or of an unknown version is never
used.
"""

from __future__ import annotations

import re
from typing import Annotated, NamedTuple

import msgspec

from penstock.state.errors import StateCorruptedError
from penstock.state.log import TopicPartition
from penstock.state.snapshots.checksummed import ChecksummedFormat
from penstock.state.stores.store import SEGMENTED, StoreKind

VERSION = 2
FILE_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")
"""Names that cannot lead out of their folder."""

NonNegativeInt = Annotated[int, msgspec.Meta(ge=0)]


class StorePartition(NamedTuple):
    """One partition of one store of one application: the subject of a snapshot."""

    application_id: str
    store: str
    partition: int

    def __str__(self) -> str:
        return f"{self.application_id}/{self.store}/{self.partition}"


class SnapshotFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One table file. ``entries`` counts the store's entries without the position; ``first_key`` and
    ``last_key`` are store keys, ``None`` when the file holds the position only."""

    name: str
    size_bytes: NonNegativeInt
    sha256: str
    entries: NonNegativeInt
    first_key: bytes | None
    last_key: bytes | None


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A snapshot of one store partition.

    ``changelog_offset`` is the next changelog offset to read after ingesting the snapshot. ``attempt`` begins the names
    of its files and distinguishes the runs that made snapshots of one offset. ``created_ms`` is the wall time at which
    reading the changelog began: a deletion that the changelog dropped later than that is in the snapshot.
    ``delete_retention_ms`` is the changelog's ``delete.retention.ms`` at that time. ``segment_ms`` is that of the
    store's keys, 0 for kinds without segments. ``input_offsets`` (topic, partition, next offset) are known when a task
    made the snapshot, or a job that consumed the inputs itself. ``files`` ascend and are disjoint, and the first one
    begins with the position. ``oldest_ms`` and ``newest_ms``: the entries' timestamps, ``None`` where there are none.
    ``dropped``: the deletions that were applied while it was made.
    """

    application_id: str
    store: str
    kind: StoreKind
    partition: NonNegativeInt
    cluster_id: str
    topic: str
    topic_id: str
    changelog_offset: NonNegativeInt
    attempt: str
    created_ms: int
    delete_retention_ms: int
    segment_ms: NonNegativeInt
    files: tuple[SnapshotFile, ...]
    input_offsets: tuple[tuple[str, int, int], ...] | None = None
    oldest_ms: int | None = None
    newest_ms: int | None = None
    dropped: NonNegativeInt = 0

    @property
    def of(self) -> StorePartition:
        """The store partition of the snapshot."""
        return StorePartition(self.application_id, self.store, self.partition)

    @property
    def name(self) -> str:
        """The manifest's file name. Names sort by offset: the newest snapshot has the greatest name."""
        return f"manifest-{self.changelog_offset:020d}-{self.attempt}.json"

    @property
    def entries(self) -> int:
        return sum(file.entries for file in self.files)

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    def offsets(self) -> dict[TopicPartition, int] | None:
        """The inputs' next offsets, ``None`` when they are not known."""
        if self.input_offsets is None:
            return None
        return {TopicPartition(topic, partition): offset for topic, partition, offset in self.input_offsets}


_FORMAT = ChecksummedFormat("snapshot", VERSION, Manifest)


def encode_manifest(manifest: Manifest) -> bytes:
    """Encode the document. Raises ``ValueError`` for a manifest that ``decode_manifest`` would refuse."""
    if wrong := _wrong(manifest):
        raise ValueError(f"the manifest of {manifest.of} at offset {manifest.changelog_offset} is not valid: {wrong}")
    return _FORMAT.encode(manifest)


def decode_manifest(data: bytes, source: str) -> Manifest:
    """Decode a manifest from a document read from ``source``. Raises ``StateCorruptedError`` for any other bytes."""
    try:
        manifest = _FORMAT.decode(data)
    except ValueError as exc:
        raise _damaged(source, str(exc)) from exc
    if wrong := _wrong(manifest):
        raise _damaged(source, wrong)
    return manifest


def _wrong(manifest: Manifest) -> str | None:
    """The reason why the manifest is not valid; ``None`` if it is."""
    if not manifest.files:
        return "it names no file, but the first file holds the position"
    if not FILE_NAME.fullmatch(manifest.attempt):
        return f"the attempt {manifest.attempt!r} cannot be part of a file's name"
    if (manifest.kind in SEGMENTED) != (manifest.segment_ms > 0):
        return f"a store of kind {manifest.kind} has no segments of {manifest.segment_ms} ms"
    last: bytes | None = None
    for file in manifest.files:
        if not FILE_NAME.fullmatch(file.name):
            return f"{file.name!r} cannot be a file's name"
        if not file.name.startswith(f"{manifest.attempt}-"):
            return f"file {file.name} is not of the attempt {manifest.attempt}"
        if file.first_key is None or file.last_key is None:
            if file.entries:
                return f"file {file.name} has {file.entries} entries and no keys"
            continue
        if file.first_key > file.last_key or (last is not None and file.first_key <= last):
            return f"the keys of file {file.name} do not follow those of the file before"
        last = file.last_key
    return None


def _damaged(source: str, seen: str) -> StateCorruptedError:
    return StateCorruptedError(
        f"the snapshot manifest {source} cannot be trusted: {seen}; an older snapshot or the changelog is used "
        "instead, and the next compaction writes a new one"
    )
