"""Makes many external calls at a time: coroutines in an event loop of its own, plain functions in threads.

One per worker; it starts nothing before the first call.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as CallTimeout
from queue import Empty, SimpleQueue
from typing import Any

from penstock.streams.task.external_calls import failed_with
from penstock.topologies.functions import is_async
from penstock.topologies.operator_api.operator import CallResult, ExternalCall


class _Threads:
    """Up to ``size`` threads for calls. The process would wait for threads of the standard library's pool when it
    ends, so a call that hangs would keep it from ending."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._calls: SimpleQueue[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]] | None] = SimpleQueue()
        self._started = 0

    def submit(self, fn: Callable[..., Any], row: tuple[Any, ...]) -> Future[Any]:
        """Submit ``fn(*row)``."""
        call: Future[Any] = Future()
        self._calls.put((call, fn, row))
        if self._started < self._size:
            self._started += 1
            threading.Thread(target=self._work, name="penstock-ask", daemon=True).start()
        return call

    def _work(self) -> None:
        while (taken := self._calls.get()) is not None:
            call, fn, row = taken
            if call.set_running_or_notify_cancel():
                try:
                    call.set_result(fn(*row))
                except BaseException as exc:  # the caller gets it
                    call.set_exception(exc)
            del taken, call, fn, row  # a waiting thread must not hold an answer

    def close(self) -> None:
        """Drop the calls that have not started; each thread ends with its current call."""
        while True:
            try:
                taken = self._calls.get_nowait()
            except Empty:
                break
            if taken is not None:
                taken[0].cancel()
        for _ in range(self._started):
            self._calls.put(None)


class PooledCallExecutor:
    """See the module. Call ``close`` when the worker ends."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pools: dict[int, _Threads] = {}

    def ask(self, external_call: ExternalCall, rows: Sequence[tuple[Any, ...]]) -> list[CallResult]:
        """Return one answer per row, in their order; at most ``external_call.concurrency`` calls run at a time."""
        if is_async(external_call.fn):
            return asyncio.run_coroutine_threadsafe(_ask_all(external_call, rows), self._running_loop()).result()
        calls = [self._submitted(external_call, row) for row in rows]
        answers: list[CallResult] = []
        while len(answers) < len(rows):
            at = len(answers)
            answer = _waited(external_call, calls[at])
            if answer is not None:
                answers.append(answer)
                continue
            # it was never started, because calls hang in all threads: use new threads for the rest
            self._pools.pop(external_call.concurrency).close()
            for i in range(at, len(rows)):
                if calls[i].cancelled() or calls[i].cancel():
                    calls[i] = self._submitted(external_call, rows[i])
        return answers

    def _submitted(self, external_call: ExternalCall, row: tuple[Any, ...]) -> Future[Any]:
        size = external_call.concurrency
        if size not in self._pools:
            self._pools[size] = _Threads(size)
        return self._pools[size].submit(external_call.fn, row)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, name="penstock-ask", daemon=True)
            self._thread.start()
        return self._loop

    def close(self) -> None:
        """Stop the threads and the loop; calls that hang are abandoned."""
        for pool in self._pools.values():
            pool.close()
        self._pools.clear()
        if self._loop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(5)
            self._loop.close()
            self._loop = self._thread = None


async def _ask_all(external_call: ExternalCall, rows: Sequence[tuple[Any, ...]]) -> list[CallResult]:
    turn = asyncio.Semaphore(external_call.concurrency)

    async def one(row: tuple[Any, ...]) -> CallResult:
        async with turn:
            try:
                return CallResult(await asyncio.wait_for(external_call.fn(*row), external_call.timeout_s))
            except TimeoutError:
                return _late(external_call)
            except Exception as exc:
                return failed_with(exc)

    async def attempted(row: tuple[Any, ...]) -> CallResult:
        answer = await one(row)
        for pause_ms in external_call.pauses_ms:
            if answer.error is None:
                break
            # another call may use the turn during the pause
            await asyncio.sleep(pause_ms / 1000)
            answer = await one(row)
        return answer

    async def in_order(places: Sequence[int]) -> None:
        for place in places:
            answers[place] = await attempted(rows[place])

    answers: dict[int, CallResult] = {}
    chains = _by_key(rows) if external_call.ordered_by_key else [[place] for place in range(len(rows))]
    await asyncio.gather(*map(in_order, chains))
    return [answers[place] for place in range(len(rows))]


def _by_key(rows: Sequence[tuple[Any, ...]]) -> list[list[int]]:
    """The places of the rows that begin with equal keys. Keys of types that cannot be hashed are equal if they read so."""
    found: dict[Any, list[int]] = {}
    for place, (key, *_) in enumerate(rows):
        try:
            found.setdefault(key, []).append(place)
        except TypeError:
            found.setdefault((type(key), repr(key)), []).append(place)
    return list(found.values())


def _waited(external_call: ExternalCall, call: Future[Any]) -> CallResult | None:
    """The answer; ``None`` for a call that has not started within its time."""
    try:
        return CallResult(call.result(external_call.timeout_s))
    except CallTimeout:
        return None if call.cancel() else _late(external_call)
    except Exception as exc:
        return failed_with(exc)


def _late(external_call: ExternalCall) -> CallResult:
    return CallResult(None, f"no answer within {external_call.timeout_s} s")
