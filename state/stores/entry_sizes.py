"""The memory that cached entries take in CPython.

Estimates, from a sample of a dictionary's first and last entries: exact sizes would cost more than the entries save.
They include the objects' headers, which are most of the memory of small entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain, islice
from typing import Any

SLOT_BYTES = 80
"""A dictionary slot, averaged between two doublings: hash, two pointers, and its share of the index."""
_NUMBER_BYTES = 32
_TRACKED_BYTES = 16
_SAMPLED = 32


def entries_bytes(entries: Mapping[bytes, Any]) -> int:
    """The memory of a store's entries: keys, stored bytes or ``(value, timestamp)``, and the dictionary."""
    count = len(entries)
    if not count:
        return 0
    some: Iterable[tuple[bytes, Any]] = entries.items()
    if count > 2 * _SAMPLED:
        some = chain(islice(entries.items(), _SAMPLED), islice(reversed(entries.items()), _SAMPLED))  # type: ignore[call-overload]  # items of a dict
        total = sum(_size(key) + _of(entry) for key, entry in some) // (2 * _SAMPLED)
    else:
        total = sum(_size(key) + _of(entry) for key, entry in some) // count
    return count * (SLOT_BYTES + total)


def marks_bytes(count: int) -> int:
    """The memory of a dictionary from keys to timestamps, without the keys, which are kept anyway."""
    return count * (SLOT_BYTES + _NUMBER_BYTES)


def _of(entry: Any) -> int:
    if entry is None:
        return 0
    if isinstance(entry, tuple):
        return _TRACKED_BYTES + _size(entry) + _size(entry[0]) + _NUMBER_BYTES
    return _size(entry)


def _size(found: Any) -> int:
    return int(found.__sizeof__())
