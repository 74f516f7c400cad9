"""The check of the compiled counts per pane, for ``kernel_check``."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.state import native


def panes_counted() -> Any:
    """The windows, the changes, and all that is left when panes are gone."""
    compiled = native.compiled()
    counts = _InPython() if compiled is None else compiled.PaneCounts()
    names = [b"key-number-%d" % (i * 7 % 11) for i in range(40)]
    keys = [int(10 * (i * 5 % 6)).to_bytes(8, "big") + name for i, name in enumerate(names)]
    some, times = np.arange(40) % 4, 60 - np.arange(40)
    found: list[Any] = [counts.add(keys[:9], some[:9], times[:9], True), counts.add(keys, some, times, False)]
    found += [counts.add(keys[:1], np.array([-1]), times[:1], False), len(counts), counts.pending]
    found += [_listed(counts.window(10, 40)), counts.first(31)]
    counts.drop_below(20)
    found += [counts.changes(), len(counts), counts.first(0), _listed(counts.window(0, 60))]
    counts.add(keys[3:5], some[3:5], times[3:5], False)
    return [*found, counts.changes(), counts.first(60)]


def _listed(window: tuple[bytes, bytes, bytes, bytes]) -> list[Any]:
    data, *numbers = window
    return [data, *(np.frombuffer(part, np.int64).tolist() for part in numbers)]


class _InPython:
    """The twin of ``penstock_native.PaneCounts``."""

    def __init__(self) -> None:
        self._entries: dict[bytes, tuple[int, int]] = {}
        self._changed: dict[bytes, None] = {}

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def pending(self) -> int:
        return len(self._changed)

    def add(self, keys: list[bytes], counts: Any, times: Any, stored: bool) -> bool:
        if counts.min() < 0:
            return False
        for key, count, ts in zip(keys, counts.tolist(), times.tolist(), strict=True):
            before, latest = self._entries.get(key, (0, ts))
            self._entries[key] = before + count, max(ts, latest)
        if not stored:
            self._changed |= dict.fromkeys(keys)
        return True

    def first(self, start: int) -> int | None:
        return min((s for s in map(_start, self._entries) if s >= start), default=None)

    def window(self, low: int, high: int) -> tuple[bytes, bytes, bytes, bytes]:
        keys = [key for key in self._entries if low <= _start(key) < high]
        by_name: dict[bytes, list[tuple[int, int]]] = {name: [] for name in sorted(key[8:] for key in keys)}
        for key in keys:
            by_name[key[8:]].append(self._entries[key])
        ends = np.cumsum([0, *map(len, by_name)])
        counts = [sum(count for count, _ in rows) for rows in by_name.values()]
        times = [max(ts for _, ts in rows) for rows in by_name.values()]
        return b"".join(by_name), _packed(ends), _packed(counts), _packed(times)

    def drop_below(self, start: int) -> None:
        self._entries = {key: entry for key, entry in self._entries.items() if _start(key) >= start}
        self._changed = {key: None for key in self._changed if key in self._entries}

    def changes(self) -> tuple[list[bytes], list[tuple[int, int]]]:
        changed, self._changed = list(self._changed), {}
        return changed, [self._entries[key] for key in changed]


def _packed(numbers: Any) -> bytes:
    return np.array(numbers, np.int64).tobytes()


def _start(key: bytes) -> int:
    return int.from_bytes(key[:8], "big")
