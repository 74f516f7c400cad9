"""Savepoints: the committed input positions of an application, with the snapshots of every store at exactly them.

A checksummed document in the snapshot repository, ``<application.id>/savepoints/<created>-<id>.json``. It appears after all
the snapshots that it names.
"""

from __future__ import annotations

import re
from contextlib import suppress

import msgspec

from penstock.state.errors import SettingsError, StateCorruptedError
from penstock.state.log import TopicPartition
from penstock.state.machine.state_directory import safe_name
from penstock.state.snapshots.checksummed import ChecksummedFormat
from penstock.state.snapshots.manifest import Manifest, StorePartition
from penstock.state.snapshots.repository import open_repository
from penstock.state.snapshots.storage import Storage, open_storage
from penstock.streams.batch.cluster import CommittedInput
from penstock.streams.task import commit_metadata

VERSION = 1
LATEST = "latest"
_FOLDER = "savepoints"
_PIN = ".pin"
_NAME = re.compile(r"\d{13}-[0-9a-f]{8,32}")


class SavedInput(msgspec.Struct, frozen=True):
    """One committed position: the next offset, and the metadata committed with it."""

    topic: str
    partition: int
    offset: int
    metadata: str


class SavedStore(msgspec.Struct, frozen=True):
    """One snapshot, by the file name of its manifest."""

    store: str
    partition: int
    manifest: str


class SavedOutput(msgspec.Struct, frozen=True):
    """How far one partition of a written topic went: the next offset."""

    topic: str
    partition: int
    offset: int


class Savepoint(msgspec.Struct, frozen=True, kw_only=True):
    """``inputs`` lists the partitions that have a committed position; the others had none and their tasks no state.
    ``cluster_id`` is that of the inputs. ``outputs``: the written topics that existed; none in savepoints of before
    they were noted. ``outputs_exact``: what was committed by then stands before these offsets, and nothing else. Else
    the application was writing, and some of it may stand behind them."""

    application_id: str
    cluster_id: str
    name: str
    inputs: tuple[SavedInput, ...]
    stores: tuple[SavedStore, ...]
    outputs: tuple[SavedOutput, ...] = ()
    outputs_exact: bool = False

    def committed(self) -> dict[TopicPartition, CommittedInput]:
        """The positions, decoded."""
        return {
            TopicPartition(i.topic, i.partition): CommittedInput(i.offset, commit_metadata.decode(i.metadata))
            for i in self.inputs
        }

    def output_offsets(self) -> dict[TopicPartition, int]:
        """Where what was written later begins."""
        return {TopicPartition(o.topic, o.partition): o.offset for o in self.outputs}


_FORMAT = ChecksummedFormat("savepoint", VERSION, Savepoint)


class SavepointRepository:
    """The savepoints next to the snapshots at a path or URL."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._storage: Storage = open_storage(url)
        self._snapshots = open_repository(url)

    def publish(self, savepoint: Savepoint) -> None:
        """Make it visible, in one atomic step."""
        self._storage.write(_path(savepoint.application_id, savepoint.name), _FORMAT.encode(savepoint))

    def names(self, application_id: str) -> list[str]:
        """The names of an application's savepoints, oldest first."""
        found = self._storage.names(f"{safe_name(application_id)}/{_FOLDER}")
        return sorted(n.removesuffix(".json") for n in found if _NAME.fullmatch(n.removesuffix(".json")))

    def pinned(self, application_id: str) -> set[str]:
        """The savepoints that stay until they are unpinned."""
        found = self._storage.names(f"{safe_name(application_id)}/{_FOLDER}")
        return {n.removesuffix(_PIN) for n in found if n.endswith(_PIN)} & set(self.names(application_id))

    def pin(self, application_id: str, name: str, pinned: bool = True) -> None:
        """Keep a savepoint, and with it its snapshots, until it is unpinned. Raises as ``load``."""
        place = _path(application_id, self.load(application_id, name).name).removesuffix(".json") + _PIN
        if pinned:
            self._storage.write(place, b"")
        else:
            self._storage.delete(place)

    def prune(self, application_id: str, *, keep: int) -> list[str]:
        """Remove all but the ``keep`` newest savepoints and the pinned ones; returns their names. The snapshots that
        only they name are then for ``SnapshotRepository.prune``."""
        if keep < 1:
            raise ValueError(f"prune would keep {keep} savepoints; keep at least 1")
        pinned = self.pinned(application_id)
        removed = [n for n in self.names(application_id)[:-keep] if n not in pinned]
        for name in removed:
            self._storage.delete(_path(application_id, name))
        return removed

    def manifests(self, application_id: str) -> set[str]:
        """The names of the manifests that the savepoints here need. Of a damaged one nothing is known, or needed."""
        needed: set[str] = set()
        for name in self.names(application_id):
            with suppress(StateCorruptedError, SettingsError):
                needed.update(s.manifest for s in self.load(application_id, name).stores)
        return needed

    def load(self, application_id: str, name: str = LATEST) -> Savepoint:
        """A savepoint by name. Raises ``SettingsError`` when there is none of it, ``StateCorruptedError`` when it is
        damaged."""
        names = self.names(application_id)
        chosen = (names[-1] if names else None) if name == LATEST else name
        if chosen not in names:
            raise SettingsError(
                f"{self.url} holds no savepoint {name!r} of {application_id}; it holds: {', '.join(names[-5:]) or 'none'}. "
                "penstock compact makes one"
            )
        data = self._storage.read(_path(application_id, chosen)) or b""
        try:
            return _FORMAT.decode(data)
        except ValueError as exc:
            raise StateCorruptedError(
                f"savepoint {chosen} of {application_id} cannot be trusted ({exc}); use another one, or start from the "
                "application's first offset"
            ) from exc

    def manifest(self, savepoint: Savepoint, of: StorePartition) -> Manifest:
        """The snapshot of a store that belongs to the savepoint. Raises ``SettingsError`` when it was pruned."""
        wanted = {s.manifest for s in savepoint.stores if (s.store, s.partition) == (of.store, of.partition)}
        for manifest in self._snapshots.find(of).manifests:
            if manifest.name in wanted:
                return manifest
        raise SettingsError(
            f"savepoint {savepoint.name} names a snapshot of {of} that the repository no longer holds; use a newer savepoint"
        )


def _path(application_id: str, name: str) -> str:
    return f"{safe_name(application_id)}/{_FOLDER}/{name}.json"
