"""Everything that touches PySpark: ``compact`` makes snapshots of changelogs, ``replay`` runs a topology over a range of
the log, ``verify`` holds what the stream did to what a replay makes of it."""

from penstock.streams.spark.cluster import Connection
from penstock.streams.spark.compaction import CompactResult, compact
from penstock.streams.spark.replay_job import ReplayResult, replay
from penstock.streams.spark.session import SparkSettings
from penstock.streams.spark.verification import VerifyResult, verify

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
