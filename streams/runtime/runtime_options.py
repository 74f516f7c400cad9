"""The options of the run loop."""

from __future__ import annotations

import dataclasses

from penstock.streams.runtime.adaptive_batching import TURN_MAX_BYTES
from penstock.streams.runtime.commit_protocol import Guarantee
from penstock.streams.runtime.memory_budget import BUFFERED_MAX_BYTES
from penstock.streams.runtime.work_bounds import WorkBounds
from penstock.streams.task.task_options import TaskOptions


@dataclasses.dataclass(frozen=True)
class RuntimeOptions:
    """``partitions``: the fixed ones, ``None`` in a group. ``state_flush_interval_ms``: the most that a crash of the
    machine makes the changelog repeat. ``buffered_max_records`` and ``buffered_max_bytes``: per input partition; above one
    of them the partition pauses. ``turn_min_records``, ``turn_max_records``, ``turn_max_s`` and ``turn_max_bytes`` bound a
    turn: see ``AdaptiveBatchSize``. ``commit_delay_max_ms``: how much later than due a commit may begin so that it has no
    acknowledgements to wait for. ``epochs_grow``: the group is one whose epoch grows without an assignment
    (``group.protocol=consumer``). ``bounds``: of the fixed partitions only this part is run."""

    guarantee: Guarantee
    commit_interval_ms: int
    task: TaskOptions
    commit_delay_max_ms: int = 0
    turn_min_records: int = 1_000
    turn_max_records: int = 20_000
    turn_max_s: float = 0.05
    turn_max_bytes: int = TURN_MAX_BYTES
    buffered_max_records: int = 30_000
    buffered_max_bytes: int = BUFFERED_MAX_BYTES
    state_flush_interval_ms: int = 30_000
    partitions: tuple[int, ...] | None = None
    epochs_grow: bool = False
    session_timeout_ms: int = 45_000
    bounds: WorkBounds | None = None

    def turn_bounds(self) -> tuple[int, int, float, int]:
        """The arguments of ``AdaptiveBatchSize``."""
        return self.turn_min_records, self.turn_max_records, self.turn_max_s, self.turn_max_bytes
