"""A worker's settings: a few values with bounds and reasons. Librdkafka keys pass through: ``common`` for every client,
``consumer`` and ``producer`` for theirs. ``repr`` shows no secret. From files and the environment: ``load_settings.py``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, get_args

from penstock.state.errors import SettingsError
from penstock.state.machine.machine_memory import own_share_bytes
from penstock.state.native import Choice, compiled
from penstock.state.recovery.changelog import REPARTITION_RETENTION_MS
from penstock.state.rocksdb.tuning import RocksDBOptions
from penstock.streams.runtime.adaptive_batching import TURN_MAX_BYTES
from penstock.streams.runtime.commit_protocol import Guarantee
from penstock.streams.runtime.memory_budget import (
    BUFFERED_MAX_BYTES,
    LEAST_BYTES,
    RECEIVED_MAX_BYTES,
    SENT_MAX_BYTES,
    MemoryParts,
    memory_parts,
)
from penstock.streams.task.error_policies import Policies
from penstock.streams.task.task_options import STATE_CACHE_BYTES, ColumnMode
from penstock.streams.worker.secret_redaction import redacted

_NAMING = ("application_id", "bootstrap_servers", "guarantee", "state_dir")
Latency = Literal["balanced", "low"]
Tracing = Literal["off", "otel"]
TRANSACTION_TIMEOUT_MS = 10_000
CACHE_BYTES_MAX = 1 << 30
"""Upper bound of defaults that grow with the machine."""
WRITE_OUT_LOW_BYTES = 8 << 20
"""The most that may wait to be written out of the stores with ``latency="low"``: a million rows that were loaded and
then written out at once, by the flush every half minute, blocked all records for 0.7 s."""


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class WorkerSettings:
    """``commit_interval_ms``: default 100 under exactly-once (outputs are visible only after a commit), else 1,000.
    ``transaction_timeout_ms``: default 10,000, or ``session_timeout_ms`` if that is less.

    ``latency``: ``"low"`` makes turns of the loop shorter and sends records without waiting for more, at the price of
    more and smaller requests. It also lets an at-least-once commit wait up to a quarter of its interval (50 ms at
    most) until all records are acknowledged. ``"balanced"`` collects outputs for 2 ms. Batches grow and shrink by
    themselves, up to ``batch_max_records`` (4,000 at most if records are Python objects). ``buffered_max_records``
    bounds the buffered records per input partition (as do 32 MB), ``state_cache_max_bytes`` uncommitted writes and
    decoded entries of all tasks, besides the memory that ``rocksdb`` sets (``RocksDBOptions``); 0: see
    ``cache_bytes``. ``memory_max_bytes``: the memory of the whole worker process; its stores, batches and clients'
    queues get fixed parts of it, see ``within_memory``. 0: only the bounds of the parts. ``snapshots``: repository
    (folder or fsspec URL) from which stores are restored. ``max_task_idle_ms``: how long a caught-up input must have
    been without records before its task continues without it. ``repartition_purge_interval_ms``: how often consumed
    records of repartition topics are deleted, as Kafka Streams does every 30,000; 0: never, because ``penstock replay``
    and ``verify`` from the start read them again. ``group_instance_id`` makes the membership static: one id per process.
    ``columns="off"`` runs everything on rows, whatever the plan says (``penstock describe --plan``): for comparisons;
    answers are the same. ``native``: whether to use the compiled part (``make native``) if it was built; ``"require"``
    refuses to start without it. ``metrics_port``: the port on which ``GET /metrics`` serves ``Worker.metrics()`` as text
    for Prometheus; 0: none. ``tracing="otel"``: spans of sampled records and their commits
    (``penstock.streams.worker.tracing``)."""

    application_id: str
    bootstrap_servers: str = "127.0.0.1:9092"
    state_dir: str = ".penstock"
    guarantee: Guarantee = "at_least_once"
    commit_interval_ms: int = 0
    session_timeout_ms: int = 45_000
    transaction_timeout_ms: int = 0
    max_task_idle_ms: int = 0
    latency: Latency = "balanced"
    native: Choice = "auto"
    columns: ColumnMode = "auto"
    batch_max_records: int = 20_000
    buffered_max_records: int = 30_000
    memory_max_bytes: int = 0
    state_cache_max_bytes: int = 0
    state_flush_interval_ms: int = 30_000
    replication_factor: int = -1
    repartition_retention_ms: int = REPARTITION_RETENTION_MS
    repartition_purge_interval_ms: int = 0
    snapshots: str | None = None
    group_instance_id: str | None = None
    metrics_host: str = "127.0.0.1"
    metrics_port: int = 0
    tracing: Tracing = "off"
    policies: Policies = dataclasses.field(default_factory=Policies)
    rocksdb: RocksDBOptions = dataclasses.field(default_factory=RocksDBOptions)
    common: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    consumer: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    producer: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        choices = {
            "guarantee": Guarantee,
            "native": Choice,
            "latency": Latency,
            "columns": ColumnMode,
            "tracing": Tracing,
        }
        for name, literal in choices.items():
            if (value := getattr(self, name)) not in get_args(literal):
                raise SettingsError(f"{name}={value!r}; choose one of {', '.join(get_args(literal))}")
        if self.commit_interval_ms == 0:
            default = 100 if self.guarantee == "exactly_once" else 1_000
            object.__setattr__(self, "commit_interval_ms", default)
        if self.transaction_timeout_ms == 0:
            # the next owner waits for the open transaction of a dead worker: no longer than it waited for its session
            object.__setattr__(self, "transaction_timeout_ms", min(self.session_timeout_ms, TRANSACTION_TIMEOUT_MS))
        bounds = {
            "commit_interval_ms": (1, 3_600_000, "work that is not committed is done again after a crash"),
            "session_timeout_ms": (1_000, 1_800_000, "brokers refuse shorter or longer ones"),
            "transaction_timeout_ms": (1_000, 900_000, "brokers allow 15 minutes at most by default"),
            "max_task_idle_ms": (0, 3_600_000, "a task that waits longer looks dead"),
            "batch_max_records": (1, 1_000_000, "a batch is held in memory"),
            "buffered_max_records": (1, 10_000_000, "buffered records are held in memory"),
            "state_flush_interval_ms": (100, 3_600_000, "a crash of the machine makes the changelog repeat this much"),
            "repartition_purge_interval_ms": (0, 86_400_000, "0 is never; disks fill meanwhile"),
            "metrics_port": (0, 65_535, "0 is off"),
            "repartition_retention_ms": (-1, 1 << 53, "-1 is forever; brokers judge by the records' own time"),
        }
        for name, (low, high, why) in bounds.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise SettingsError(f"{name}={value}; it must be from {low} to {high}: {why}")
        if self.state_cache_max_bytes and not 1 << 20 <= self.state_cache_max_bytes <= 1 << 40:
            raise SettingsError(
                f"state_cache_max_bytes={self.state_cache_max_bytes}; it must be from {1 << 20} to {1 << 40}, since a "
                "batch's own state must fit, or 0 for the default"
            )
        if self.memory_max_bytes and not LEAST_BYTES <= self.memory_max_bytes <= 1 << 50:
            raise SettingsError(
                f"memory_max_bytes={self.memory_max_bytes}; it must be at least {LEAST_BYTES}, most of which Python and its "
                "libraries take, or 0 for no bound of the whole"
            )
        if self.guarantee == "exactly_once" and self.commit_interval_ms > self.transaction_timeout_ms // 2:
            raise SettingsError(
                f"commit_interval_ms={self.commit_interval_ms} is over half of transaction_timeout_ms="
                f"{self.transaction_timeout_ms}: the broker would abort open transactions; lower one or raise the other"
            )

    def cache_bytes(self) -> int:
        """``state_cache_max_bytes``, or if it is 0: 64 MB with the compiled part, whose own map of entries is smaller
        and nearly as fast; without it half of the machine's share (``RocksDBOptions.limits``), 1 GB at most. For a
        table of a million rows, half of the cache was too small: moving between its young and old generation made
        each lookup cost a third more."""
        if self.state_cache_max_bytes:
            return self.state_cache_max_bytes
        share = own_share_bytes() if compiled() is None else 0
        return min(max(share // 2, STATE_CACHE_BYTES), CACHE_BYTES_MAX)

    def buffered_max_bytes(self) -> int:
        """The bytes that may be buffered per input partition, besides ``buffered_max_records``."""
        parts = self.memory_parts()
        return BUFFERED_MAX_BYTES if parts is None else parts.buffered_bytes

    def turn_max_bytes(self) -> int:
        """The bytes of the records of one turn of the run loop."""
        parts = self.memory_parts()
        return TURN_MAX_BYTES if parts is None else parts.turn_bytes

    def queues_bytes(self) -> tuple[int, int]:
        """The memory of a consumer's and a producer's queue, unless librdkafka keys set it."""
        parts = self.memory_parts()
        return (RECEIVED_MAX_BYTES, SENT_MAX_BYTES) if parts is None else (parts.received_bytes, parts.sent_bytes)

    def memory_parts(self) -> MemoryParts | None:
        """The parts of ``memory_max_bytes``; ``None`` if that is not set."""
        if not self.memory_max_bytes:
            return None
        return memory_parts(
            self.memory_max_bytes,
            compiled=self.native != "off" and compiled() is not None,
            write_buffer_bytes=self.rocksdb.write_buffer_bytes,
            batch_records=self.batch_max_records,
        )

    def within_memory(self) -> WorkerSettings:
        """The settings with every bound of stores and batches lowered to its part of ``memory_max_bytes``, even if it
        was set; without ``memory_max_bytes`` the same settings. The clients' queues get their parts in their
        configuration: librdkafka keys that were set win."""
        parts = self.memory_parts()
        if parts is None:
            return self
        stores = dataclasses.replace(
            self.rocksdb,
            entries_bytes=_lowered(self.rocksdb.entries_bytes, parts.entries_bytes),
            block_cache_bytes=_lowered(self.rocksdb.block_cache_bytes, parts.block_cache_bytes),
            write_buffer_bytes=parts.write_buffer_bytes,
        )
        return dataclasses.replace(
            self,
            rocksdb=stores,
            state_cache_max_bytes=_lowered(self.state_cache_max_bytes, parts.decoded_bytes),
            batch_max_records=parts.batch_records,
            buffered_max_records=min(self.buffered_max_records, 2 * parts.batch_records),
        )

    def memory_limits(self) -> dict[str, int]:
        """The bound of each kind of store memory in this process, in bytes, by name."""
        options = self.stores_options()
        entries_bytes, block_cache_bytes = options.limits()
        return {
            "decoded": self.cache_bytes(),
            "entries": entries_bytes,
            "blocks": block_cache_bytes,
            "memtables": options.write_buffer_bytes,
        }

    def stores_options(self) -> RocksDBOptions:
        """``rocksdb``, with no more data waiting to be written out than ``latency`` allows."""
        if self.latency != "low" or self.rocksdb.write_out_bytes <= WRITE_OUT_LOW_BYTES:
            return self.rocksdb
        return dataclasses.replace(self.rocksdb, write_out_bytes=WRITE_OUT_LOW_BYTES)

    def changed(self) -> dict[str, str]:
        """The settings that differ from their defaults, without secrets and without those that name the application. Of
        groups of settings, such as ``policies``, only those that differ: ``policies.deserialization``."""
        out: dict[str, str] = {}
        # some defaults follow from other settings
        timeout_ms = self.session_timeout_ms
        plain = WorkerSettings(application_id="", guarantee=self.guarantee, session_timeout_ms=timeout_ms)
        defaults = {f.name: getattr(plain, f.name) for f in dataclasses.fields(self)}
        defaults["session_timeout_ms"] = WorkerSettings.session_timeout_ms
        for field in dataclasses.fields(self):
            default, value = defaults[field.name], getattr(self, field.name)
            if field.name in _NAMING or value == default:
                continue
            shown = redacted(value)
            if dataclasses.is_dataclass(value):
                parts = (n for n in shown if getattr(value, n) != getattr(default, n))
                out |= {f"{field.name}.{n}": str(shown[n]) for n in parts}
            else:
                out[field.name] = str(shown)
        return out

    def __repr__(self) -> str:
        shown = (f"{f.name}={redacted(getattr(self, f.name))!r}" for f in dataclasses.fields(self))
        return f"WorkerSettings({', '.join(shown)})"


def _lowered(bound: int, part: int) -> int:
    """A bound for which 0 means: as much as fits."""
    return min(bound or part, part)
