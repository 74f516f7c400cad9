"""librdkafka's own log lines, as records of Python's logging under ``penstock.kafka``.

While no broker answers, each client says the same many times a second, and each of its connections says it. Lines that say
the same of one broker, whichever client, connection or request says it, count as the same: the first of them is logged, and
again after ``REPEATED_AFTER_S``; ``folded_lines`` says how many were left out.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable

REPEATED_AFTER_S = 300.0
_NOISE = (("CONFWARN", "enable.gapless.guarantee"), ("GETPID", "Coordinator load in progress: retrying"))
_LINE = re.compile(r"(\w+) \[[^\]]*\](?: \[thrd:[^\]]*\])?: (.*)", re.DOTALL)
"""The facility, and what is said; between them are the names of client and thread."""
_CONNECTION = re.compile(r"(?:\S+: )+")
_ADDRESS = re.compile(r"[\w.-]+:\d+\b")
_AFTER = re.compile(r" \(after .*\)$")
_REQUEST = re.compile(r"\b\w+Request\b")
_NUMBER = re.compile(r"\d+")
_KINDS_MAX = 1_000


class Folding(logging.Filter):
    """Lets the first of many equal lines pass. Also drops what tells nothing: librdkafka calls the gapless guarantee
    experimental on each start, and says that it asks again while a new broker's coordinator loads."""

    def __init__(self, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._monotonic_s = monotonic_s
        self._lock = threading.Lock()
        self._shown_s: dict[str, float] = {}
        self._left_out = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to log the line."""
        text = record.getMessage()
        if any(all(word in text for word in words) for words in _NOISE):
            return False
        kind, now_s = kind_of(text), self._monotonic_s()
        with self._lock:
            if now_s - self._shown_s.get(kind, -REPEATED_AFTER_S) < REPEATED_AFTER_S:
                self._left_out += 1
                return False
            if len(self._shown_s) >= _KINDS_MAX:
                self._shown_s.clear()
            self._shown_s[kind] = now_s
        return True

    def take_left_out(self) -> int:
        """How many lines were left out since the last call; from now on each kind is logged once again."""
        with self._lock:
            count, self._left_out = self._left_out, 0
            self._shown_s.clear()
        return count


def kind_of(text: str) -> str:
    """Return a line without that in which equal ones differ."""
    found = _LINE.fullmatch(text)
    if found is None:
        return _NUMBER.sub("#", text)
    facility, said = found.groups()
    address = _ADDRESS.search(said)
    connection = _CONNECTION.match(said)
    said = _AFTER.sub("", said if connection is None else said[connection.end() :])
    said = _NUMBER.sub("#", _REQUEST.sub("Request", said))
    return f"{facility} {'' if address is None else address[0]} {said}"


_FOLDING = Folding()


def client_logger() -> logging.Logger:
    """The logger that clients write to."""
    logger = logging.getLogger("penstock.kafka")
    if _FOLDING not in logger.filters:
        logger.addFilter(_FOLDING)
    return logger


def folded_lines() -> int:
    """How many lines of all clients of this process were left out since the last call."""
    return _FOLDING.take_left_out()
