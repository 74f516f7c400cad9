"""Keeps the decoded entries of a task's stores within their memory."""

from __future__ import annotations

from collections.abc import Collection

from penstock.state.stores.store_view import KeyValueStoreView
from penstock.streams.task.operator_context import TaskRequests

MEASURED_EVERY = 1_000
"""The number of records after which the stores' memory is measured again, even with room left."""
SMALL_ENTRY_BYTES = 400


class StoreMemory:
    """See the module. ``rows_of_record``: how many rows a record may become."""

    def __init__(self, states: Collection[KeyValueStoreView], requests: TaskRequests, rows_of_record: int) -> None:
        self._states = states
        self._requests = requests
        self._rows_of_record = rows_of_record
        self._unmeasured_max = 0

    def processed(self, records: int, max_bytes: int) -> None:
        """After this many records: free memory if more than ``max_bytes`` is used. Measuring costs as much as a few
        records, so it waits until the rows since the last time could have filled the room, each with four entries."""
        self._unmeasured_max -= records * self._rows_of_record
        if self._unmeasured_max > 0 or not self._states:
            return
        used = sum(s.size_bytes() for s in self._states)
        if used > max_bytes:
            self._relieve(max_bytes)
        entry_bytes = max(used // max(sum(len(s.entries) for s in self._states), 1), SMALL_ENTRY_BYTES)
        self._unmeasured_max = min((max_bytes - used) // (4 * entry_bytes), MEASURED_EVERY)

    def _relieve(self, max_bytes: int) -> None:
        """If over the limit, drop clean entries; if uncommitted writes alone take half of it, request a commit."""
        share = max_bytes // max(len(self._states), 1)
        for state in self._states:
            state.trim(share, remeasure=True)
        if sum(s.uncommitted_bytes() for s in self._states) > max_bytes // 2:
            self._requests.commit = True
