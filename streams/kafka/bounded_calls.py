"""Calls of a client that must return, whatever the client does.

librdkafka gives each transactional call a timeout, but not each wait inside: one for a coordinator's broker ends only
when the state of some connection changes, which may take minutes. Meanwhile the worker would process nothing, leave its
group, and not even stop. So these calls are made by a thread of their own, which is given up if it does not come back.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

from penstock.streams.kafka.catchable import CATCHABLE

GRACE_S = 5.0
"""How much longer than its own limit a call may take: it ends with what the client has found out."""

WOKEN_S = 1.0
"""The extra time of a call if the whole process was frozen meanwhile."""


class StuckError(Exception):
    """The call has not returned."""


class BoundedCalls:
    """Makes calls one after the other, all by one thread. After ``StuckError`` the client must not be used any more. The
    thread is a daemon, so that the process can end while a call is stuck."""

    def __init__(self) -> None:
        self._asked: queue.SimpleQueue[Callable[[], Any] | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def call(self, function: Callable[..., Any], *args: Any, limit_s: float) -> Any:
        """Return what ``function(*args)`` returns, or raise what it raises; ``StuckError`` after ``limit_s`` and a grace."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="penstock-transactions", daemon=True)
            self._thread.start()
        self._asked.put(lambda: function(*args))
        for wait_s in (limit_s + GRACE_S, WOKEN_S):
            try:
                answer, error = self._answers.get(timeout=wait_s)
            except queue.Empty:
                continue
            if error is not None:
                raise error
            return answer
        self.close()  # the thread ends if its last call ever returns
        raise StuckError

    def close(self) -> None:
        """End the thread."""
        if self._thread is not None:
            self._thread = None
            self._asked.put(None)

    def _work(self) -> None:
        while (asked := self._asked.get()) is not None:
            try:
                with CATCHABLE:
                    answer: tuple[Any, BaseException | None] = (asked(), None)
            except BaseException as exc:
                answer = (None, exc)
            del asked
            self._answers.put(answer)
