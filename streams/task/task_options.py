"""The options of a task."""

from __future__ import annotations

import dataclasses
from typing import Literal

from penstock.streams.events.port import NO_EVENTS, EventSink
from penstock.streams.task.error_policies import Policies
from penstock.streams.task.external_calls import CallExecutor, InlineCallExecutor

Columns = Literal["auto", "off"]
STATE_CACHE_BYTES = 64 << 20
"""For the decoded entries of all tasks of a process, unless more is said."""


@dataclasses.dataclass(frozen=True)
class TaskOptions:
    """``live``: the clock may be used to refuse timestamps. ``state_cache_max_bytes`` bounds uncommitted writes and
    cached reads of the task (an early commit is asked for, then clean entries are dropped). ``wall_resolution_ms``:
    processing time goes in steps of it, so that at most one reading of the clock is journaled per step.
    ``announces``: the task tells those that read what it writes as a bootstrap when it has caught up; not where the log
    already holds what it says. ``call_executor`` puts operators' questions to the world outside.
    ``columns="off"``: everything runs on rows, whatever the plan says. ``events``: what the task reports goes there."""

    policies: Policies = dataclasses.field(default_factory=Policies)
    batch_max_records: int = 10_000
    state_cache_max_bytes: int = STATE_CACHE_BYTES
    max_task_idle_ms: int = 0
    live: bool = False
    wall_resolution_ms: int = 10
    announces: bool = True
    columns: Columns = "auto"
    call_executor: CallExecutor = dataclasses.field(default_factory=InlineCallExecutor)
    events: EventSink = NO_EVENTS
