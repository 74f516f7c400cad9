"""Every metric that a worker serves: its name, kind, labels and meaning. Pure.

Names are those of Kafka Streams and its clients where they measure the same, in Prometheus' style: prefix
``penstock_``, base units, and suffix ``_total`` for counters. Seconds are used where Kafka Streams has milliseconds
and nanoseconds.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

MetricKind = Literal["counter", "gauge", "histogram"]

FAST_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SLOW_S = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)


class MetricName(NamedTuple):
    """One metric. ``buckets``: of a histogram."""

    name: str
    kind: MetricKind
    labels: tuple[str, ...]
    meaning: str
    buckets: tuple[float, ...] = ()


INFO = MetricName(
    "penstock_info", "gauge", ("version", "application_id", "guarantee", "compiled"), "1; the labels say what runs"
)
FACTS = MetricName("penstock_facts_total", "counter", ("fact",), "facts that were reported, by class")
BROKERS = MetricName("penstock_brokers_reachable", "gauge", (), "1 while brokers answer, 0 while none does")
TASKS = MetricName("penstock_tasks", "gauge", ("state",), "tasks that are `running` or `restoring`")

CONSUMED = MetricName("penstock_records_consumed_total", "counter", ("topic",), "records that were read")
CONSUMED_BYTES = MetricName("penstock_bytes_consumed_total", "counter", ("topic",), "their keys and values, estimated")
PRODUCED = MetricName(
    "penstock_records_produced_total", "counter", ("topic",), "records that were sent, changelogs too"
)
PRODUCED_BYTES = MetricName("penstock_bytes_produced_total", "counter", ("topic",), "their keys and values, estimated")
PROCESSED = MetricName("penstock_process_total", "counter", ("task",), "records that were processed")
PROCESS_TIME = MetricName("penstock_process_latency_seconds", "histogram", (), "time of a task's batch", FAST_S)
PUNCTUATIONS = MetricName("penstock_punctuate_total", "counter", ("task",), "readings of the clock that were due")
PUNCTUATE_TIME = MetricName("penstock_punctuate_latency_seconds", "histogram", (), "time of such a reading", FAST_S)
E2E = MetricName(
    "penstock_record_e2e_latency_seconds",
    "histogram",
    (),
    "age of a task's newest record when its results were committed",
    SLOW_S,
)
LAG = MetricName(
    "penstock_records_lag", "gauge", ("task", "topic"), "records up to the last known end, not processed yet"
)
BUFFERED = MetricName("penstock_buffered_records", "gauge", ("task", "topic"), "records that were read and wait")
STREAM_TIME = MetricName("penstock_stream_time_seconds", "gauge", ("task",), "highest timestamp so far, Unix time")
WATERMARK = MetricName("penstock_watermark_seconds", "gauge", ("task",), "event time that has been reached, Unix time")
DROPPED = MetricName(
    "penstock_dropped_records_total",
    "counter",
    ("task", "operator", "reason"),
    "records that operators dropped, by reason: `late`, `null_key`, `null_value` and others",
)
COUNTED = MetricName("penstock_counted_total", "counter", ("task", "counter"), "your own `ctx.count`")
BAD = MetricName(
    "penstock_bad_records_total",
    "counter",
    ("task", "kind", "policy"),
    "records that a policy skipped or sent to the dead letter topic, and failed attempts of held ones (`hold_key`)",
)
HELD = MetricName(
    "penstock_held_records", "gauge", ("task", "operator"), "records that wait for a later attempt (`hold_key`)"
)
CLAMPED = MetricName(
    "penstock_clamped_timestamps_total", "counter", ("topic",), "records that the policy `clamp` changed"
)
HEAVY = MetricName(
    "penstock_heavy_key_share",
    "gauge",
    ("task", "topic", "key"),
    "keys that a tenth or more of a topic's recent records have",
)
PAUSES = MetricName(
    "penstock_pauses_total", "counter", ("topic",), "partitions that were paused because enough is buffered"
)
PAUSED_TIME = MetricName("penstock_paused_seconds_total", "counter", ("topic",), "for how long they were paused")

COMMITS = MetricName("penstock_commit_total", "counter", (), "commits")
COMMITTED = MetricName("penstock_commit_records_total", "counter", (), "records whose results were committed")
COMMIT_TIME = MetricName(
    "penstock_commit_latency_seconds", "histogram", (), "from the start of a commit until the log has it", FAST_S
)
FLUSH_TIME = MetricName(
    "penstock_flush_latency_seconds", "histogram", (), "of that, waiting for acknowledgements", FAST_S
)
STORE_TIME = MetricName(
    "penstock_store_write_latency_seconds", "histogram", (), "writing the stores after a commit", FAST_S
)
LAST_COMMIT = MetricName("penstock_last_commit_timestamp_seconds", "gauge", (), "when the last commit was, Unix time")
LATE = MetricName("penstock_commits_late_total", "counter", (), "commits that were reported as late")
ABORTS = MetricName("penstock_commit_aborts_total", "counter", ("cause",), "aborts, by the class of the error")
DELAYS = MetricName(
    "penstock_commit_delays_total",
    "counter",
    ("cause",),
    "at-least-once commits that were not answered at once; one each, however many attempts it took",
)
FOREIGN = MetricName(
    "penstock_foreign_writes_total",
    "counter",
    ("task", "store"),
    "keys whose last changelog value came from another worker and was replaced",
)
IN_DOUBT = MetricName(
    "penstock_transactions_in_doubt_total",
    "counter",
    ("outcome",),
    "`committed` or `not_committed`, found out afterwards",
)
RETIRED = MetricName("penstock_producers_retired_total", "counter", ("cause",), "producers that were given up")

REBALANCES = MetricName(
    "penstock_rebalances_total", "counter", ("kind",), "`assigned`, `revoked`, `lost`, `rejoined` or `fenced`"
)
REOPENED = MetricName("penstock_tasks_reopened_total", "counter", (), "tasks that were closed and opened again")
RESTORE_TIME = MetricName("penstock_restore_latency_seconds", "histogram", (), "time of one store's restore", SLOW_S)
RESTORED = MetricName("penstock_restore_total", "counter", ("task", "store"), "records that were restored")
REMAINING = MetricName(
    "penstock_restore_remaining_records", "gauge", ("task", "store"), "offsets that a restore has before it"
)
QUARANTINED = MetricName("penstock_stores_quarantined_total", "counter", (), "local states that were quarantined")
SNAPSHOTS = MetricName("penstock_snapshots_total", "counter", ("result",), "`used` or `refused`")
STATE_BYTES = MetricName("penstock_state_disk_bytes", "gauge", ("task",), "files of a task's stores")
CACHE_BYTES = MetricName("penstock_cache_bytes", "gauge", ("task", "store"), "entries in memory, estimated")
CACHE_HITS = MetricName(
    "penstock_cache_hits_total", "counter", ("task", "store"), "keys of batches that were in memory"
)
CACHE_MISSES = MetricName(
    "penstock_cache_misses_total", "counter", ("task", "store"), "keys that were read from the store"
)
MEMORY_LIMIT = MetricName(
    "penstock_memory_limit_bytes", "gauge", ("of",), "what each kind of the stores' memory may grow to"
)

PROCESS_UP = MetricName("penstock_process_up", "gauge", ("process",), "1 if a supervised process answers, else 0")
RESTARTS = MetricName("penstock_process_restarts_total", "counter", ("process",), "how often it was started again")

ALL: tuple[MetricName, ...] = tuple(v for v in dict(globals()).values() if isinstance(v, MetricName))
BY_NAME = {metric.name: metric for metric in ALL}
