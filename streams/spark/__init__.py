"""Everything that uses PySpark: ``compact`` makes snapshots of changelogs, ``replay`` runs a topology over a range of
the log, ``verify`` compares what the stream did with a replay."""

from penstock.streams.batch.compaction_plan import CompactResult
from penstock.streams.batch.replay_run import ReplayResult
from penstock.streams.batch.verify_plan import VerifyResult
from penstock.streams.spark.compaction import compact
from penstock.streams.spark.connection import Connection
from penstock.streams.spark.replay_job import replay
from penstock.streams.spark.session import SparkSettings
from penstock.streams.spark.verification import verify

__all__ = [
    "Connection",
    "SparkSettings",
    "compact",
    "CompactResult",
    "replay",
    "ReplayResult",
    "verify",
    "VerifyResult",
]
