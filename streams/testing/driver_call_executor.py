"""External calls of the test driver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.streams.task.external_calls import CallExecutor, InlineCallExecutor
from penstock.streams.worker.pooled_calls import PooledCallExecutor
from penstock.topologies.functions import is_async
from penstock.topologies.operator_api.operator import CallResult, ExternalCall


class DriverCallExecutor:
    """Makes calls with the executor of the options. ``async`` functions run in an event loop, as in a worker."""

    def __init__(self, call_executor: CallExecutor) -> None:
        self._call_executor = call_executor
        self._pooled: PooledCallExecutor | None = None

    def ask(self, call: ExternalCall, rows: Sequence[tuple[Any, ...]]) -> list[CallResult]:
        """One answer per row."""
        if not isinstance(self._call_executor, InlineCallExecutor) or not is_async(call.fn):
            return self._call_executor.ask(call, rows)
        if self._pooled is None:
            self._pooled = PooledCallExecutor()
        return self._pooled.ask(call, rows)

    def close(self) -> None:
        """Stop the event loop, if there is one."""
        if self._pooled is not None:
            self._pooled.close()
            self._pooled = None
