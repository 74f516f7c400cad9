"""A call in the background, at most one at a time: whose error is raised where it is waited for."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from penstock.streams.kafka.catchable import CATCHABLE


class BackgroundCall:
    """Makes calls in a thread of its own. Used by one other thread. The thread is a daemon: if a call never returns, the
    process can end."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._asked: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_running = False
        self._error: BaseException | None = None

    def start(self, call: Callable[[], None]) -> None:
        """Begin a call, after the last one has ended: wait for that first."""
        assert not self._is_running and self._error is None, "the last call was not waited for"
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        self._is_running = True
        self._asked.put(call)

    def wait(self) -> None:
        """Wait for the call to end. Its error is kept. The call itself may use this, and does not wait."""
        if self._is_running and threading.current_thread() is not self._thread:
            self._error = self._answers.get()
            self._is_running = False

    def finish(self) -> None:
        """Wait for the call to end, and raise its error once."""
        self.wait()
        error, self._error = self._error, None
        if error is not None:
            raise error

    def forget(self) -> None:
        """Wait for the call to end, and drop its error."""
        self.wait()
        self._error = None

    def close(self) -> None:
        """End the thread, after its call."""
        if self._thread is not None:
            self._asked.put(None)

    def _work(self) -> None:
        while (asked := self._asked.get()) is not None:
            error: BaseException | None = None
            try:
                with CATCHABLE:
                    asked()
            except BaseException as exc:  # raised again by finish
                error = exc
            del asked
            self._answers.put(error)
            del error
