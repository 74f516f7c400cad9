"""The result that a replay publishes: Parquet files of outputs and stores, named by one manifest.

::

    <output>/current.json                                       the newest replay, a checksummed document
    <output>/runs/<run>/replay.json                             the same of each replay that is kept
    <output>/runs/<run>/pinned                                  it stays until it is unpinned
    <output>/runs/<run>/outputs/<topic>/<task>-<attempt>.parquet
    <output>/runs/<run>/stores/<store>/<task>-<attempt>.parquet
    <output>/runs/<run>/journal/<task>-<attempt>.parquet
    <output>/snapshots/…                                        a snapshot repository

A replay is visible when ``current.json`` names it, which is one atomic step after all of its files are there. Files that
no manifest names belong to attempts that failed or were repeated; ``prune_replays`` removes them with old replays.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import msgspec

from penstock.state.errors import EnvironmentFault, SettingsError, StateCorruptedError
from penstock.state.snapshots.checksummed import ChecksummedFormat
from penstock.state.snapshots.manifest import Manifest, StorePartition
from penstock.state.snapshots.repository import ABANDONED_MS, begun_ms, open_repository
from penstock.state.snapshots.storage import open_storage

VERSION = 1
CURRENT = "current.json"
SNAPSHOTS = "snapshots"
NO_FLOOR_MS = -(1 << 62)
"""Below every timestamp."""
_RUNS = "runs"
_MANIFEST = "replay.json"
_PIN = "pinned"


class OutputFile(msgspec.Struct, frozen=True, kw_only=True):
    """Outputs of one task to one topic, in order: columns ``seq`` (from 0), ``partition`` (-1:
    any), ``running_max_ms``, ``key``, ``value``, ``timestamp_ms``, ``headers``. ``partitions``: which ones occur.

    A task that was processed in pieces has a file of each: ``first_seq`` is the number of rows, and ``floor_ms`` the
    highest timestamp, in the files before this one, which its columns do not count. ``highest_ms``: that of its rows."""

    topic: str
    subtopology: int
    task: int
    path: str
    rows: int
    partitions: tuple[int, ...]
    first_seq: int = 0
    floor_ms: int = NO_FLOOR_MS
    highest_ms: int = NO_FLOOR_MS


class StoreFile(msgspec.Struct, frozen=True, kw_only=True):
    """One store partition, sorted by ``store_key``: columns ``store_key``, ``key``, ``window_start_ms`` (window stores),
    ``value``, ``timestamp_ms``. ``floor``: keys below it were dropped as expired. ``floor_ms``, of a list store: entries
    with a lower time have expired too, and are there or not. ``snapshot``: the same as table files, where the changelog
    offset that belongs to it is known."""

    store: str
    partition: int
    path: str
    rows: int
    floor: bytes | None
    snapshot: Manifest | None
    floor_ms: int = 0


class TaskReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one task. ``dropped`` and ``failures``: counts by reason."""

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


_FORMAT = ChecksummedFormat("replay", VERSION, Replay)


def publish_replay(output: str, replay: Replay) -> None:
    """Make the replay the one that ``output`` shows. Raises ``EnvironmentFault``, publishing nothing, where one of its files
    cannot be seen from here."""
    check_files(output, replay)
    document = _FORMAT.encode(replay)
    storage = open_storage(output)
    storage.write(_manifest(replay.run), document)
    storage.write(CURRENT, document)


def check_files(output: str, replay: Replay) -> None:
    """Raises ``EnvironmentFault`` where a file of the replay is not below ``output``: executors on other machines wrote to
    folders of their own."""
    storage = open_storage(output)
    paths = [f.path for task in replay.tasks for f in task.outputs] + [f.path for t in replay.tasks for f in t.stores]
    for path in paths:
        if storage.size_bytes(path) is None:
            raise EnvironmentFault(
                f"the replay published nothing: an executor wrote {path}, and it is not in {output} as the driver sees "
                "it. Driver and executors must share that folder; give one that is mounted on all machines, or a URL"
            )


def load_replay(output: str, run: str | None = None) -> Replay:
    """The replay that ``output`` shows; ``run``: another one that is kept. Raises ``SettingsError`` when there is none,
    ``StateCorruptedError`` when it is damaged."""
    name = CURRENT if run is None else _manifest(run)
    data = open_storage(output).read(name)
    if data is None:
        kept = ", ".join(k.run for k in kept_replays(output)[-5:]) or "none"
        raise SettingsError(
            f"{output} holds no finished replay{'' if run is None else f' {run}'} (there are: {kept}); penstock replay "
            f"--output {output} makes one"
        )
    try:
        return _FORMAT.decode(data)
    except ValueError as exc:
        raise StateCorruptedError(f"{output}/{name} cannot be trusted ({exc}); replay again") from exc


# -- keeping -----------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class KeptReplay:
    """One replay below an output folder."""

    run: str
    pinned: bool


def kept_replays(output: str) -> list[KeptReplay]:
    """The finished replays, oldest first."""
    storage = open_storage(output)
    found = ((run, storage.names(f"{_RUNS}/{run}")) for run in storage.names(_RUNS))
    return [KeptReplay(run, _PIN in names) for run, names in found if _MANIFEST in names]


def pin_replay(output: str, run: str, pinned: bool = True) -> None:
    """Keep a replay until it is unpinned. Raises ``SettingsError`` where there is none of this name."""
    load_replay(output, run)
    storage = open_storage(output)
    if pinned:
        storage.write(f"{_RUNS}/{run}/{_PIN}", b"")
    else:
        storage.delete(f"{_RUNS}/{run}/{_PIN}")


def prune_replays(output: str, *, keep: int, now_ms: int) -> list[str]:
    """Remove all but the ``keep`` newest finished replays, the pinned ones and the one that is shown, and what attempts have
    left that are older than ``ABANDONED_MS``; returns their names. Snapshots of the stores are pruned likewise, except for
    those that a remaining replay names."""
    if keep < 1:
        raise ValueError(f"prune_replays would keep {keep} replays; keep at least 1")
    storage = open_storage(output)
    finished = kept_replays(output)
    shown = load_replay(output).run
    stay = {k.run for k in finished[-keep:]} | {k.run for k in finished if k.pinned} | {shown}
    known = {k.run for k in finished}
    removed = [
        run
        for run in storage.names(_RUNS)
        if run not in stay and (run in known or now_ms - (begun_ms(run) or now_ms) > ABANDONED_MS)
    ]
    for run in removed:
        # Its manifest first: what can be found has its files.
        storage.delete(_manifest(run))
        storage.delete_folder(f"{_RUNS}/{run}")
    _prune_snapshots(output, sorted(stay & known), keep, now_ms)
    return removed


def _prune_snapshots(output: str, runs: Sequence[str], keep: int, now_ms: int) -> None:
    named: dict[StorePartition, list[str]] = {}
    for run in runs:
        for task in load_replay(output, run).tasks:
            for manifest in (s.snapshot for s in task.stores if s.snapshot is not None):
                named.setdefault(manifest.of, []).append(manifest.name)
    snapshots = open_repository(f"{output}/{SNAPSHOTS}")
    for of, names in named.items():
        snapshots.prune(of, keep=keep, now_ms=now_ms, live=names)


def _manifest(run: str) -> str:
    return f"{_RUNS}/{run}/{_MANIFEST}"
