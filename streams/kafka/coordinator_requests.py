"""Requests of the admin client that a group's coordinator answers.

librdkafka has two faults there, which this file is for:

* It ends the process (``rd_kafka_enq_once_del_source_return: Assertion 'eonce->refcnt > 0'``) if such a request times out
  while its coordinator is away and the coordinator then comes back: the request is freed, but its search for the
  coordinator goes on. So no such request may time out in the client. It gets the longest time that the client allows,
  and we stop waiting for its answer sooner. A late answer is dropped.
* It keeps the coordinator that it has found, even if that broker answers that it is none. So after such an answer, or
  none, the next request goes through a new client.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as WaitedInVain
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from penstock.streams.kafka.errors import error_of

COORDINATOR_TIMEOUT_S = 3600.0
"""``request_timeout`` of every such request: the longest time that the client accepts."""
_MOVED = frozenset({KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError._TIMED_OUT})
T = TypeVar("T")


class CoordinatorClient:
    """Sends requests to coordinators. ``open_client`` opens the client for the first request, and again after each one for
    which the coordinator was not where the client looked for it."""

    def __init__(self, open_client: Callable[[], AdminClient]) -> None:
        self._open_client = open_client
        self._client: AdminClient | None = None

    def ask(self, request: Callable[[AdminClient], Mapping[str, Future[T]]], wait_s: float) -> dict[str, T]:
        """Return the answers to ``request``, which passes ``COORDINATOR_TIMEOUT_S``. Raises what the client raises, and
        ``_TIMED_OUT`` if there is no answer within ``wait_s``: whether the coordinator does what it was asked is unknown
        then."""
        if self._client is None:
            self._client = self._open_client()
        until_s = time.monotonic() + wait_s
        try:
            asked = request(self._client)
            return {group: _answer_of(future, until_s - time.monotonic(), wait_s) for group, future in asked.items()}
        except KafkaException as exc:
            err = error_of(exc)
            if err is not None and err.code() in _MOVED:
                self._client = None
            raise


def _answer_of(asked: Future[T], left_s: float, wait_s: float) -> T:
    try:
        return asked.result(timeout=max(left_s, 0.0))
    except WaitedInVain as exc:
        silent = KafkaError(KafkaError._TIMED_OUT, f"the group's coordinator did not answer within {wait_s:.0f} s")
        raise KafkaException(silent) from exc
