"""The entries of snapshots, read by an executor as rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa

from penstock.state.rocksdb.scratch import open_scratch
from penstock.state.snapshots.manifest import Manifest, StorePartition
from penstock.state.snapshots.repository import open_repository
from penstock.streams.batch.savepoint import Savepoint, SavepointRepository

SCHEMA = pa.schema(
    [("name", pa.string()), ("partition", pa.int32()), ("store_key", pa.binary()), ("value", pa.binary())]
)
_GROUP_ROWS = 10_000


def manifests_of(repository: str, savepoint: Savepoint, stores: Sequence[str]) -> list[Manifest]:
    """The snapshots of these stores that the savepoint names. Raises ``SettingsError`` where one was pruned."""
    kept = SavepointRepository(repository)
    return [
        kept.manifest(savepoint, StorePartition(savepoint.application_id, s.store, s.partition))
        for s in savepoint.stores
        if s.store in stores
    ]


def read_entries(
    repository: str, manifests: Sequence[Manifest], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Rows of ``SCHEMA``: the entries of the snapshots whose places in ``manifests`` are the batches' first column."""
    for batch in batches:
        for place in batch.column(0).to_pylist():
            yield from _entries(repository, manifests[place])


def _entries(repository: str, manifest: Manifest) -> Iterator[pa.RecordBatch]:
    with TemporaryDirectory(prefix="penstock-entries-") as folder:
        files = open_repository(repository).fetch(manifest, Path(folder) / "files")
        backend = open_scratch(Path(folder) / "db", [manifest.store])
        try:
            backend.ingest(manifest.store, files, move=True)
            group: list[tuple[bytes, bytes]] = []
            for entry in backend.range(manifest.store, None, None):
                group.append(entry)
                if len(group) == _GROUP_ROWS:
                    yield _batch(manifest, group)
                    group = []
            if group:
                yield _batch(manifest, group)
        finally:
            backend.close()


def _batch(manifest: Manifest, group: Sequence[tuple[bytes, bytes]]) -> pa.RecordBatch:
    count = len(group)
    columns = [[manifest.store] * count, [manifest.partition] * count, [k for k, _ in group], [v for _, v in group]]
    return pa.RecordBatch.from_arrays(
        [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )
