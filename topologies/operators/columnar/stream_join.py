"""The join of two streams on columns: all records of a batch, of both sides, at once.

The partners of each record are those that ``StreamStreamJoin`` finds record by record: the other side's entries in the
store, and those of the batch that arrived before it. Entries are sorted by key and time, so that a record's partners are one
range of them. What an outer join emits without a partner is found from these pairs (``unmatched``). Nothing is written and
nothing counted before everything is known.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from penstock.state.serdes.serde import Serde
from penstock.state.stores.segmented_store import DistinctKeys, SegmentedState
from penstock.topologies.columnar.encoded_columns import EncodedColumn
from penstock.topologies.columnar.kernels import Coder
from penstock.topologies.columnar.text_columns import TextPool, null_behind_texts
from penstock.topologies.operator_api.batch import Batch, ColumnBatch
from penstock.topologies.operator_api.columns import BytesColumn, Column, Ints, Mask, Places, joined
from penstock.topologies.operators.columnar.join_records import (
    FAR,
    NO_PAIRS,
    BufferedEntries,
    EventTime,
    FoundPairs,
    JoinBounds,
    JoinRecords,
    Keyless,
    RecordsOfSides,
    SideRecords,
    headers_at,
    late_in_order,
    texts_of,
)
from penstock.topologies.operators.columnar.pairs import (
    SIDES,
    Result,
    condition_of,
    fields_read,
    result_of,
    still_means,
)
from penstock.topologies.operators.columnar.side_values import PairsOfPools, Pool, SideValues
from penstock.topologies.operators.columnar.unmatched import NO_TICKS, Alone, Ticks, TimerChanges, timer_keys
from penstock.topologies.operators.columnar.waiting_records import Due, PoolPlaces, WaitingRecords, WaitingTimers

PAIRS_MAX = 1 << 20
"""More partners in time at once take too much memory: then the join goes record by record."""

Appends = tuple[DistinctKeys, Places, Ints, tuple[Any, Any], Mask | None]
"""Distinct keys; each record's key, as a number, its time and its value; which of the records are expired on arrival."""


@dataclasses.dataclass
class JoinedBatch:
    """The result of joining a batch. ``appends``: to the buffer of each side."""

    out: Batch | None
    late: Batch | None
    dropped: dict[str, int]
    appends: list[Appends | None]
    stream_time_ms: int
    timers: TimerChanges | None = None

    def timer_changes(self, sequences: Sequence[Any]) -> list[tuple[bytes, bool]]:
        """The changes of the timers of records that wait, in order. ``sequences``: the numbers of what was appended, by
        side."""
        assert self.timers is not None
        made: list[list[bytes]] = []
        for port, new in enumerate(self.timers.new):
            appended = self.appends[port]
            if appended is None or not len(new.records):
                made.append([])
                continue
            keys, numbers, times, _, _ = appended
            listed = list(map(keys.listed.__getitem__, numbers[new.records].tolist()))
            made.append(timer_keys(port, new.due, times[new.records], listed, sequences[port][new.records]))
        return self.timers.in_order(made)


class _Results(NamedTuple):
    """Joined records, and the places of those that made them; -1: time did."""

    batch: ColumnBatch
    ranks: Places


class OverdueRecords(NamedTuple):
    """Records that time alone makes due. ``gone``: how many of them their buffer had lost; ``timers``: of all."""

    out: Batch | None
    gone: int
    timers: list[bytes]


class StreamJoinColumns:
    """The running form. ``timers``: of records that wait for a partner."""

    def __init__(
        self,
        bounds: JoinBounds,
        condition: Any,
        joiner: Any,
        buffers: tuple[SegmentedState, SegmentedState],
        key_serde: Serde[Any],
        value_serdes: tuple[Serde[Any], Serde[Any]],
        timers: WaitingTimers | None = None,
    ) -> None:
        self._bounds = bounds
        self._functions = condition, joiner
        self._condition = None if condition is None else condition_of(condition)
        self._result: Result = result_of(joiner)
        self._buffers = buffers
        self._key_serde = key_serde
        self._values = (SideValues(value_serdes[0]), SideValues(value_serdes[1]))
        self._records = RecordsOfSides(bounds, key_serde, self._values)
        self._waiting = None if bounds.kept is None else WaitingRecords(bounds.kept, buffers, timers)
        self._read = [fields_read(condition, side) | fields_read(joiner, side) for side in SIDES]

    def join(self, batches: Sequence[tuple[int, Batch]], time: EventTime) -> JoinedBatch | None:
        """Join the records of in ports, each at most once. ``None``: row by row; nothing was done."""
        if not still_means(*self._functions):
            return None
        records = self._records.of(batches, time, (self._buffers[0].floor_ms, self._buffers[1].floor_ms))
        if records is None:
            return None
        now = records.now
        ticks = NO_TICKS if self._waiting is None else time.ticks(now, records.orders)
        due = None if self._waiting is None else self._waiting.due(ticks.until_ms)
        found = self._joined(records, ticks, due)
        if isinstance(found, str):
            return None
        results, timers = found
        if results is not None and any(batch.headers is not None and any(batch.headers) for _, batch in batches):
            results.batch.headers = headers_at(batches, records.ranks, results.ranks)
        appends = [None if s is None else self._appends(port, s, now) for port, s in enumerate(records.sides)]
        latest = time.stream_time_ms if time.by_place_ms is not None or not len(now) else int(now[-1])
        out = None if results is None else results.batch
        return JoinedBatch(out, late_in_order(records.late), records.dropped, appends, latest, timers)

    def overdue(self, until_ms: int, order: int) -> OverdueRecords | None:
        """Emit, at this order, the records that are due up to then. ``None``: row by row."""
        due = None if self._waiting is None else self._waiting.due(until_ms)
        if self._waiting is None or due is None:
            return OverdueRecords(None, 0, [])
        if not still_means(*self._functions):
            return None
        pools: list[Pool] = []
        for port in (0, 1):
            pool = self._pool(port, texts_of([]), due.values[port], [])
            if pool is None:
                return None
            pools.append(pool)
        index: dict[bytes, int] = {}
        count = len(due.places)
        fired = self._waiting.fired(due, np.zeros(count, np.intp), np.arange(count), index, [0, 0])
        alone = fired.in_order(Ticks.one(order), list(index))
        results = self._results(NO_PAIRS, [alone], index, pools)
        if isinstance(results, str):
            return None
        gone = int((due.places < 0).sum())
        return OverdueRecords(None if results is None else results.batch, gone, due.timers.keys)

    def _appends(self, port: int, side: SideRecords, now: Ints) -> Appends:
        floors = now[side.ranks] - self._bounds.keep_ms[port] if len(now) else None
        expired = None if floors is None else side.times < floors
        texts = (side.texts.data, side.texts.offsets)
        return side.keys, side.numbers, side.times, texts, expired if expired is not None and expired.any() else None

    # -- partners ------------------------------------------------------------------------------------------------

    def _joined(
        self, records: JoinRecords, ticks: Ticks, due: Due | None
    ) -> tuple[_Results | None, TimerChanges | None] | str:
        """The results, and what becomes of waiting records; a text: row by row."""
        sides, numbers = records.sides, records.numbers
        stored = [self._stored(port, sides[1 - port], numbers[1 - port]) for port in (0, 1)]
        found: list[tuple[Places, Places]] = []
        for port in (0, 1):
            partners = self._partners(port, sides, numbers, stored[1 - port], records.now)
            if partners is None:
                return "too many pairs"
            found.append(partners)
        pools: list[Pool] = []
        entries: list[Places] = []
        places: list[PoolPlaces] = []
        for port in (0, 1):
            waiting = texts_of([]) if due is None else due.values[port]
            used, codes = _used(stored[port], found[1 - port][1], len(waiting))
            of_port = stored[port].found
            texts = texts_of([] if of_port is None or not len(used) else of_port.values_at(used))
            side = sides[port]
            pool = self._pool(port, texts, waiting, [side, records.keyless[port]])
            if pool is None:
                return "a value cannot be read"
            behind = len(used) + len(waiting)
            places.append(PoolPlaces(len(used), behind, behind + (0 if side is None else len(side.times))))
            pools.append(pool)
            entries.append(codes)
        pairs = self._pairs(records, stored, found, pools, entries, places)
        if isinstance(pairs, str):
            return pairs
        alone: list[Alone] = []
        timers = None
        if self._waiting is not None:
            alone, timers = self._waiting.unmatched(records, stored, pairs, ticks, due, places)
        results = self._results(pairs, alone, records.index, pools)
        return results if isinstance(results, str) else (results, timers)

    def _stored(self, port: int, others: SideRecords | None, numbers: Places) -> BufferedEntries:
        """The buffered entries of a side that may be partners of the other side's records."""
        if others is None or not len(others.times):
            return BufferedEntries(None, np.empty(0, np.intp), np.empty(0, np.int64))
        before_ms, after_ms = self._bounds.around(1 - port)
        low, high = int(others.times.min()) - before_ms, int(others.times.max()) + after_ms
        found = self._buffers[port].within(others.keys, max(low, 0), high)
        firsts = np.empty(len(others.keys.listed), np.intp)
        firsts[others.numbers] = numbers
        return BufferedEntries(found, np.repeat(firsts, found.counts), found.times)

    def _partners(
        self, port: int, sides: list[SideRecords | None], numbers: list[Places], stored: BufferedEntries, now: Ints
    ) -> tuple[Places, Places] | None:
        """Pairs of a record of a side and an entry of the other one, whose stored ones come first. ``None``: too many."""
        side, other = sides[port], sides[1 - port]
        nothing = np.empty(0, np.intp), np.empty(0, np.intp)
        if side is None or not len(side.times):
            return nothing
        of_entries, times = stored.numbers, stored.times
        ranks = np.full(len(times), -1, np.intp)
        if other is not None:
            of_entries = np.concatenate([of_entries, numbers[1 - port]])
            times, ranks = np.concatenate([times, other.times]), np.concatenate([ranks, other.ranks])
        if not len(times):
            return nothing
        first = int(times.min())
        span = int(times.max()) - first + 2
        if span * (int(max(of_entries.max(), numbers[port].max())) + 2) >= FAR:
            return None
        by_time = np.lexsort((times, of_entries))
        placed = (of_entries * span + (times - first))[by_time]
        before_ms, after_ms = self._bounds.around(port)
        low, high = side.times - before_ms, side.times + after_ms
        if len(now):
            low = np.maximum(low, now[side.ranks] - self._bounds.keep_ms[1 - port])
        base = numbers[port] * span
        starts = np.searchsorted(placed, base + np.clip(low - first, 0, span - 1))
        ends = np.searchsorted(placed, base + np.clip(high - first + 1, 0, span - 1))
        counts = np.maximum(ends - starts, 0)
        whole = int(counts.sum())
        if whole > PAIRS_MAX:
            return None
        records = np.repeat(np.arange(len(counts)), counts)
        entries = by_time[np.arange(whole) + np.repeat(starts - (np.cumsum(counts) - counts), counts)]
        earlier = ranks[entries] < side.ranks[records]
        return records[earlier], entries[earlier]

    def _pool(
        self, port: int, stored: BytesColumn, waiting: BytesColumn, others: Sequence[SideRecords | Keyless | None]
    ) -> Pool | None:
        """The values of stored entries, those of waiting records, and behind them those of the batch."""
        values = self._values[port]
        written = values.written(_both(stored, waiting))
        if written is None:
            return None
        texts, objects = written
        for other in others:
            if other is not None and len(other.texts):
                if objects is not None or not len(texts):
                    objects = None if other.objects is None else [*(objects or []), *other.objects]
                texts = _both(texts, other.texts)
        pool = values.pool(texts, objects)
        if isinstance(pool, TextPool) and self._read[port] and len(pool) and not pool.read(self._read[port]):
            return None
        return pool

    def _pairs(
        self,
        of: JoinRecords,
        stored: list[BufferedEntries],
        found: list[tuple[Places, Places]],
        pools: list[Pool],
        entries: list[Places],
        places_in: list[PoolPlaces],
    ) -> FoundPairs | str:
        """The pairs for which the condition is true; ``entries[port]`` are the partners, by their places in the pool, of the
        other side's."""
        sides, numbers = of.sides, of.numbers
        codes: list[list[Places]] = [[], []]
        parts: list[tuple[Any, ...]] = []
        for port in (0, 1):
            side, (records, partners) = sides[port], found[port]
            if side is None or not len(records):
                continue
            other = sides[1 - port]
            behind = stored[1 - port].times
            times = behind if other is None else np.concatenate([behind, other.times])
            codes[port].append(records + places_in[port].records)
            codes[1 - port].append(entries[1 - port])
            own, theirs = side.times[records], times[partners]
            parts.append((side.ranks[records], own if port == 0 else theirs, theirs if port == 0 else own,
                          side.orders[records], numbers[port][records], np.full(len(records), port, np.intp),
                          records, partners))  # fmt: skip
        if not parts:
            return NO_PAIRS
        whole = [np.concatenate(part) for part in zip(*parts, strict=True)]
        places = np.argsort(whole[0], kind="stable")
        left, right = (np.concatenate(of_side)[places] for of_side in codes)
        pairs = FoundPairs((left, right), *(part[places] for part in whole))
        if self._condition is None:
            return pairs
        like = ColumnBatch([], [], pairs.rights, pairs.orders)
        mask = self._condition(PairsOfPools(pools, [left, right]), like)
        if mask is None:
            return "the condition fails"
        return pairs if mask.all() else pairs.where(mask)

    # -- results -------------------------------------------------------------------------------------------------

    def _results(
        self, pairs: FoundPairs, alone: list[Alone], index: dict[bytes, int], pools: list[Pool]
    ) -> _Results | str | None:
        """The joined records, and those that are emitted without a partner; ``None``: none."""
        wanted = self._bounds.result_time
        times = np.maximum(pairs.lefts, pairs.rights)
        if wanted != "latest":
            times = pairs.lefts if wanted == "left" else pairs.rights
        parts = [(pairs.ranks, times, pairs.orders, pairs.numbers, *pairs.codes, pairs.ranks)]
        if alone:
            others = [
                (some.ranks, some.times, some.orders, some.numbers, np.where(some.ports == 0, some.codes, -1),
                 np.where(some.ports == 1, some.codes, -1), np.full(len(some.ranks), -1) if some.by_time else some.ranks)
                for some in alone
            ]  # fmt: skip
            parts = [*others, *parts]
        columns = [np.concatenate(part) for part in zip(*parts, strict=True)] if len(parts) > 1 else list(parts[0])
        if len(parts) > 1:
            places = np.argsort(columns[0], kind="stable")
            columns = [column[places] for column in columns]
        _, times, orders, numbers, lefts, rights, ranks = columns
        if not len(orders):
            return None
        values = self._result(PairsOfPools(pools, [lefts, rights]), ColumnBatch([], [], times, orders))
        if values is None:
            return "the joiner fails"
        return _Results(ColumnBatch(self._keys(index, numbers), values, times, orders), ranks)

    def _keys(self, index: dict[bytes, int], numbers: Places) -> Column:
        keys = BytesColumn.of(list(index))
        if (numbers >= 0).all():
            return EncodedColumn.of_codes(numbers.astype(np.int32), keys, self._key_serde, Coder())
        longer = null_behind_texts(keys)
        return EncodedColumn(longer.take(np.where(numbers < 0, len(keys), numbers)), self._key_serde, Coder())


def _used(stored: BufferedEntries, partners: Places, between: int) -> tuple[Places, Places]:
    """The places of stored entries that are partners, and the partners by their places among these and the records of the
    batch, with ``between`` others between them."""
    count = len(stored.times)
    used = np.zeros(count, np.bool_)
    used[partners[partners < count]] = True
    renumbered = np.cumsum(used) - 1
    kept = int(used.sum())
    codes = partners - (count - kept - between)
    of_stored = partners < count
    codes[of_stored] = renumbered[partners[of_stored]]
    return np.flatnonzero(used), codes


def _both(one: BytesColumn, other: BytesColumn) -> BytesColumn:
    if not len(one) or not len(other):
        return one if len(one) else other
    whole = joined([one, other])
    assert isinstance(whole, BytesColumn)
    return whole
