"""Merge the records of several partitions by their timestamps. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar


class Placed(Protocol):
    """A record that knows where and when it is."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def timestamp_ms(self) -> int: ...


R = TypeVar("R", bound=Placed)
ReadingPlace = tuple[str, int]


class InOrder(Generic[R]):
    """Gives records by timestamp, equal ones in the order of ``places``, each partition in its own order. A record is given
    once every other partition has a record waiting, or was read to its end."""

    def __init__(self, places: Iterable[ReadingPlace]) -> None:
        self._waiting: dict[ReadingPlace, deque[R]] = {place: deque() for place in places}
        self._rank = {place: number for number, place in enumerate(self._waiting)}
        self._ended: set[ReadingPlace] = set()

    def add(self, record: R) -> None:
        """Take in the partition's next record."""
        place = (record.topic, record.partition)
        self._waiting[place].append(record)
        self._ended.discard(place)

    def ended(self, place: ReadingPlace) -> None:
        """Note that the partition was read to its end."""
        self._ended.add(place)

    def waiting(self, place: ReadingPlace) -> int:
        """How many records of the partition wait."""
        return len(self._waiting[place])

    def take(self, *, all_of_them: bool = False) -> list[R]:
        """The next records in order; ``all_of_them``: without waiting for partitions that may have earlier ones."""
        out: list[R] = []
        while True:
            heads = [(r[0].timestamp_ms, self._rank[place], place) for place, r in self._waiting.items() if r]
            unknown = any(not r and place not in self._ended for place, r in self._waiting.items())
            if not heads or (unknown and not all_of_them):
                return out
            out.append(self._waiting[min(heads)[2]].popleft())
