"""The port through which a host reports records to a tracing system, and the record header that names a trace. Pure.

The header is ``traceparent`` of W3C Trace Context: version, trace id, id of the writer's span, flags. A record is *traced*
if it has one of version 00 whose flags say that the trace is sampled. Tracing replaces the id of the span in a traced
output, and changes nothing else: neither what operators are given, nor other headers, nor outputs without a trace.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Protocol

from penstock.state.log import Headers, TopicPartition
from penstock.streams.ports.chunk import Chunk

TRACEPARENT = "traceparent"
TRACESTATE = "tracestate"
TRACEPARENT_BYTES = 55
SPAN_FROM, SPAN_TO = 36, 52
"""Where the id of the span is in the header's value."""
_TRACED = re.compile(rb"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f][13579bdf]")


class RecordTraces(Protocol):
    """Follows records from where a host reads the log to where it writes it. Called by one thread; must return soon and
    never raise."""

    def received(self, chunk: Chunk) -> None:
        """Records were read; they will be processed."""

    def placed(self, partition: TopicPartition, offset: int) -> None:
        """The partition is read from this offset on. Records from there on that were not committed are forgotten: they
        are read again, by this host or another one."""

    def sent(self, topic: str, headers: Sequence[Headers]) -> Sequence[Headers]:
        """Records with these headers are being written. Returns the headers to write instead."""

    def committed(self, positions: Mapping[TopicPartition, int]) -> None:
        """The records before these offsets are committed."""


def traceparent_of(headers: Headers) -> bytes | None:
    """The value of a traced record's last ``traceparent``; ``None``: the record is not traced."""
    for name, value in reversed(headers):
        if name == TRACEPARENT:
            return value if value is not None and _TRACED.fullmatch(value) else None
    return None


def with_span(headers: Headers, span_id: bytes) -> Headers:
    """A traced record's headers with another span, by its id in 16 hexadecimal digits."""
    at = max(i for i, (name, _) in enumerate(headers) if name == TRACEPARENT)
    value = headers[at][1]
    assert value is not None
    return (*headers[:at], (TRACEPARENT, value[:SPAN_FROM] + span_id + value[SPAN_TO:]), *headers[at + 1 :])
