"""What a worker measures, as named values with labels, for whatever collects them. Looked at, not recorded: nothing of it
costs anything until somebody asks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from penstock.streams.task.task import Task

KEY_CHARS_MAX = 100


class Metric(NamedTuple):
    """``name`` in Prometheus' manner: ``…_total`` only grows while a task lives, the others are of now."""

    name: str
    labels: Mapping[str, str]
    value: float


def metrics_of(tasks: Iterable[Task]) -> list[Metric]:
    """The metrics of tasks that may be running meanwhile in another thread:

    * ``penstock_buffered_records`` by task and topic: read and not processed yet;
    * ``penstock_counted_total`` by task and counter: what operators dropped and why, and users' own counts;
    * ``penstock_bad_records_total`` by task, kind and policy: records that a policy skipped or sent to the dead letters;
    * ``penstock_heavy_key_share`` by task, topic and key: the part of the topic's recent records that have a key which
      has a tenth of them or more, as the task's sample tells (``group.split`` spreads such a key).

    A key is shown as text, escaped where it is none, and cut to ``KEY_CHARS_MAX`` characters.
    """
    out: list[Metric] = []
    for task in tasks:
        own = {"task": str(task.id)}
        for topic in task.topics:
            out.append(Metric("penstock_buffered_records", {**own, "topic": topic}, task.feed.buffered(topic)))
        for counter, count in sorted(task.dropped.copy().items()):
            out.append(Metric("penstock_counted_total", {**own, "counter": counter}, count))
        for bad, count in sorted(task.failures.counts.copy().items()):
            kind, _, policy = bad.partition("_")
            out.append(Metric("penstock_bad_records_total", {**own, "kind": kind, "policy": policy}, count))
        for heavy in task.heavy_keys.found():
            labels = {**own, "topic": heavy.topic, "key": _shown(heavy.key)}
            out.append(Metric("penstock_heavy_key_share", labels, heavy.share))
    return out


def memory_limits(limits: Mapping[str, int]) -> list[Metric]:
    """``penstock_memory_limit_bytes``: what each kind of memory of the stores may grow to in this process, all tasks
    together, whether it was set or follows the machine's memory (``WorkerSettings.memory_limits``)."""
    return [Metric("penstock_memory_limit_bytes", {"of": kind}, limit) for kind, limit in limits.items()]


def _shown(key: bytes) -> str:
    return key.decode(errors="backslashreplace")[:KEY_CHARS_MAX]
