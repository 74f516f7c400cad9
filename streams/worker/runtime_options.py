"""The options of the run loop that follow from a worker's settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.streams.events.port import EventSink
from penstock.streams.runtime.runtime_options import RuntimeOptions
from penstock.streams.runtime.work_bounds import WorkBounds
from penstock.streams.task.external_calls import CallExecutor
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.worker.settings import WorkerSettings

TURN_MIN_RECORDS = {"balanced": 1_000, "low": 100}
TURN_MAX_S = {"balanced": 0.05, "low": 0.01}
"""See ``AdaptiveBatchSize``: a record waits for the end of its turn, and so does the next poll."""

COMMIT_DELAY_MAX_MS = 50
"""The longest time that a commit is put off, with ``latency="low"``, until everything sent is acknowledged: if it
waited for that inside the commit, records would pile up. Acknowledgements arrive between two turns, so the delay is a
turn or two."""


def runtime_options(
    s: WorkerSettings,
    partitions: tuple[int, ...] | None,
    call_executor: CallExecutor,
    events: EventSink,
    *,
    pause: Callable[[int], object],
    epochs_grow: bool,
    topic_ids: Mapping[str, str],
    owner: str = "",
    bounds: WorkBounds | None = None,
) -> RuntimeOptions:
    """``partitions``: the fixed ones. ``epochs_grow`` and ``bounds``: see ``RuntimeOptions``; ``topic_ids``: of the
    inputs at least; ``owner``, ``pause``: see ``TaskOptions``."""
    return RuntimeOptions(
        guarantee=s.guarantee,
        commit_interval_ms=s.commit_interval_ms,
        task=TaskOptions(
            policies=s.policies,
            batch_max_records=s.batch_max_records,
            state_cache_max_bytes=s.cache_bytes(),
            max_task_idle_ms=s.max_task_idle_ms,
            live=True,
            columns=s.columns,
            call_executor=call_executor,
            events=events,
            topic_ids=topic_ids,
            owner=owner,
            pause=pause,
        ),
        turn_min_records=TURN_MIN_RECORDS[s.latency],
        turn_max_records=s.batch_max_records,
        turn_max_s=min(TURN_MAX_S[s.latency], s.commit_interval_ms / 1000 / 4),
        turn_max_bytes=s.turn_max_bytes(),
        commit_delay_max_ms=min(s.commit_interval_ms // 4, COMMIT_DELAY_MAX_MS) if s.latency == "low" else 0,
        buffered_max_records=s.buffered_max_records,
        buffered_max_bytes=s.buffered_max_bytes(),
        state_flush_interval_ms=s.state_flush_interval_ms,
        partitions=partitions,
        epochs_grow=epochs_grow,
        session_timeout_ms=s.session_timeout_ms,
        bounds=bounds,
    )
