"""The records that the policy ``dead_letter`` sends to the dead letter topic."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.state.log import Headers
from penstock.streams.task.failure_report import Origin
from penstock.streams.task.output import Output


def dead_letter_output(topic: str, letters: Sequence[tuple[Origin | None, Headers]], stream_time_ms: int) -> Output:
    """Each record as it arrived, with headers that say what failed; an empty record if a timer or a commit emitted
    it."""
    return Output(
        topic,
        [None if o is None else o.key for o, _ in letters],
        [None if o is None else o.value for o, _ in letters],
        [max(stream_time_ms if o is None else o.timestamp_ms, 0) for o, _ in letters],
        [headers for _, headers in letters],
    )
