"""Repeat a request to the brokers while they say that they may answer later."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection
from typing import TypeVar

from confluent_kafka import KafkaException

from penstock.state.errors import PenstockError, RetriableError
from penstock.streams.kafka.errors import error_of, translated

_PAUSE_S = 0.1
_FIRST_S = 2.0
_LEAST_S = 5.0  # the shortest attempt: a healthy but busy broker may need that long
T = TypeVar("T")
Translate = Callable[[KafkaException], PenstockError]


def answered(ask: Callable[[float], T], doing: str, timeout_s: float, translate: Translate | None = None) -> T:
    """Return ``ask(left_s)``, where ``left_s`` is how long this attempt may take. The request is repeated until
    ``timeout_s`` is over while a leader or coordinator moves, or a topic or group is so new that not every broker knows
    it. It is repeated at least once: for a process that was frozen, the time may be over before the broker could
    answer.

    ``ask`` may raise the client's exceptions, or one of ours. ``translate`` turns the client's error into ours (default:
    ``translated`` with ``doing``). Raises that error: ``RetriableError`` when the time is over.
    """
    until_s, asked = time.monotonic() + timeout_s, 0
    while True:
        asked += 1
        last = asked > 1 and time.monotonic() + _PAUSE_S >= until_s
        try:
            return ask(max(until_s - time.monotonic(), min(_LEAST_S, timeout_s)))
        except KafkaException as exc:
            error = translated(exc, doing)
            if not isinstance(error, RetriableError) or last:
                raise (error if translate is None else translate(exc)) from exc
        except RetriableError:
            if last:
                raise
        time.sleep(_PAUSE_S)


def answered_by_successor(
    ask: Callable[[float], T], doing: str, timeout_s: float, look: Callable[[float], object] | None = None
) -> T:
    """As ``answered``, for a request to one certain broker: a partition's leader, or the controller.

    The client sends it to the broker that it knows as such. If that one is away, the request waits for it until its own
    timeout, and nobody looks for the successor. So the first attempt is short, later ones are longer, for busy brokers,
    and ``look(timeout_s)`` refreshes the client's metadata in between; without it, the client does so by itself.
    """
    attempt_s = _FIRST_S

    def attempt(left_s: float) -> T:
        nonlocal attempt_s
        given_s, attempt_s = min(left_s, attempt_s), attempt_s * 2
        try:
            return ask(given_s)
        except (KafkaException, RetriableError) as exc:
            passing = isinstance(exc, RetriableError) or isinstance(translated(exc, doing), RetriableError)
            if look is not None and passing:
                with contextlib.suppress(KafkaException):  # then the next attempt fails, too
                    look(given_s)
            raise

    return answered(attempt, doing, timeout_s)


def has_code(exc: KafkaException, codes: Collection[int]) -> bool:
    """Whether the client's exception has one of these codes."""
    err = error_of(exc)
    return err is not None and err.code() in codes
