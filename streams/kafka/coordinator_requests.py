"""Requests of the admin client that a group's coordinator answers.

librdkafka ends the process (``rd_kafka_enq_once_del_source_return: Assertion 'eonce->refcnt > 0'``) if such a request
times out while its coordinator is away and the coordinator then comes back: the request is freed, but its search for
the coordinator goes on. So no such request may time out in the client. It gets the longest time that the client
allows, and we stop waiting for its answer sooner. A late answer is dropped.
"""

from __future__ import annotations

from concurrent.futures import Future
from concurrent.futures import TimeoutError as WaitedInVain
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException

COORDINATOR_TIMEOUT_S = 3600.0
"""``request_timeout`` of every such request: the longest time that the client accepts."""
T = TypeVar("T")


def answer_of(asked: Future[T], wait_s: float) -> T:
    """Return the answer to a request that was sent with ``COORDINATOR_TIMEOUT_S``. Raises what the client raises, and
    ``_TIMED_OUT`` if there is no answer within ``wait_s``: whether the coordinator does what it was asked is unknown
    then."""
    try:
        return asked.result(timeout=wait_s)
    except WaitedInVain as exc:
        silent = KafkaError(KafkaError._TIMED_OUT, f"the group's coordinator did not answer within {wait_s:.0f} s")
        raise KafkaException(silent) from exc
