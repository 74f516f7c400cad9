"""The interface of sources: files, services and databases whose records go into a topic.

A ``Source`` consists of splits, which are read one after another: the files of a folder, the tables of a database. A
``SourceReader`` gives the records of one split in batches, each with the position behind it. An ``Ingestion`` writes a
batch and its position in one transaction of Kafka, and begins from the position that was written last.

What makes records exactly-once is that a position always leads to the same rest: a reader that is opened at a position
gives exactly the records that followed it before, whatever the batches were. A source that cannot promise that, such as
one that is sent its records, gives ``None`` for positions, and is at-least-once. Pure.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

from penstock.state.log import Headers


@dataclasses.dataclass(frozen=True, slots=True)
class SourceRecord:
    """One record. ``timestamp_ms``: event time; ``None``: the time at which it is written. ``place``: where it was read,
    for messages (``orders.csv, line 17``). ``error``: why it cannot be read, for a record without a value."""

    key: Any
    value: Any
    timestamp_ms: int | None = None
    headers: Headers = ()
    place: str = ""
    error: str | None = None


class SourceBatch(NamedTuple):
    """``position``: of the reader behind these records, as text; ``None``: the source keeps none. ``ended``: there is no
    more for now."""

    records: list[SourceRecord]
    position: str | None
    ended: bool


class SourceReader(ABC):
    """Reads one split. Used by one thread at a time."""

    @abstractmethod
    def read(self, max_records: int) -> SourceBatch:
        """The next records, at most this many. May wait for them, but not much longer than a second. A batch without
        records and without ``ended`` means that none has come yet.

        Raises ``RetriableError`` if the source does not answer: the reader is closed, and a new one is opened after a
        pause. Any other error ends the ingestion."""

    def skipped(self, record: SourceRecord, why: str) -> None:  # noqa: B027  # most have nobody to report it to
        """A record of the last batch does not fit, and is left out. ``committed`` follows once the others are in the
        topic."""

    def committed(self) -> None:  # noqa: B027  # one that owes nobody an answer has nothing to do
        """All records that were read are in the topic, and so is the position behind them."""

    def close(self) -> None:  # noqa: B027  # one that holds nothing has nothing to release
        """Release everything. Records that were read since the last ``committed`` are not in the topic. Idempotent."""


class Source(ABC):
    """Where records come from: files, a service or a database, as splits that are read one after another. A value: it opens
    nothing before ``splits`` and ``open``.

    ``textual``: its values are texts, as in CSV, from which numbers and dates are read where the type of a field asks for
    them."""

    textual: bool = False

    def splits(self) -> list[str]:
        """The names of the splits that are there now, in the order in which they are read. Positions are kept by these
        names, so a split must keep its name."""
        return [""]

    @abstractmethod
    def open(self, split: str, position: str | None) -> SourceReader:
        """The reader of a split, from this position on; ``None``: from the beginning.

        Raises ``RetriableError`` as ``SourceReader.read`` does, and ``IncompatibleError`` if the split is another one than
        the position was of, such as a file that was replaced."""

    def describe(self) -> str:
        """Describe what it reads, in a few words without secrets."""
        return type(self).__name__
