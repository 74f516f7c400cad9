"""How a starting worker waits for its brokers: for as long as it takes, with reports, and ready to stop at any
moment."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from penstock.state.errors import RetriableError
from penstock.streams.events.facts import BrokersFound, WaitingForBrokers
from penstock.streams.events.port import EventSink
from penstock.streams.kafka.client_log import folded_lines
from penstock.streams.kafka.errors import NoBrokerError
from penstock.streams.runtime.retry_backoff import RetryBackoff

STOP_LOOK_S = 0.05
"""How often the wait for an answer checks whether to stop."""

T = TypeVar("T")


class StoppedError(Exception):
    """The worker was stopped before it had started."""


class BrokerWait:
    """See the module. ``probe`` raises if no broker of ``servers`` answers; ``stop``: whether to stop."""

    def __init__(self, servers: str, probe: Callable[[], None], stop: threading.Event, events: EventSink) -> None:
        self._servers = servers
        self._probe = probe
        self._stop = stop
        self._answers = False
        self._backoff = RetryBackoff("starting", events, lambda away_s: BrokersFound(servers, away_s, folded_lines()))

    def ask(self, question: Callable[[], T]) -> T:
        """Return the answer to a request that may be repeated. Raises errors that waiting does not cure, and
        ``StoppedError`` if the worker is stopped meanwhile."""
        while True:
            if not self._answers:
                self._wait_for_brokers()
                self._answers = True
            try:
                answer = question()
            except RetriableError as exc:
                self._answers = False
                self._pause(exc)
                continue
            self._backoff.succeeded(time.monotonic())
            return answer

    def _wait_for_brokers(self) -> None:
        """Wait until a broker answers. Probes in a thread of its own, so that a stop need not wait for an answer."""
        while (refusal := self._refusal()) is not None:
            if not isinstance(refusal, (NoBrokerError, RetriableError)):
                raise refusal
            self._pause(refusal)

    def _refusal(self) -> BaseException | None:
        answers: queue.Queue[BaseException | None] = queue.Queue()
        threading.Thread(target=lambda: answers.put(_raised(self._probe)), daemon=True).start()
        while answers.empty():
            if self._stop.wait(STOP_LOOK_S):
                raise StoppedError
        return answers.get()

    def _pause(self, why: BaseException) -> None:
        pause_s = self._backoff.failed(why, time.monotonic(), WaitingForBrokers(self._servers, why))
        if self._stop.wait(pause_s):
            raise StoppedError


def _raised(ask: Callable[[], object]) -> BaseException | None:
    try:
        ask()
    except BaseException as exc:
        return exc
    return None
