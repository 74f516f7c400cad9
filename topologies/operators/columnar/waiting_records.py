"""The records of joined streams that wait for a partner, batch by batch: which are due, which have met one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from penstock.state.stores.segmented_store import SegmentedState
from penstock.topologies.operator_api.columns import BytesColumn, Places
from penstock.topologies.operators.columnar.join_records import BufferedEntries, FoundPairs, JoinRecords, texts_of
from penstock.topologies.operators.columnar.unmatched import (
    LATER,
    NEVER,
    NO_TIMERS,
    Alone,
    DueTimers,
    Fired,
    Ticks,
    TimerChanges,
    UnmatchedSides,
    at_once,
    first_ranks,
    split_waiting,
    timer_keys,
)


class WaitingTimers(Protocol):
    """The timers of waiting records."""

    def upcoming(self, until_ms: int) -> list[bytes]:
        """Those up to and including a time, ascending."""

    def there(self, keys: Sequence[bytes]) -> list[bytes]:
        """Those of these timers that are set."""


class Due(NamedTuple):
    """Timers that are due, and of each the place of its record's value among those of its side that were found; -1: it is
    gone. ``values``: these, by side."""

    timers: DueTimers
    places: Places
    values: tuple[BytesColumn, BytesColumn]


class PoolPlaces(NamedTuple):
    """Where in a side's pool the values of waiting records begin, those of the batch, and those of its records without a
    key."""

    waiting: int
    records: int
    keyless: int


class WaitingRecords:
    """See the module. ``timers``: ``None``: no record waits, those that find no partner are emitted at once."""

    def __init__(
        self, kept: UnmatchedSides, buffers: tuple[SegmentedState, SegmentedState], timers: WaitingTimers | None
    ) -> None:
        self._kept = kept
        self._buffers = buffers
        self._timers = timers

    def due(self, until_ms: int) -> Due | None:
        """The records that are due up to then; ``None``: there are none."""
        if self._timers is None or not (keys := self._timers.upcoming(until_ms)):
            return None
        timers = DueTimers.of(keys)
        places = np.full(len(keys), -1, np.intp)
        values: list[BytesColumn] = []
        for port, buffer in enumerate(self._buffers):
            of_side = np.flatnonzero(timers.ports == port)
            found, absent = buffer.values_named(timers.names(of_side.tolist())) if len(of_side) else ([], None)
            column = texts_of(found)
            if absent is not None:
                of_side, column = of_side[~absent], column.take(np.flatnonzero(~absent))
                column = BytesColumn(column.data, column.offsets)
            values.append(column)
            places[of_side] = np.arange(len(of_side))
        return Due(timers, places, (values[0], values[1]))

    def unmatched(
        self,
        records: JoinRecords,
        stored: list[BufferedEntries],
        pairs: FoundPairs,
        ticks: Ticks,
        due: Due | None,
        pools: list[PoolPlaces],
    ) -> tuple[list[Alone], TimerChanges | None]:
        """Find what is emitted without a partner, and what becomes of timers. Counts those whose records are gone."""
        fired: list[Fired] = []
        alone: list[Alone] = []
        new = [NO_TIMERS, NO_TIMERS]
        met: dict[bytes, int] = {}
        for port in (port for port in (0, 1) if self._kept.sides[port]):
            if (keyless := records.keyless[port]) is not None:
                alone.append(at_once(port, keyless.arrived(pools[port].keyless), np.arange(len(keyless.ranks))))
            later = pairs.ports != port
            side, before = records.sides[port], len(stored[port].times)
            own = 0 if side is None else len(side.times)
            first = first_ranks(before + own, pairs.partners[later], pairs.ranks[later])
            if self._timers is not None:
                met |= self._met(port, stored[port], pairs.partners[later], first)
            if side is None:
                continue
            arrived = side.arrived(records.numbers[port], pools[port].records)
            joined = np.zeros(own, np.bool_)
            joined[pairs.records[~later]] = True
            once, overdue, steps, new[port] = split_waiting(
                self._kept, port, arrived, joined, records.now, ticks, first[before:]
            )
            alone.append(at_once(port, arrived, once))
            ranks, times, _, numbers, codes = (part[overdue] for part in arrived)
            fired.append(Fired(steps, np.full(len(steps), port, np.intp), times, numbers, codes, ranks + LATER))
        if self._timers is None:
            return alone, None
        taken: tuple[Places, list[bytes]] = np.empty(0, np.intp), []
        if due is not None:
            steps = ticks.places(due.timers.due)
            ranks = ticks.ranks[steps]
            meets = np.fromiter((met.get(key, NEVER) for key in due.timers.keys), np.intp, len(steps))
            which = np.flatnonzero(ranks <= meets)
            fired.append(self.fired(due, steps, which, records.index, [places.waiting for places in pools]))
            if gone := int((due.places[which] < 0).sum()):
                records.dropped["expired"] = records.dropped.get("expired", 0) + gone
            taken = ranks[which], [due.timers.keys[place] for place in which.tolist()]
        if any(len(some.steps) for some in fired):
            whole = Fired(*(np.concatenate(part) for part in zip(*fired, strict=True)))
            alone.insert(0, whole.in_order(ticks, list(records.index)))
        over = set(taken[1])
        there = self._timers.there([key for key in met if key not in over])
        deleted = np.fromiter((met[key] for key in there), np.intp, len(there)), there
        return alone, TimerChanges(taken, deleted, new, ticks.until_ms)

    def _met(self, port: int, stored: BufferedEntries, partners: Places, first: Places) -> dict[bytes, int]:
        """The timers that stored records of a side have if they wait, and the ranks at which their first partners come, in
        the order of the pairs. ``partners``: those records, by pair."""
        seen, at = np.unique(partners[partners < len(stored.times)], return_index=True)
        if not len(seen):
            return {}
        assert stored.found is not None
        places = seen[np.argsort(at, kind="stable")]
        times = stored.times[places]
        due = times + self._kept.look_ms[port] + self._kept.grace_ms
        names = stored.found.names_at(places.astype(np.int64))
        keys = timer_keys(port, due, times, [name[:-12] for name in names], [name[-4:] for name in names])
        return dict(zip(keys, first[places].tolist(), strict=True))

    def fired(self, due: Due, steps: Places, which: Places, index: dict[bytes, int], firsts: list[int]) -> Fired:
        """Those of the due timers whose records are there. Numbers their keys; ``firsts``: where their values begin in the
        pools."""
        which = which[due.places[which] >= 0]
        timers = due.timers
        ports, listed = timers.ports[which], timers.record_keys(which.tolist())
        numbers = np.array([index.setdefault(key, len(index)) for key in listed], np.intp)
        codes = due.places[which] + np.array(firsts, np.intp)[ports]
        return Fired(steps[which], ports, timers.times[which], numbers, codes, timers.sequences[which])
