"""Changes that an engine has sorted, read one store partition after the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

import pyarrow as pa


class SortedRows:
    """Rows of ``ENTRY_SCHEMA``, sorted by place, store key and change: one place after the other."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._rows = chain.from_iterable(
            zip(
                b.column("place").to_pylist(),
                b.column("store_key").to_pylist(),
                b.column("value").to_pylist(),
                strict=True,
            )
            for b in batches
        )
        self._head = next(self._rows, None)

    @property
    def place(self) -> int | None:
        """The place whose rows come next; ``None`` behind the last one."""
        return None if self._head is None else self._head[0]

    def entries(self, place: int) -> Iterator[tuple[bytes, bytes | None]]:
        """The last change of each key of this place, by key."""
        last: tuple[bytes, bytes | None] | None = None
        while self._head is not None and self._head[0] == place:
            _, key, value = self._head
            self._head = next(self._rows, None)
            if key is None:
                continue
            if last is not None and last[0] != key:
                yield last
            last = (key, value)
        if last is not None:
            yield last
