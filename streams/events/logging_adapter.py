"""Facts as log records of the standard library, one record per fact, under the loggers ``penstock.worker``,
``penstock.task``, ``penstock.restore``, ``penstock.commit``, ``penstock.record`` and ``penstock.flow``.

There may be thousands of bad records. For each policy and operator, ``BAD_RECORDS_MAX`` of them are logged per
``BAD_RECORDS_S``; the next line, or the end of the worker, reports how many were left out.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from penstock.state.log import TaskId
from penstock.streams.events.facts import (
    Fact,
    RecordDeadLettered,
    RecordHeld,
    RecordSkipped,
    TimestampsClamped,
    WorkerStopped,
)
from penstock.streams.events.log_format import FACT, values_of
from penstock.streams.events.measurements import Measurement
from penstock.streams.events.sentences import Level, Line, line_of, sentence_of

BAD_RECORDS_MAX = 20
BAD_RECORDS_S = 60.0
_NUMBERS: Final[dict[Level, int]] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
_Key = tuple[str, TaskId, str]


class _BadRecords:
    """The bad records of one kind since ``begun_s``."""

    def __init__(self, begun_s: float) -> None:
        self.begun_s = begun_s
        self.logged = 0
        self.left_out = 0


class LoggingEvents:
    """See the module. ``records``: also log what may hold record contents. Measurements are not logged."""

    def __init__(self, *, records: bool = False, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._records = records
        self._monotonic_s = monotonic_s
        self._windows: dict[_Key, _BadRecords] = {}
        self._lock = threading.Lock()

    def measure(self, measurement: Measurement) -> None:
        """Not logged."""

    def emit(self, fact: Fact) -> None:
        """Log one record."""
        if isinstance(fact, WorkerStopped):
            self._log_left_out()
        level, area, _ = sentence_of(fact)
        if not logging.getLogger(f"penstock.{area}").isEnabledFor(_NUMBERS[level]):
            return
        line = line_of(fact, records=self._records)
        key = _limited(fact)
        if key is not None and not self._admits(key, line):
            return
        _log(line)

    def _admits(self, key: _Key, line: Line) -> bool:
        now_s = self._monotonic_s()
        with self._lock:
            window = self._windows.setdefault(key, _BadRecords(now_s))
            if now_s - window.begun_s >= BAD_RECORDS_S:
                self._windows[key], past = _BadRecords(now_s), window
                if past.left_out:
                    _log(_left_out(key, past.left_out, line.level))
                window = self._windows[key]
            window.logged += 1
            if window.logged > BAD_RECORDS_MAX:
                window.left_out += 1
            return window.logged <= BAD_RECORDS_MAX

    def _log_left_out(self) -> None:
        with self._lock:
            windows, self._windows = self._windows, {}
        for key, window in windows.items():
            if window.left_out:
                _log(_left_out(key, window.left_out, "warning"))


def _limited(fact: Fact) -> _Key | None:
    """The key by which the lines of a fact are limited; ``None``: they are not."""
    if isinstance(fact, RecordSkipped | RecordDeadLettered | RecordHeld):
        return type(fact).__name__, fact.task, fact.operator
    if isinstance(fact, TimestampsClamped):
        return type(fact).__name__, fact.task, fact.partition.topic
    return None


def _left_out(key: _Key, count: int, level: Level) -> Line:
    fact, task, where = key
    return Line(level, "record", fact, "More of the same", {"task": str(task), "where": where, "lines": count})


def _log(line: Line) -> None:
    logger = logging.getLogger(f"penstock.{line.area}")
    logger.log(_NUMBERS[line.level], "%s. %s", line.sentence, values_of(line), extra={FACT: line})
