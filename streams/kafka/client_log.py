"""librdkafka's own log lines, as records of Python's logging under ``penstock.kafka``."""

from __future__ import annotations

import logging

_NOISE = ("CONFWARN", "enable.gapless.guarantee")


def _is_worth_reading(record: logging.LogRecord) -> bool:
    """librdkafka calls the gapless guarantee experimental on each start; it is wanted, so the line tells nothing."""
    text = record.getMessage()
    return not all(word in text for word in _NOISE)


def client_logger() -> logging.Logger:
    """The logger that clients write to."""
    logger = logging.getLogger("penstock.kafka")
    if _is_worth_reading not in logger.filters:
        logger.addFilter(_is_worth_reading)
    return logger
