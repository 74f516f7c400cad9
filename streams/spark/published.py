"""What a replay publishes: Parquet files of outputs and stores, named by one manifest.

::

    <output>/current.json                                       the newest replay: {"version", "sha256", "replay"}
    <output>/runs/<run>/outputs/<topic>/<task>-<attempt>.parquet
    <output>/runs/<run>/stores/<store>/<task>-<attempt>.parquet
    <output>/snapshots/…                                        a snapshot repository

A replay is visible when ``current.json`` names it, which is one atomic step after all of its files are there. Files that
no manifest names belong to attempts that failed or were repeated.
"""

from __future__ import annotations

import hashlib

import msgspec

from penstock.state.errors import SettingsError, StateCorruptedError
from penstock.state.snapshots.manifest import Manifest
from penstock.state.snapshots.storage import open_storage

VERSION = 1
CURRENT = "current.json"


class OutputFile(msgspec.Struct, frozen=True, kw_only=True):
    """Outputs of one task to one topic, in order: columns ``seq`` (from 0), ``partition`` (-1:
    any), ``running_max_ms``, ``key``, ``value``, ``timestamp_ms``, ``headers``. ``partitions``: which ones occur."""

    topic: str
    subtopology: int
    task: int
    path: str
    rows: int
    partitions: tuple[int, ...]


class StoreFile(msgspec.Struct, frozen=True, kw_only=True):
    """One store partition, sorted by ``store_key``: columns ``store_key``, ``key``, ``window_start_ms`` (window stores),
    ``value``, ``timestamp_ms``. ``floor``: keys below it were dropped as expired. ``snapshot``: the same as table files,
    where the changelog offset that belongs to it is known."""

    store: str
    partition: int
    path: str
    rows: int
    floor: bytes | None
    snapshot: Manifest | None


class TaskReport(msgspec.Struct, frozen=True, kw_only=True):
    """What one task did. ``dropped`` and ``failures``: counts by reason."""

    subtopology: int
    task: int
    records: int
    outputs: tuple[OutputFile, ...]
    stores: tuple[StoreFile, ...]
    dropped: dict[str, int]
    failures: dict[str, int]


class InputRange(msgspec.Struct, frozen=True, order=True):
    """The records of one input partition that were replayed."""

    topic: str
    partition: int
    start: int
    stop: int


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """One finished replay. ``started_from``: ``start`` or a savepoint's name. ``recomputed``: repartition topics were
    computed and not read. ``cautions``: what limits the exactness of this replay."""

    run: str
    application_id: str
    topology: str
    started_from: str
    recomputed: bool
    inputs: tuple[InputRange, ...]
    tasks: tuple[TaskReport, ...]
    cautions: tuple[str, ...] = ()

    @property
    def records(self) -> int:
        """Input records of all tasks."""
        return sum(t.records for t in self.tasks)

    def output_files(self, topic: str) -> list[OutputFile]:
        """The files that hold a topic's outputs."""
        return [f for t in self.tasks for f in t.outputs if f.topic == topic]

    @property
    def output_topics(self) -> list[str]:
        """The topics that were written to, sorted."""
        return sorted({f.topic for t in self.tasks for f in t.outputs})

    def store_files(self, store: str) -> list[StoreFile]:
        """The files that hold a store."""
        return [f for t in self.tasks for f in t.stores if f.store == store]


class _Document(msgspec.Struct):
    version: int
    sha256: str
    replay: msgspec.Raw


def publish_replay(output: str, replay: Replay) -> None:
    """Make the replay the one that ``output`` shows."""
    body = msgspec.json.encode(replay)
    document = _Document(VERSION, hashlib.sha256(body).hexdigest(), msgspec.Raw(body))
    open_storage(output).write(CURRENT, msgspec.json.encode(document))


def load_replay(output: str) -> Replay:
    """The replay that ``output`` shows. Raises ``SettingsError`` when there is none, ``StateCorruptedError`` when it is
    damaged."""
    data = open_storage(output).read(CURRENT)
    if data is None:
        raise SettingsError(f"{output} holds no finished replay; penstock replay --output {output} makes one")
    try:
        document = msgspec.json.decode(data, type=_Document)
        body = bytes(document.replay)
        if document.version != VERSION or hashlib.sha256(body).hexdigest() != document.sha256:
            raise ValueError(f"version {document.version}, or a checksum that does not fit")
        return msgspec.json.decode(body, type=Replay)
    except (msgspec.MsgspecError, ValueError) as exc:
        raise StateCorruptedError(f"{output}/{CURRENT} cannot be trusted ({exc}); replay again") from exc
