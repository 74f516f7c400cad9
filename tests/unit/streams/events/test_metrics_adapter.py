"""Facts and measurements as metrics."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.state.log import TaskId
from penstock.streams.events import facts as f
from penstock.streams.events import measurements as m
from penstock.streams.events import metric_names as names
from penstock.streams.events.measurements import Metric
from penstock.streams.events.metrics_adapter import MetricsEvents, exposition, listed
from penstock.streams.ports.log import AbortableError
from tests.fact_samples import KINDS, SAMPLES, TASK

OTHER = TaskId(1, 0)


def value(events: MetricsEvents, name: str, **labels: str) -> float | None:
    """The one sample, if it is there."""
    found = [x.value for x in listed(events.registry) if x.name == name and dict(x.labels) == labels]
    assert len(found) <= 1
    return found[0] if found else None


@pytest.fixture
def events() -> MetricsEvents:
    return MetricsEvents(list, monotonic_s=lambda: 0.0, wall_s=lambda: 1_000.0)


def test_every_fact_is_counted_once(events: MetricsEvents) -> None:
    for fact in SAMPLES:
        events.emit(fact)
    for kind in KINDS:
        assert value(events, "penstock_facts_total", fact=kind.__name__) == 1


@pytest.mark.parametrize(
    ("fact", "name", "labels", "expected"),
    [
        (f.CommitAborted(AbortableError("x")), "penstock_commit_aborts_total", {"cause": "AbortableError"}, 1),
        (f.CommitDelayed(AbortableError("x")), "penstock_commit_delays_total", {"cause": "AbortableError"}, 1),
        (f.ProducerRetired(AbortableError("x")), "penstock_producers_retired_total", {"cause": "AbortableError"}, 1),
        (f.TransactionInDoubt("committed"), "penstock_transactions_in_doubt_total", {"outcome": "committed"}, 1),
        (f.CommitLate(5, 1), "penstock_commits_late_total", {}, 1),
        (f.Committed((TASK,), 7, 0.2), "penstock_commit_records_total", {}, 7),
        (f.ForeignWritesReplaced(TASK, "s", 3), "penstock_foreign_writes_total", {"task": "0_1", "store": "s"}, 3),
        (f.Committed((TASK,), 7, 0.2), "penstock_commit_total", {}, 1),
        (f.Committed((TASK,), 7, 0.2), "penstock_commit_latency_seconds_sum", {}, 0.2),
        (f.Committed((TASK,), 7, 0.2), "penstock_last_commit_timestamp_seconds", {}, 1_000),
        (f.TasksAssigned((TASK,)), "penstock_rebalances_total", {"kind": "assigned"}, 1),
        (f.Fenced(AbortableError("x")), "penstock_rebalances_total", {"kind": "fenced"}, 1),
        (f.TaskReopened(TASK, ""), "penstock_tasks_reopened_total", {}, 1),
        (f.RestoreFinished(TASK, "s", 9, 7, 2), "penstock_restore_total", {"task": "0_1", "store": "s"}, 7),
        (f.RestoreFinished(TASK, "s", 9, 7, 2), "penstock_restore_latency_seconds_count", {}, 1),
        (
            f.RestoreProgressed(TASK, "s", 2, 9, 1.0, 5.0),
            "penstock_restore_remaining_records",
            {"task": "0_1", "store": "s"},
            7,
        ),
        (f.StoreQuarantined(TASK, ""), "penstock_stores_quarantined_total", {}, 1),
        (f.SnapshotRefused(TASK, "s", ""), "penstock_snapshots_total", {"result": "refused"}, 1),
        (f.WaitingForBrokers("b"), "penstock_brokers_reachable", {}, 0),
        (f.BrokersFound("b", 1, 0), "penstock_brokers_reachable", {}, 1),
        (m.RecordsConsumed("in", 5, 50), "penstock_records_consumed_total", {"topic": "in"}, 5),
        (m.RecordsConsumed("in", 5, 50), "penstock_bytes_consumed_total", {"topic": "in"}, 50),
        (m.RecordsProduced("out", 5, 50), "penstock_bytes_produced_total", {"topic": "out"}, 50),
        (m.BatchProcessed(TASK, 5, 0.5), "penstock_process_total", {"task": "0_1"}, 5),
        (m.BatchProcessed(TASK, 5, 0.5), "penstock_process_latency_seconds_sum", {}, 0.5),
        (m.TaskPunctuated(TASK, 0.5), "penstock_punctuate_total", {"task": "0_1"}, 1),
        (m.RecordsVisible(TASK, 0.5), "penstock_record_e2e_latency_seconds_sum", {}, 0.5),
    ],
)
def test_what_is_reported_moves_its_metric(
    events: MetricsEvents, fact: Any, name: str, labels: dict[str, str], expected: float
) -> None:
    (events.measure if type(fact).__module__ == m.__name__ else events.emit)(fact)
    assert value(events, name, **labels) == expected


def test_what_is_of_a_task_goes_with_it(events: MetricsEvents) -> None:
    for task in (TASK, OTHER):
        events.measure(m.BatchProcessed(task, 1, 0.1))
        events.emit(f.RestoreFinished(task, "s", 9, 7, 2))
    events.emit(f.TasksRevoked((TASK,)))
    events.emit(f.TasksLost((TaskId(9, 9),)))
    left = {x.labels["task"] for x in listed(events.registry) if "task" in x.labels}
    assert left == {str(OTHER)}
    events.measure(m.BatchProcessed(TASK, 3, 0.1))
    assert value(events, "penstock_process_total", task=str(TASK)) == 3


def test_steps_of_a_commit_are_timed() -> None:
    now_s = 0.0
    events = MetricsEvents(list, monotonic_s=lambda: now_s)
    for at_s, step in enumerate(
        ["begun", "prepared", "sent", "flushed", "offsets_added", "committed", "stores_written"]
    ):
        now_s = float(at_s)
        events.step(step)  # type: ignore[arg-type]  # one of the steps
    assert value(events, "penstock_flush_latency_seconds_sum") == 1
    assert value(events, "penstock_store_write_latency_seconds_sum") == 1


def test_what_is_looked_at_is_shown_with_its_type_and_meaning() -> None:
    odd = 'a"\\\n\u00e9\udcff'
    shown = [
        Metric("penstock_counted_total", {"counter": odd, "task": "0_0"}, 3),
        Metric("penstock_buffered_records", {"task": "0_0", "topic": "in"}, 1),
    ]
    text = exposition(MetricsEvents(lambda: shown).registry).decode()
    assert "# TYPE penstock_counted_total counter" in text
    assert "# HELP penstock_buffered_records records that were read and wait" in text
    assert 'penstock_counted_total{counter="a\\"\\\\\\n\u00e9\\\\udcff",task="0_0"} 3.0' in text
    assert 'penstock_buffered_records{task="0_0",topic="in"} 1.0' in text
    assert "_created" not in text
    assert "process_resident_memory_bytes" in text


def test_names_are_unique_and_of_one_kind() -> None:
    assert len(names.BY_NAME) == len(names.ALL) > 40
    for metric in names.ALL:
        assert metric.name.endswith("_total") == (metric.kind == "counter"), metric.name
        assert bool(metric.buckets) == (metric.kind == "histogram"), metric.name
