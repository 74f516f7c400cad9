"""The records of a batch that a join of two streams emits without a partner, and the timers of those that wait for one.

A record waits from its arrival until its first partner comes, or until it is due: then it is emitted, before anything that
the record which advanced time causes. All of that follows from three places in the batch: where a record arrives, where
its first partner does, and where time passes its due time. So it is found for all records at once.

A timer's key: due time (8, big-endian), side (1; right before left), timestamp (8), key, sequence number (4).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from penstock.topologies.operator_api.columns import Ints, Mask, Places

SIDE_BYTE = (1, 0)
"""Right before left at equal times, as Kafka Streams orders records without a partner."""
_HEAD = np.dtype([("due", ">i8"), ("side", "u1"), ("time", ">i8")])
_SEQUENCE_BYTES = 4
NEVER = np.iinfo(np.intp).max
"""Behind every place of a batch."""
LATER = 1 << 32
"""Above all sequence numbers: those of this batch come behind stored ones."""
_BEFORE, _AT, _BEHIND = range(3)
"""Kinds of changes that a record causes, in order: it takes those that are due, deletes its partners', sets its own."""


class UnmatchedSides(NamedTuple):
    """Which sides keep records without a partner. ``look_ms``: how far ahead of a record of each side a partner's
    timestamp may lie; ``grace_ms``: how long after that the record is due. ``waits``: not before that is it emitted."""

    sides: tuple[bool, bool]
    look_ms: tuple[int, int]
    grace_ms: int
    waits: bool


class Ticks(NamedTuple):
    """Time within a batch, in steps that never fall: what is due before a step's time is emitted before the record at
    ``ranks``, at this order."""

    times: Ints
    ranks: Places
    orders: Ints

    @classmethod
    def one(cls, order: int) -> Ticks:
        """A single step."""
        return cls(np.zeros(1, np.int64), np.zeros(1, np.intp), np.array([order]))

    @property
    def until_ms(self) -> int:
        """The last due time that is over within the batch."""
        return int(self.times[-1]) - 1 if len(self.times) else -1

    def places(self, due: Ints) -> Places:
        """The steps at which what is due then is emitted; behind the last one: not within the batch."""
        return np.searchsorted(self.times, due, "right")

    def ranks_at(self, places: Places) -> Places:
        """The ranks of steps, ``NEVER`` behind the last one."""
        return np.append(self.ranks, NEVER)[places]


NO_TICKS = Ticks(np.empty(0, np.int64), np.empty(0, np.intp), np.empty(0, np.int64))


class DueTimers(NamedTuple):
    """Timers, ascending."""

    keys: list[bytes]
    due: Ints
    ports: Places
    times: Ints
    sequences: Ints

    @classmethod
    def of(cls, keys: list[bytes]) -> DueTimers:
        """These timers by columns."""
        head = np.frombuffer(b"".join([key[: _HEAD.itemsize] for key in keys]), _HEAD)
        numbers = np.frombuffer(b"".join([key[-_SEQUENCE_BYTES:] for key in keys]), ">u4")
        ports = np.where(head["side"] == SIDE_BYTE[0], 0, 1)
        return cls(keys, head["due"].astype(np.int64), ports, head["time"].astype(np.int64), numbers.astype(np.int64))

    def record_keys(self, places: Sequence[int]) -> list[bytes]:
        """The keys of these timers' records."""
        keys, head = self.keys, _HEAD.itemsize
        return [keys[place][head:-_SEQUENCE_BYTES] for place in places]

    def names(self, places: Sequence[int]) -> list[bytes]:
        """The names of these timers' records in their buffer: key, time, sequence number."""
        keys, head, time = self.keys, _HEAD.itemsize, _HEAD.itemsize - 8
        some = [keys[place] for place in places]
        return [k[head:-_SEQUENCE_BYTES] + k[time:head] + k[-_SEQUENCE_BYTES:] for k in some]


def timer_keys(
    port: int, due: Ints, times: Ints, keys: Sequence[bytes], sequences: Ints | Sequence[bytes]
) -> list[bytes]:
    """The keys of the timers of records of a side. ``sequences``: as numbers or as bytes."""
    heads = np.empty(len(due), _HEAD)
    heads["due"], heads["side"], heads["time"] = due, SIDE_BYTE[port], times
    data = heads.tobytes()
    size = _HEAD.itemsize
    if isinstance(sequences, np.ndarray):
        numbers = sequences.astype(">u4").tobytes()
        sequences = [numbers[at : at + 4] for at in range(0, len(numbers), 4)]
    return [
        data[at : at + size] + key + number
        for at, key, number in zip(range(0, len(data), size), keys, sequences, strict=True)
    ]


class ArrivedRecords(NamedTuple):
    """Records of a side that are joined. ``numbers``: of their keys; ``codes``: their values' places in the pool."""

    ranks: Places
    times: Ints
    orders: Ints
    numbers: Places
    codes: Places


class Alone(NamedTuple):
    """Records that are emitted without a partner. ``ranks``: before, or at, which record of the batch; ``by_time``: they
    are emitted before it, because they were due, in the order here, and have no headers."""

    ranks: Places
    ports: Places
    times: Ints
    orders: Ints
    numbers: Places
    codes: Places
    by_time: bool


def at_once(port: int, records: ArrivedRecords, which: Places) -> Alone:
    """Records that are emitted on arrival."""
    ranks, times, orders, numbers, codes = (part[which] for part in records)
    return Alone(ranks, np.full(len(which), port, np.intp), times, orders, numbers, codes, by_time=False)


class Fired(NamedTuple):
    """Records that were due. ``steps``: at which ticks."""

    steps: Places
    ports: Places
    times: Ints
    numbers: Places
    codes: Places
    sequences: Ints

    def in_order(self, ticks: Ticks, keys: Sequence[bytes]) -> Alone:
        """As they are emitted: at one tick by timestamp, right side first, then by key and sequence number. ``keys``: by
        their numbers."""
        used = np.unique(self.numbers).tolist()
        by_key = np.zeros(len(keys), np.intp)
        by_key[sorted(used, key=keys.__getitem__)] = np.arange(len(used))
        sides = np.array(SIDE_BYTE)[self.ports]
        places = np.lexsort((self.sequences, by_key[self.numbers], sides, self.times, self.steps))
        steps = self.steps[places]
        ports, times, numbers, codes = (part[places] for part in (self.ports, self.times, self.numbers, self.codes))
        return Alone(ticks.ranks[steps], ports, times, ticks.orders[steps], numbers, codes, by_time=True)


class NewTimers(NamedTuple):
    """Timers to be set for records of a side, by their places among those that are appended to its buffer."""

    ranks: Places
    due: Ints
    records: Places


NO_TIMERS = NewTimers(np.empty(0, np.intp), np.empty(0, np.int64), np.empty(0, np.intp))


class TimerChanges(NamedTuple):
    """The changes of timers by a batch. ``taken`` and ``deleted``: timers, and the ranks at which; ``new``: by side."""

    taken: tuple[Places, list[bytes]]
    deleted: tuple[Places, list[bytes]]
    new: list[NewTimers]
    until_ms: int

    def in_order(self, made: Sequence[list[bytes]]) -> list[tuple[bytes, bool]]:
        """All changes in order; true: set. ``made``: the keys of the new timers, by side."""
        parts = [(*self.taken, _BEFORE), (*self.deleted, _AT)]
        parts += [(new.ranks, keys, _BEHIND) for new, keys in zip(self.new, made, strict=True)]
        keys = [key for _, some, _ in parts for key in some]
        if not keys:
            return []
        kinds = np.concatenate([np.full(len(some), kind) for _, some, kind in parts])
        ranks = np.concatenate([ranks for ranks, _, _ in parts])
        places = np.lexsort((kinds, ranks))
        are_set = (kinds == _BEHIND)[places].tolist()
        return list(zip(map(keys.__getitem__, places.tolist()), are_set, strict=True))


def first_ranks(count: int, records: Places, ranks: Places) -> Places:
    """For each of ``count`` records the first rank at which it is named; ``NEVER``: at none. Ranks never fall."""
    first = np.full(count, NEVER, np.intp)
    first[records[::-1]] = ranks[::-1]
    return first


def split_waiting(
    kept: UnmatchedSides, port: int, records: ArrivedRecords, joined: Mask, now: Ints, ticks: Ticks, met: Places
) -> tuple[Places, Places, Places, NewTimers]:
    """Split the records of a side: those that are emitted on arrival, those that are due within the batch, the steps at
    which, and the timers of those that wait longer. ``joined``: which found a partner on arrival; ``met``: at which rank a
    first partner came later; ``now``: stream time, empty on watermarks."""
    alone = np.flatnonzero(~joined)
    if not kept.waits:
        return alone, alone[:0], alone[:0], NO_TIMERS
    last = records.times[alone] + kept.look_ms[port]
    over = last < now[records.ranks[alone]] if len(now) else np.zeros(len(alone), np.bool_)
    waiting, due = alone[~over], last[~over] + kept.grace_ms
    steps = ticks.places(due)
    fires = (steps < len(ticks.times)) & (ticks.ranks_at(steps) <= met[waiting])
    longer = ~fires & (met[waiting] == NEVER)
    new = NewTimers(records.ranks[waiting[longer]], due[longer], waiting[longer])
    return alone[over], waiting[fires], steps[fires], new
