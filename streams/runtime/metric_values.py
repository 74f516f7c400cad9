"""A worker's measurements as named values with labels. The values are computed when they are read, so they cost
nothing until then."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from penstock.state.log import TopicPartition
from penstock.streams.events.measurements import Metric
from penstock.streams.runtime.lag import lag_of
from penstock.streams.task.task import Task
from penstock.topologies.operator_api.operator import NO_TIME

KEY_CHARS_MAX = 100
USERS = "user."
"""The prefix of the counters of users' functions, after the name of the operator."""


def metrics_of(tasks: Iterable[Task], ends: Mapping[TopicPartition, int] | None = None) -> list[Metric]:
    """The metrics of tasks that may be running meanwhile in another thread: what waits, lag, event time, what operators
    dropped, heavy keys, caches. ``penstock.streams.events.metric_names`` says what each means. ``ends``: the known
    ends of their inputs.

    A key is shown as text, escaped where it is none, and cut to ``KEY_CHARS_MAX`` characters.
    """
    return [metric for task in tasks for metric in _of_task(task, ends or {})]


def _of_task(task: Task, ends: Mapping[TopicPartition, int]) -> Iterator[Metric]:
    own = {"task": str(task.id)}
    for topic in task.topics:
        yield Metric("penstock_buffered_records", {**own, "topic": topic}, task.feed.buffered(topic))
    for topic, lag in lag_of(task, ends).items():
        yield Metric("penstock_records_lag", {**own, "topic": topic}, lag)
    for name, time_ms in (
        ("penstock_stream_time_seconds", task.stream_time_ms),
        ("penstock_watermark_seconds", task.watermark_ms),
    ):
        if time_ms != NO_TIME:
            yield Metric(name, own, time_ms / 1000)
    for counter, count in sorted(task.dropped.copy().items()):
        operator, _, reason = counter.partition(".")
        if reason.startswith(USERS):
            yield Metric("penstock_counted_total", {**own, "counter": counter}, count)
        else:
            yield Metric("penstock_dropped_records_total", {**own, "operator": operator, "reason": reason}, count)
    for operator, records in task.failures.holding.copy().items():
        yield Metric("penstock_held_records", {**own, "operator": operator}, records)
    for heavy in task.heavy_keys.found():
        labels = {**own, "topic": heavy.topic, "key": _shown(heavy.key)}
        yield Metric("penstock_heavy_key_share", labels, heavy.share)
    for name, size_bytes in task.cached_bytes.items():
        yield Metric("penstock_cache_bytes", {**own, "store": name}, size_bytes)
    for name, state in task.stores.items():
        labels = {**own, "store": name}
        yield Metric("penstock_cache_hits_total", labels, state.hits)
        yield Metric("penstock_cache_misses_total", labels, state.misses)


def memory_limits(limits: Mapping[str, int]) -> list[Metric]:
    """``penstock_memory_limit_bytes``: what each kind of memory of the stores may grow to in this process, all tasks
    together, whether it was set or follows the machine's memory (``WorkerSettings.memory_limits``)."""
    return [Metric("penstock_memory_limit_bytes", {"of": kind}, limit) for kind, limit in limits.items()]


def _shown(key: bytes) -> str:
    return key.decode(errors="backslashreplace")[:KEY_CHARS_MAX]
