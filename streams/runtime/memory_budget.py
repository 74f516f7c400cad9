"""The memory of the parts of a worker, so that its process stays at about a given number of bytes.

A process of Python and its libraries takes some 80 MB before the first record. A batch in progress, the clients' own
structures and what allocators hold back take more than any limit here counts. The rest is divided into fixed parts,
up to what a part can use. What remains goes to the memory in which a key is found fastest: committed entries with the
compiled part, decoded ones without it.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.streams.runtime.adaptive_batching import TURN_MAX_BYTES

OUTSIDE_BYTES = 120 << 20
"""Memory that no limit counts: the peak of a join with a million rows was 177 MB with parts of 50 MB in all."""
LEAST_BYTES = OUTSIDE_BYTES + (56 << 20)
"""Below it the parts are too small to work with."""
_HELD_BACK = 8
"""This fraction of the rest stays unused, because what is counted takes more than its bytes. With a table of 10 GB
under 1 GB and no such reserve the peak was 1,008 MB."""

_SIXTEENTHS = 16
_RECORD_BYTES = 1_200
"""The memory of a record of a batch in progress, as read, decoded, joined and written: 15,000 more of 70 bytes, which
became 170, took 36 MB, half of it freed before the next batch."""


_COPIES = 6
"""How often the bytes of a turn are in memory: read ahead for the next one, and as read, decoded, joined, stored and
written."""


class MemoryParts(NamedTuple):
    """Bytes unless the name says otherwise; each is the most."""

    entries_bytes: int
    block_cache_bytes: int
    decoded_bytes: int
    write_buffer_bytes: int
    received_bytes: int
    sent_bytes: int
    batch_records: int
    turn_bytes: int
    """The records of one turn, as they are read. What their copies take is the part of ``batch_records``."""
    buffered_bytes: int
    """The most for each input partition; used only if one topic has to wait for another, so it is not counted."""


RECEIVED_MAX_BYTES = 16 << 20
"""The memory of a consumer's queue without a limit."""
SENT_MAX_BYTES = 32 << 20
"""The memory of a producer's queue without a limit."""
BUFFERED_MAX_BYTES = 32 << 20
"""The memory of the buffered records of an input partition without a limit."""


def memory_parts(memory_max_bytes: int, *, compiled: bool, write_buffer_bytes: int, batch_records: int) -> MemoryParts:
    """Divide this many bytes, at least ``LEAST_BYTES``, into parts; the other arguments are what these parts take
    without a limit. ``compiled``: whether stores keep their entries outside of Python."""
    rest = max(memory_max_bytes, LEAST_BYTES) - OUTSIDE_BYTES
    left = rest - rest // _HELD_BACK
    part = left // _SIXTEENTHS
    write_buffer = min(part, write_buffer_bytes)
    received = min(2 * part, RECEIVED_MAX_BYTES)
    sent = min(2 * part, SENT_MAX_BYTES)
    batch = min(2 * part // _RECORD_BYTES, batch_records)
    others = write_buffer + received + sent + batch * _RECORD_BYTES
    if compiled:
        blocks = decoded = 2 * part
        entries = left - others - blocks - decoded
    else:
        entries, blocks = 2 * part, 4 * part
        decoded = left - others - entries - blocks
    turn = min(2 * part // _COPIES, TURN_MAX_BYTES)
    buffered = min(part, BUFFERED_MAX_BYTES)
    return MemoryParts(entries, blocks, decoded, write_buffer, received, sent, batch, turn, buffered)
