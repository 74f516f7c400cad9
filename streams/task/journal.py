"""The journal: what a task's live order depended on beyond the log.

There is at most one record per commit, in the same transaction, on the task's partition of the journal topic. Its
entries are in the order in which they happened:

* ``Cut``: the offsets consumed so far, at a point where the live order left the rule of the feed. The sequence is the
  merges of the ranges between cuts, one after the other.
* ``ClockFiring``: the same vector, and the clock readings between which wall-clock timers fired there.

* ``Answers``: the answers to external calls of operators (``penstock.streams.task.external_calls``).

A task with one input, no clock and no external calls has no journal. Encoding: JSON, versioned.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from penstock.state.errors import IncompatibleError, StateCorruptedError

VERSION = 1


class Cut(msgspec.Struct, frozen=True, tag="cut", array_like=True):
    """``offsets``: topic → next offset to be consumed."""

    offsets: dict[str, int]


class ClockFiring(msgspec.Struct, frozen=True, tag="clock", array_like=True):
    """Wall-clock timers fired at ``offsets`` for the time from ``before_ms`` to ``now_ms``."""

    offsets: dict[str, int]
    before_ms: int
    now_ms: int


class Answers(msgspec.Struct, frozen=True, tag="answers", array_like=True):
    """Answers to an operator's external calls, in record order; ``offsets``: what the task had taken."""

    offsets: dict[str, int]
    operator: str
    values: list[bytes]


JournalEntry = Cut | ClockFiring | Answers


class _JournalRecord(msgspec.Struct, array_like=True):
    version: Annotated[int, msgspec.Meta(ge=1)]
    entries: list[Cut | ClockFiring | Answers]


def ordering_of(entries: Sequence[JournalEntry]) -> tuple[Cut | ClockFiring, ...]:
    """Return the entries that determine the order of records."""
    return tuple(e for e in entries if not isinstance(e, Answers))


def answers_of(entries: Sequence[JournalEntry]) -> tuple[Answers, ...]:
    """Return the entries with answers to external calls."""
    return tuple(e for e in entries if isinstance(e, Answers))


def encode(entries: Sequence[JournalEntry]) -> bytes:
    """Encode the entries of one commit as a record's value."""
    return msgspec.json.encode(_JournalRecord(VERSION, list(entries)))


def encode_all(entries: Sequence[JournalEntry], max_bytes: int) -> list[bytes]:
    """Encode the entries of one commit as the values of as few records as the limit allows. Answers that do not fit one
    record are split; the log refuses a single answer over the limit."""
    values = [encode(entries)]
    if len(values[0]) <= max_bytes or (len(entries) == 1 and not _splits(entries[0])):
        return values
    if len(entries) > 1:
        half = len(entries) // 2
        return encode_all(entries[:half], max_bytes) + encode_all(entries[half:], max_bytes)
    entry = entries[0]
    assert isinstance(entry, Answers)
    half = len(entry.values) // 2
    parts = (entry.values[:half], entry.values[half:])
    return [v for p in parts for v in encode_all([Answers(entry.offsets, entry.operator, p)], max_bytes)]


def _splits(entry: JournalEntry) -> bool:
    return isinstance(entry, Answers) and len(entry.values) > 1


def decode(data: bytes) -> list[JournalEntry]:
    """Decode the entries of a record. Raises ``StateCorruptedError``, or ``IncompatibleError`` for a newer version."""
    try:
        version = msgspec.json.decode(data, type=list[msgspec.Raw])[0]
        if int(bytes(version)) > VERSION:
            raise IncompatibleError(
                f"journal record of version {bytes(version).decode()}; this release reads up to {VERSION}: upgrade it"
            )
        return list(msgspec.json.decode(data, type=_JournalRecord).entries)
    except (msgspec.MsgspecError, IndexError, ValueError, RecursionError) as exc:
        raise StateCorruptedError(
            f"journal record {data!r:.120} cannot be read ({exc}); the journal topic was written to by something else"
        ) from exc
