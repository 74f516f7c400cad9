"""The journal: what a task's live order depended on beside the log itself.

One record per commit at most, in the same transaction as the commit, on the journal topic's partition of the task. Its
entries stand in the order in which they happened:

* ``Cut``: the offsets consumed so far, at a point where the live order left the rule of the feed. The sequence is the
  merges of the ranges between cuts, one after the other.
* ``ClockFiring``: the same vector, and the clock readings between which wall-clock timers fired there.

A task with one input and no wall-clock timer has no journal. Encoding: JSON, versioned.
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


Entry = Cut | ClockFiring


class _JournalRecord(msgspec.Struct, array_like=True):
    version: Annotated[int, msgspec.Meta(ge=1)]
    entries: list[Cut | ClockFiring]


def encode(entries: Sequence[Entry]) -> bytes:
    """The entries of one commit as a record's value."""
    return msgspec.json.encode(_JournalRecord(VERSION, list(entries)))


def decode(data: bytes) -> list[Entry]:
    """The entries of a record. Raises ``StateCorruptedError``, or ``IncompatibleError`` for a newer version."""
    try:
        version = msgspec.json.decode(data, type=list[msgspec.Raw])[0]
        if int(bytes(version)) > VERSION:
            raise IncompatibleError(
                f"journal record of version {bytes(version).decode()}; this release reads up to {VERSION}: upgrade it"
            )
        return list(msgspec.json.decode(data, type=_JournalRecord).entries)
    except (msgspec.MsgspecError, IndexError, ValueError) as exc:
        raise StateCorruptedError(
            f"journal record {data!r:.120} cannot be read ({exc}); the journal topic was written to by something else"
        ) from exc
