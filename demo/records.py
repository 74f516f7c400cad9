"""What a data set is to the demo: runs of records per topic, and the answer that they must lead to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol


class Rows(NamedTuple):
    """Records of one topic in the order in which they are produced, as columns. Times in milliseconds."""

    topic: str
    keys: list[bytes]
    values: list[bytes]
    timestamps: list[int]


class Answer(NamedTuple):
    """What the output topic must say. ``last``: the last value of each key. ``updates``: how many updates each key must
    have had, each of which counts one more; their sum is the number of records that the topic must hold."""

    last: Mapping[str, Any]
    updates: Mapping[str, int]


class DataSet(Protocol):
    """Records that are the same whenever they are made. The stream's records have places from 0."""

    @property
    def size(self) -> int:
        """How many records the stream has; tables are not counted."""

    def rows(self, start: int, stop: int) -> Iterator[Rows]:
        """The stream's records ``[start, stop)``, and before them those of the tables that come with them."""

    def answer(self, stop: int) -> Answer:
        """What the first ``stop`` records lead to: counted from the data alone."""
