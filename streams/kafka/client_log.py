"""librdkafka's own log lines, as records of Python's logging under ``penstock.kafka``.

Every client logs every broker that it cannot reach, again at each attempt: tens of lines for one outage. One such line
per ``CONTACT_APART_S`` passes, for all clients and brokers together.
"""

from __future__ import annotations

import logging
import time

_NOISE = ("CONFWARN", "enable.gapless.guarantee")
_CONTACT = frozenset({"FAIL", "ERROR", "REQTMOUT", "GETPID"})
"""How lines about an unreachable or silent broker begin."""
CONTACT_APART_S = 60.0


class _WorthReading(logging.Filter):
    """Drops repeated lines."""

    def __init__(self) -> None:
        super().__init__()
        self._told_s: float | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if all(word in text for word in _NOISE):  # "experimental", at each start, of what is used on purpose
            return False
        if record.levelno < logging.INFO or text.partition(" ")[0] not in _CONTACT:
            return True
        now_s = time.monotonic()
        if self._told_s is not None and now_s - self._told_s < CONTACT_APART_S:
            return False
        self._told_s = now_s
        return True


def client_logger() -> logging.Logger:
    """The logger that clients write to."""
    logger = logging.getLogger("penstock.kafka")
    if not any(isinstance(known, _WorthReading) for known in logger.filters):
        logger.addFilter(_WorthReading())
    return logger
