"""The compiled part. Everything here has a twin in Python that gives the same answers.

Buffers of numbers are ``bytes`` in the machine's order: int64, or one byte per flag.
"""

from typing import Any

INTERFACE: int
"""Changes with every change of a signature; whoever uses the module compares it."""

_Strings = tuple[bytes, bytes, bytes | None]
"""Data, n + 1 int64 ends (the first is 0), and one flag per value that is ``None`` (``None``: none is)."""

_Chunk = tuple[
    str,  # topic
    int,  # partition
    int,  # first offset
    int,  # last offset
    bytes | None,  # int64 offsets; None where none is missing between first and last
    bytes,  # int64 timestamps, the one that stands for 0 honoured
    _Strings,  # keys
    _Strings,  # values
    list[tuple[tuple[str, bytes | None], ...]] | None,  # headers; None where no record has any
    bool,  # whether the offsets ascend
]

_Event = tuple[str | None, int, int, int, str]
"""Topic, partition, error code, offset and text of what is not a record."""

class Reader:
    """The records of a consumer's partitions, read from a queue of the reader's own.

    Holds the consumer. Used by the client's thread only; ``close`` comes before the client's own.
    """

    def __init__(self, consumer: Any, library: str, version: int, client_id: str) -> None:
        """``library``: the file of the client's extension module, ``version``: of librdkafka, as the client says,
        ``client_id``: as configured. ``RuntimeError`` if the client is not built as expected; it is not touched then."""

    def follow(self, topic: str, partition: int) -> None:
        """Read this partition. Before each call that starts it in the client, or starts it anew."""

    def leave(self, topic: str, partition: int) -> None:
        """Read it no more. After the call that stops it in the client."""

    def drain(self, max_records: int, timeout_ms: int) -> tuple[list[_Chunk], list[_Event]]:
        """What is there, up to ``max_records`` records and events, waiting for the first of them; chunks per partition.
        May return nothing before the time is over."""

    def close(self) -> None:
        """Give everything back and drop what was not read. Idempotent."""

class Writer:
    """Queues records of a producer, as its own ``produce`` does, without delivery reports.

    Holds the producer. Used by the client's thread only; ``close`` comes before the client is let go.
    """

    def __init__(self, producer: Any, library: str, version: int, client_id: str) -> None:
        """As for ``Reader``."""

    def send(
        self,
        topic: str,
        keys: Any,
        values: Any,
        timestamps: Any,
        headers: Any,
        partition: Any,
        start: int,
        stop: int,
    ) -> int:
        """Queue the records ``start <= i < stop``; how many were taken. The first that is not taken ends the call.

        ``keys``, ``values``: a list of ``bytes | None``, or ``(data, int64 offsets, uint8 nulls | None)``, or
        ``(int32 codes, list of bytes | None)``.
        ``timestamps``: a list or an int64 array. ``headers``: a list of tuples of ``(str, bytes | None)``, or ``None``;
        the header that stands for timestamp 0 is added where it is 0 and taken away elsewhere. ``partition``: one for
        all, or a list or int32 array; -1: by the configured partitioner. Columns of other types raise an exception
        (``TypeError``, ``ValueError``, ``OverflowError``, ``BufferError``, …) before anything is queued.
        """

    def close(self) -> None:
        """Give the topics back. Idempotent."""
