"""Errors of the client that no ``except`` catches.

For a fatal error the client raises ``KafkaException``, or, if a delivery report is served at the same time, a bare
``KafkaError``. That is an exception to the interpreter, but has no exception among its bases: it passes every ``except``,
``except BaseException`` too, and ends the process. The end of a ``with`` block still sees it.
"""

from __future__ import annotations

from types import TracebackType

from confluent_kafka import KafkaError, KafkaException


class Catchable:
    """In a ``with`` block: raises ``KafkaException`` instead of a bare ``KafkaError``."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, raised: object, trace: TracebackType | None) -> None:
        if isinstance(raised, KafkaError):
            raise KafkaException(raised)


CATCHABLE = Catchable()
"""It has no state, so all threads share it."""
