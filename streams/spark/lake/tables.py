"""A topic or a store as an Apache Iceberg table.

A topic is appended: each run reads what follows the last one, and the snapshot that it adds to the table has the next
offsets in its own properties. Table and position change in one step, so a run that died can simply be repeated. A
store replaces the rows of its table in one step, with the changelog offsets at which it was read. A DataFrame, such as a
cohort table, does so too.

New columns of the application's types are added to the table. A concurrent run would append the same records: it is
detected by the parent of its snapshot, rolled back, and reported.
"""

from __future__ import annotations

import dataclasses
import time
import uuid
from collections.abc import Mapping
from typing import Any

import msgspec
from pyspark.sql import DataFrame, DataFrameWriterV2, Row, SparkSession
from pyspark.sql import functions as F

from penstock.state.errors import IncompatibleError, RetriableError
from penstock.state.log import TopicPartition
from penstock.streams.batch.cluster import open_cluster
from penstock.streams.spark.failures import translated
from penstock.streams.spark.frames.application import Application
from penstock.streams.spark.lake.catalog import use_catalog, with_iceberg
from penstock.streams.spark.progress import Say, watched
from penstock.streams.spark.report.record import note_ranges, phase
from penstock.streams.spark.session import SparkSettings, spark_session

_POSITION = "penstock.position"
_RUN = "penstock.run"
_TABLE = {"format-version": "2", "write.spark.accept-any-schema": "true", "write.parquet.compression-codec": "zstd"}
KEEP = 20


class TablePosition(msgspec.Struct, frozen=True):
    """The content of a table: its topic, and up to which offsets, by partition."""

    topic: str
    topic_id: str
    offsets: dict[int, int]


@dataclasses.dataclass(frozen=True)
class LakeResult:
    """The result of a run. ``rows``: how many it wrote; ``offsets``: up to which the table holds the log now."""

    table: str
    rows: int
    offsets: Mapping[int, int]
    seconds: float


def lake_topic(
    app: Application,
    topic: str,
    table: str,
    *,
    warehouse: str | None = None,
    keep: int = KEEP,
    session: SparkSettings | None = None,
    progress: Say | None = None,
    **how: Any,
) -> LakeResult:
    """Append to ``table`` (``catalog.schema.table``) the topic's records that it lacks. The table is created if
    necessary, partitioned by day of the records' timestamps. ``how``: ``key=`` and ``value=`` as for
    ``Application.topic``. ``keep``: how many snapshots of the table to keep.

    Raises ``SettingsError``; ``IncompatibleError`` if the table holds another topic, or the topic has lost records
    that the table lacks; ``EnvironmentFault``.
    """
    began = time.monotonic()
    with open_cluster(app.connection, app.application_id) as cluster:
        count = cluster.require_counts([topic])[topic]
        topic_id = cluster.topic_id(topic)
    with spark_session(with_iceberg(session)) as spark, translated("the lake job"):
        use_catalog(spark, table, warehouse)
        held = held_by(spark, table) if spark.catalog.tableExists(table) else None
        if held is None and spark.catalog.tableExists(table) and not spark.table(table).isEmpty():
            raise IncompatibleError(
                f"table {table} has rows, and none of its snapshots says up to which offsets: it was not made here, or they "
                "were expired by another tool. Begin another table"
            )
        since = _since(held, topic, topic_id, count, table)
        wanted = app.topic_request(topic, since=since, **how)
        ends = {p: stop for p, (_, stop) in wanted.ranges.items()}
        gone = [p for p, (start, _) in wanted.ranges.items() if since is not None and start > since[p]]
        if gone:
            raise IncompatibleError(
                f"{topic} partition {gone[0]} begins at offset {wanted.ranges[gone[0]][0]}, and table {table} holds it up "
                f"to {(since or {})[gone[0]]}: the records between are gone. Keep the topic longer (retention.ms), and "
                "begin another table"
            )
        if before := [p for p, (start, stop) in wanted.ranges.items() if start > stop]:
            raise IncompatibleError(
                f"{topic} partition {before[0]} ends at offset {ends[before[0]]}, and table {table} holds it up to "
                f"{(since or {})[before[0]]}: the topic has lost records. Begin another table"
            )
        total = sum(stop - start for start, stop in wanted.ranges.values())
        with watched(spark, f"{topic} to {table}", progress, total):
            note_ranges({TopicPartition(topic, p): r for p, r in wanted.ranges.items()})
            frame = app.frame(spark, wanted)
            rows = _append(spark, frame, table, TablePosition(topic, topic_id, ends)) if total or held is None else 0
        with phase("removal of old snapshots"):
            _expire(spark, table, keep)
    return LakeResult(table, rows, ends, time.monotonic() - began)


def lake_store(
    app: Application,
    store: str,
    table: str,
    *,
    as_of: str = "committed",
    warehouse: str | None = None,
    keep: int = KEEP,
    session: SparkSettings | None = None,
    progress: Say | None = None,
) -> LakeResult:
    """Make ``table`` hold the store as of a commit; writes nothing if it already does. Otherwise as ``lake_topic``."""
    began = time.monotonic()
    wanted = app.store_request(store, as_of=as_of)
    facts = wanted.targets[0].facts
    now = TablePosition(facts.topic, facts.topic_id, {t.partition: t.end for t in wanted.targets})
    with spark_session(with_iceberg(session)) as spark, translated("the lake job"):
        use_catalog(spark, table, warehouse)
        exists = spark.catalog.tableExists(table)
        rows = 0
        if not exists or held_by(spark, table) != now:
            total = sum(t.end - t.start for t in wanted.targets)
            with watched(spark, f"{store} to {table}", progress, total):
                note_ranges({t.log: (t.start, t.end) for t in wanted.targets})
                rows = _replace(spark, app.frame(spark, wanted), table, now)
        with phase("removal of old snapshots"):
            _expire(spark, table, keep)
    return LakeResult(table, rows, now.offsets, time.monotonic() - began)


def lake_frame(frame: DataFrame, table: str, *, warehouse: str | None = None) -> int:
    """Make ``table`` (``catalog.schema.table``, created if necessary) hold the rows of a DataFrame, in one step; how many
    they are. The frame's session must have Iceberg: ``spark_session(with_iceberg())``. ``warehouse``: as for ``lake_topic``.

    Raises ``SettingsError``; ``IncompatibleError`` for a table that holds a topic or a store; ``EnvironmentFault``.
    """
    spark, run = frame.sparkSession, uuid.uuid4().hex
    with translated("the lake job"):
        use_catalog(spark, table, warehouse)
        if not spark.catalog.tableExists(table):
            _create(spark, frame, table)
        elif (held := held_by(spark, table)) is not None:
            raise IncompatibleError(f"table {table} holds {held.topic}, which penstock lake keeps; choose another name")
        writer = frame.writeTo(table).option("mergeSchema", "true").option(f"snapshot-property.{_RUN}", run)
        writer.overwrite(F.lit(True))
        return _added(_of_run(spark, table, run))


def held_by(spark: SparkSession, table: str) -> TablePosition | None:
    """The table's recorded content; ``None`` if there is none."""
    rows = _lineage(spark, table).where(F.col("summary")[_POSITION].isNotNull()).limit(1).collect()
    return msgspec.json.decode(rows[0]["summary"][_POSITION], type=TablePosition) if rows else None


def _lineage(spark: SparkSession, table: str) -> DataFrame:
    """The snapshots that make up the table, newest first, without those that were rolled back."""
    ours = spark.table(f"{table}.history").where("is_current_ancestor").select("snapshot_id")
    return spark.table(f"{table}.snapshots").join(ours, "snapshot_id", "left_semi").orderBy(F.desc("committed_at"))


def _since(held: TablePosition | None, topic: str, topic_id: str, count: int, table: str) -> dict[int, int] | None:
    """The offsets of the table's next records; ``None``: the topic's first ones."""
    if held is None:
        return None
    if (held.topic, held.topic_id) != (topic, topic_id):
        raise IncompatibleError(
            f"table {table} holds {held.topic} ({held.topic_id}), and this is {topic} ({topic_id}), another topic or one "
            "that was created again: its offsets mean other records. Begin another table"
        )
    return {p: held.offsets.get(p, 0) for p in range(count)}


def _append(spark: SparkSession, frame: DataFrame, table: str, held: TablePosition) -> int:
    before = _current(spark, table)
    if before is None:
        _create(spark, frame, table, F.partitioning.days("timestamp"))
        before = _current(spark, table)
    run = uuid.uuid4().hex
    _writer(frame, table, held, run).append()
    return _check_alone(spark, table, before or 0, run)


def _replace(spark: SparkSession, frame: DataFrame, table: str, held: TablePosition) -> int:
    if not spark.catalog.tableExists(table):
        _create(spark, frame, table)
    run = uuid.uuid4().hex
    _writer(frame, table, held, run).overwrite(F.lit(True))
    return _added(_of_run(spark, table, run))


def _writer(frame: DataFrame, table: str, held: TablePosition, run: str) -> DataFrameWriterV2:
    text = msgspec.json.encode(held).decode()
    writer = frame.writeTo(table).option("mergeSchema", "true")
    return writer.option(f"snapshot-property.{_POSITION}", text).option(f"snapshot-property.{_RUN}", run)


def _of_run(spark: SparkSession, table: str, run: str) -> Row:
    """The snapshot that a run made."""
    (row,) = spark.table(f"{table}.snapshots").where(F.col("summary")[_RUN] == run).collect()
    return row


def _added(snapshot: Row) -> int:
    return int(snapshot["summary"].get("added-records", "0"))


def _create(spark: SparkSession, frame: DataFrame, table: str, *by: Any) -> None:
    schema = table.rsplit(".", 1)[0]
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {schema}")
    writer = spark.createDataFrame([], frame.schema).writeTo(table).using("iceberg")
    for name, value in _TABLE.items():
        writer = writer.tableProperty(name, value)
    (writer.partitionedBy(*by) if by else writer).create()


def _current(spark: SparkSession, table: str) -> int | None:
    """The table's snapshot; ``None`` without a table."""
    if not spark.catalog.tableExists(table):
        return None
    rows = _lineage(spark, table).limit(1).collect()
    return int(rows[0]["snapshot_id"]) if rows else 0


def _check_alone(spark: SparkSession, table: str, before: int, run: str) -> int:
    """The number of appended rows. Raises ``RetriableError``, after rolling back the append, if another run appended
    since the position was read; ``IncompatibleError`` if it can no longer be rolled back."""
    mine = _of_run(spark, table, run)
    if (mine["parent_id"] or 0) == before:
        return _added(mine)
    if _current(spark, table) != mine["snapshot_id"]:
        raise IncompatibleError(
            f"another run wrote to {table} at the same time, and a third one after it: snapshot {mine['snapshot_id']} holds "
            "records twice. Roll the table back to the one before it, and run one at a time"
        )
    catalog, name = table.split(".", 1)
    spark.sql(f"CALL {catalog}.system.rollback_to_snapshot(table => '{name}', snapshot_id => {mine['parent_id']})")
    raise RetriableError(
        f"another run wrote to {table} at the same time, so this one was taken back; run one at a time, and again now"
    )


def _expire(spark: SparkSession, table: str, keep: int) -> None:
    """Remove all but the newest snapshots of the table, with the files that only they reference."""
    newest = _lineage(spark, table).limit(keep + 1).collect()
    # The snapshot with the position must stay: after another tool's work it may be an older one.
    if len(newest) <= keep or _POSITION not in newest[0]["summary"]:
        return
    catalog, name = table.split(".", 1)
    spark.sql(
        f"CALL {catalog}.system.expire_snapshots(table => '{name}', older_than => TIMESTAMP '{_TOMORROW}', "
        f"retain_last => {keep}, max_concurrent_deletes => 4)"
    ).collect()


_TOMORROW = "2999-01-01 00:00:00"
"""Every snapshot is older than this: only their number decides."""
