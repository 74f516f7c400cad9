"""The options of a task."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Literal

from penstock.streams.events.port import NO_EVENTS, EventSink
from penstock.streams.task.error_policies import Policies
from penstock.streams.task.external_calls import CallExecutor, InlineCallExecutor

ColumnMode = Literal["auto", "off"]
STATE_CACHE_BYTES = 64 << 20
"""The default bound for the decoded entries of all tasks of a process."""


def no_pause(ms: int) -> None:
    """Do not wait: tests and replays call again at once."""


@dataclasses.dataclass(frozen=True)
class TaskOptions:
    """``live``: the clock may be used to refuse timestamps. ``state_cache_max_bytes`` bounds uncommitted writes and
    cached reads of the task (first an early commit is requested, then clean entries are dropped).
    ``wall_resolution_ms``: processing time advances in steps of it, so at most one reading of the clock is journaled
    per step. ``announces``: when the task has caught up, it announces that to tasks that read its output as a
    bootstrap; not in a replay, where the log already holds the announcements. ``call_executor`` makes operators' external
    calls. ``columns="off"``: everything runs on rows, whatever the plan says. ``events``: receives what the task reports.
    ``topic_ids``: of its inputs, which are committed with their positions. ``owner``: the worker's name, noted with each
    commit; empty where the group does not show that name. ``pause(ms)``: waits before a function is called
    again (``Retry``)."""

    policies: Policies = dataclasses.field(default_factory=Policies)
    batch_max_records: int = 10_000
    state_cache_max_bytes: int = STATE_CACHE_BYTES
    max_task_idle_ms: int = 0
    live: bool = False
    wall_resolution_ms: int = 10
    announces: bool = True
    columns: ColumnMode = "auto"
    call_executor: CallExecutor = dataclasses.field(default_factory=InlineCallExecutor)
    events: EventSink = NO_EVENTS
    topic_ids: Mapping[str, str] = dataclasses.field(default_factory=dict)
    owner: str = ""
    pause: Callable[[int], object] = no_pause
