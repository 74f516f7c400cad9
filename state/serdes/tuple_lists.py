"""Lists of tuples of scalars, written and read whole by the compiled part.

The serde in Python is the reference: where an answer is not certain to be the same, it is ``None``, and the serde writes
or reads one by one, and raises its own errors.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol, TypeAlias

from penstock.state.native import compiled

PackedValues: TypeAlias = tuple[bytes, bytes, bytes | None]
"""Data, int64 offsets, and one byte per null flag or ``None``."""


class WholeLists(Protocol):
    """Writes and reads whole lists of a serde's values; nulls stay nulls. Every answer may be ``None``: then the serde does
    it one by one."""

    def write(self, values: list[Any]) -> list[bytes | None] | None:
        """The values as bytes."""

    def pack(self, values: list[Any]) -> PackedValues | None:
        """The values as a column of bytes."""

    def write_entries(self, entries: list[Any]) -> list[bytes | None] | None:
        """Entries ``(value, timestamp_ms)`` as a store keeps them: timestamp | value."""

    def read(self, column: list[bytes | None]) -> list[Any] | None:
        """The values of these bytes."""

    def read_entries(self, stored: list[bytes | None]) -> list[Any] | None:
        """Entries ``(value, timestamp_ms)`` from what a store keeps."""


LONG, NUMBER, TUPLE, BAG = b"q", b"n", b"f", b"b"
"""Forms of a tuple's parts: a number as 8 bytes, a number in MessagePack, a tuple of scalars in MessagePack, and distinct
values with their numbers, which only partial aggregates read and write at once."""


@dataclasses.dataclass(frozen=True, slots=True)
class TupleLists:
    """Lists of tuples that are a MessagePack array of the bytes of their parts. ``forms``: of each part; ``None``: the
    tuples are flat, an array of scalars."""

    forms: bytes | None

    def write(self, values: list[Any]) -> list[bytes | None] | None:
        """As ``WholeLists``; so are the others."""
        module = compiled()
        return None if module is None else module.write_tuples(values, self.forms, False)

    def pack(self, values: list[Any]) -> PackedValues | None:
        module = compiled()
        return None if module is None else module.pack_tuples(values, self.forms)

    def write_entries(self, entries: list[Any]) -> list[bytes | None] | None:
        module = compiled()
        return None if module is None else module.write_tuples(entries, self.forms, True)

    def read(self, column: list[bytes | None]) -> list[Any] | None:
        module = compiled()
        return None if module is None else module.read_tuples(column, self.forms, False)

    def read_entries(self, stored: list[bytes | None]) -> list[Any] | None:
        module = compiled()
        return None if module is None else module.read_tuples(stored, self.forms, True)


def forms_of_parts(lists: WholeLists | None) -> bytes | None:
    """The forms of the parts of tuples; ``None``: they are flat."""
    return lists.forms if isinstance(lists, TupleLists) else None


def forms_with_bags(lists: WholeLists | None) -> bytes | None:
    """The forms of the parts of tuples, if some of these are collections of distinct values."""
    forms = forms_of_parts(lists)
    return None if forms is None or BAG not in forms else forms
