"""The interfaces by which Penstock meets stores, logs and snapshots of others.

``StateBackend`` holds the bytes of a task's stores; ``DurableBackend`` is one in a folder, and a worker takes what opens
it (``Worker(…, open_backend=…)``). ``SnapshotRepository`` holds snapshots (``Worker(…, repository=…)``). ``Log`` opens the
clients of a log, ``LogConsumer``, ``LogProducer`` and ``LogAdmin`` (``Worker(…, open_log=…)``). ``penstock.testing`` has the
suites of tests for each.
"""

from __future__ import annotations

from penstock.state.log import TaskId, TopicPartition
from penstock.state.rocksdb.scratch import read_tables
from penstock.state.snapshots.manifest import Manifest, SnapshotFile, StorePartition
from penstock.state.snapshots.repository import (
    ABANDONED_MS,
    SnapshotListing,
    SnapshotRepository,
    new_attempt,
    open_repository,
)
from penstock.state.stores.durable_backend import DurableBackend, OpenBackend
from penstock.state.stores.memory_backend import MemoryBackend
from penstock.state.stores.store import (
    PackedBytes,
    PackedPuts,
    Puts,
    StampedPuts,
    StateBackend,
    StoreSpec,
    StoreWrites,
    Unbased,
)
from penstock.streams.ports.chunk import Chunk
from penstock.streams.ports.log import (
    AbortableError,
    Deletion,
    Fetched,
    Log,
    LogAdmin,
    LogConsumer,
    LogProducer,
    OffsetAndMetadata,
    ProducerRetiredError,
    StaleEpochError,
    TopicSpec,
    UnknownOutcomeError,
)
from penstock.streams.ports.log_errors import OffsetOutOfRangeError, UnknownTopicError

__all__ = [
    "ABANDONED_MS",
    "AbortableError",
    "Chunk",
    "OffsetAndMetadata",
    "Deletion",
    "DurableBackend",
    "Fetched",
    "Log",
    "LogAdmin",
    "LogConsumer",
    "LogProducer",
    "Manifest",
    "MemoryBackend",
    "OffsetOutOfRangeError",
    "OpenBackend",
    "PackedBytes",
    "PackedPuts",
    "ProducerRetiredError",
    "Puts",
    "StampedPuts",
    "SnapshotFile",
    "SnapshotListing",
    "SnapshotRepository",
    "StaleEpochError",
    "StateBackend",
    "StorePartition",
    "StoreSpec",
    "StoreWrites",
    "TaskId",
    "TopicPartition",
    "TopicSpec",
    "Unbased",
    "UnknownOutcomeError",
    "UnknownTopicError",
    "new_attempt",
    "open_repository",
    "read_tables",
]
