"""Keys, values and timestamps of records, as lists or as columns: the common part of a chunk and an output.

As in ``penstock.topologies.operator_api.batch``, lists are created on first use and kept. Code that works on columns
reads ``key_column`` and ``value_column``, which are ``None`` if lists were given, and ``times``, which is what was
given.
"""

from __future__ import annotations

from typing import Generic, TypeVar

import numpy as np

from penstock.topologies.operator_api.columns import Column, Ints

C = TypeVar("C", bound=Column)


class RecordColumns(Generic[C]):
    """Parallel columns of one length. Columns hold ``bytes | None``; timestamps are milliseconds."""

    __slots__ = ("_keys", "_timestamps", "_values", "key_column", "times", "value_column")

    def __init__(
        self, keys: list[bytes | None] | C, values: list[bytes | None] | C, timestamps: list[int] | Ints
    ) -> None:
        self._keys: list[bytes | None] | None
        self.key_column: C | None
        self._values: list[bytes | None] | None
        self.value_column: C | None
        self._keys, self.key_column = (keys, None) if isinstance(keys, list) else (None, keys)
        self._values, self.value_column = (values, None) if isinstance(values, list) else (None, values)
        self.times: list[int] | Ints = timestamps
        """The timestamps as given. Convert numbers from an array with ``int`` before they leave the module."""
        self._timestamps = timestamps if isinstance(timestamps, list) else None

    @property
    def keys(self) -> list[bytes | None]:
        """The keys."""
        if self._keys is None:
            assert self.key_column is not None
            self._keys = self.key_column.to_list()
        return self._keys

    @property
    def values(self) -> list[bytes | None]:
        """The values."""
        if self._values is None:
            assert self.value_column is not None
            self._values = self.value_column.to_list()
        return self._values

    @property
    def timestamps(self) -> list[int]:
        """Milliseconds."""
        if self._timestamps is None:
            assert isinstance(self.times, np.ndarray)
            self._timestamps = self.times.tolist()
        return self._timestamps
