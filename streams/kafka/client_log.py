"""librdkafka's own log lines, as records of Python's logging under ``penstock.kafka``.

Every client tells of every broker that it cannot reach, and again at each attempt: tens of lines for one outage. One of them
in ``CONTACT_APART_S`` is let through, whichever client and broker it is of.
"""

from __future__ import annotations

import logging
import time

_NOISE = ("CONFWARN", "enable.gapless.guarantee")
_CONTACT = frozenset({"FAIL", "ERROR", "REQTMOUT", "GETPID"})
"""The first words of lines that tell of a broker that is not reached or does not answer."""
CONTACT_APART_S = 60.0


class _WorthReading(logging.Filter):
    """Drops what tells nothing new."""

    def __init__(self) -> None:
        super().__init__()
        self._told_s: float | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if all(word in text for word in _NOISE):  # it is called experimental on each start, and is wanted
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
