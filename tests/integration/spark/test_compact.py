"""Compaction against real Kafka: what a worker ingests is what the changelog says."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from penstock.state.manifest import StorePartition
from penstock.state.position import decode_position
from penstock.state.rocksdb import RocksDBBackend
from penstock.state.snapshot import SnapshotRepository
from penstock.streams.spark.cluster import Connection
from penstock.streams.spark.compaction import compact
from penstock.topologies.builder import StreamsBuilder
from penstock.topologies.graph import Topology
from tests.integration.spark.live import App, Live


def counts(live: Live) -> Topology:
    """Counts per key, in memory of the last record's value; a value of ``x`` deletes."""
    b = StreamsBuilder(key=bytes, value=bytes)
    b.stream(live.topic("in")).group_by_key().reduce(lambda old, new: None if new == b"x" else old + new, name="last")
    return b.build()


def test_a_store_from_snapshot_equals_the_live_one(
    spark: SparkSession, connection: Connection, live: Live, tmp_path: Path
) -> None:
    live.create(2, live.topic("in"))
    live.produce(live.topic("in"), [(bytes([i % 250]), b"%d," % i, i) for i in range(3000)])
    topology = counts(live)
    with App(live, topology) as app:
        app.run()
        result = compact(
            topology, application_id=live.application_id, connection=connection, repository=str(tmp_path / "r")
        )
        print(result)
        assert load(tmp_path, live, 2) == app.store("last")


def load(tmp_path: Path, live: Live, partitions: int) -> dict[tuple[int, bytes], bytes]:
    repo = SnapshotRepository(str(tmp_path / "r"))
    out = {}
    for p in range(partitions):
        m = repo.newest(StorePartition(live.application_id, "last", p))
        assert m is not None
        files = repo.fetch(m, tmp_path / f"f{p}")
        b = RocksDBBackend(tmp_path / f"db{p}", ["last"])
        b.ingest("last", files)
        assert decode_position(b.position("last") or b"").changelog_offset == m.changelog_offset
        out |= {(p, k): v for k, v in b.range("last", None, None)}
        b.close()
    return out
