"""Penstock in PySpark: an application's log and state as DataFrames, and the jobs that run its topology there.

``Application`` gives topics, changelogs and stores as DataFrames with typed columns, of what is committed now, at a time or
at a savepoint; ``register`` makes the same known as ``spark.read.format("penstock")``. ``write_topic`` writes a DataFrame
to a topic, exactly once; ``write_initial_state`` makes DataFrames the state that a new application begins with;
``lake_topic``, ``lake_store`` and ``lake_frame`` write Iceberg tables, in sessions ``with_iceberg``; ``figures`` are
aggregations over all of a topic. ``compact``, ``replay``, ``stream`` and ``verify`` are the commands of these names. It
needs the extra ``spark``.
"""

from __future__ import annotations

from penstock.streams.spark import (
    CompactResult,
    Connection,
    ReplayResult,
    SparkSettings,
    VerifyResult,
    compact,
    figures,
    replay,
    verify,
)
from penstock.streams.spark.frames.application import Application
from penstock.streams.spark.frames.source import FORMAT, register
from penstock.streams.spark.frames.writing import WriteResult, write_topic
from penstock.streams.spark.handover.initial_state import InitialState, write_initial_state
from penstock.streams.spark.lake.catalog import with_iceberg
from penstock.streams.spark.lake.tables import LakeResult, lake_frame, lake_store, lake_topic
from penstock.streams.spark.session import spark_session
from penstock.streams.spark.streaming.output_hook import MicroBatch
from penstock.streams.spark.streaming.query import Streamed, stream

__all__ = [
    "Application",
    "compact",
    "CompactResult",
    "Connection",
    "figures",
    "FORMAT",
    "InitialState",
    "lake_frame",
    "lake_store",
    "lake_topic",
    "LakeResult",
    "MicroBatch",
    "register",
    "replay",
    "ReplayResult",
    "spark_session",
    "SparkSettings",
    "stream",
    "Streamed",
    "verify",
    "VerifyResult",
    "with_iceberg",
    "write_initial_state",
    "write_topic",
    "WriteResult",
]
