"""The records of a batch that two streams are joined of: who takes part, in which order, at which time."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from penstock.state.log import Headers
from penstock.state.serdes.serde import Serde
from penstock.state.stores.segmented_store import DistinctKeys, FoundEntries
from penstock.topologies.columnar.column_parts import keyed, nulls_of
from penstock.topologies.columnar.encoded_columns import EncodedColumn
from penstock.topologies.operator_api.batch import Batch, concat
from penstock.topologies.operator_api.columns import BytesColumn, CodedColumn, Column, Ints, Mask, Places
from penstock.topologies.operators.columnar.side_values import SideValues
from penstock.topologies.operators.columnar.unmatched import ArrivedRecords, Ticks, UnmatchedSides

FAR = 1 << 62
"""Times from then on are not added to."""


class JoinBounds(NamedTuple):
    """A join's window. ``keep_ms``: for how long each side's buffer keeps a record behind stream time. ``kept``: ``None``:
    an inner join."""

    before_ms: int
    after_ms: int
    keep_ms: tuple[int, int]
    result_time: str
    kept: UnmatchedSides | None = None

    def around(self, port: int) -> tuple[int, int]:
        """How far before, and after, a record of a side its partners may lie."""
        return (self.before_ms, self.after_ms) if port == 0 else (self.after_ms, self.before_ms)


class EventTime(NamedTuple):
    """Time before a batch. ``watermark_ms``: by place, the watermark after the records so far; ``None``: the join runs on
    stream time. ``slot``: where what a watermark causes stands in the order of its place."""

    stream_time_ms: int
    watermark_ms: int
    by_place_ms: list[int] | None
    stride: int
    slot: int

    def before(self, orders: Ints) -> Ints | None:
        """The watermark before each record."""
        if self.by_place_ms is None:
            return None
        marks = np.array([self.watermark_ms, *self.by_place_ms], np.int64)
        return np.maximum(marks[orders // self.stride], self.watermark_ms)

    def ticks(self, now: Ints, orders: Ints) -> Ticks:
        """The steps of time within a batch, up to its last record. ``now``: stream time at each record; ``orders``: theirs,
        ascending."""
        if self.by_place_ms is None:
            return Ticks(now, np.arange(len(now)), orders)
        places = orders // self.stride
        marks = np.array(self.by_place_ms[: int(places[-1])], np.int64)
        times = np.maximum(np.maximum.accumulate(marks), self.watermark_ms)
        steps = np.arange(len(times))
        return Ticks(times, np.searchsorted(places, steps, "right"), steps * self.stride + self.slot)


class SideRecords(NamedTuple):
    """The records of one side that are joined. ``ranks``: their places among all records of the batch; ``numbers``: of
    their keys."""

    batch: Batch
    ranks: Places
    times: Ints
    orders: Ints
    keys: DistinctKeys
    numbers: Places
    texts: BytesColumn
    objects: list[Any] | None

    def arrived(self, numbers: Places, first_code: int) -> ArrivedRecords:
        """These records, with the numbers of their keys among all keys; ``first_code``: where their values begin in a
        pool."""
        codes = np.arange(first_code, first_code + len(self.times))
        return ArrivedRecords(self.ranks, self.times, self.orders, numbers, codes)


class Keyless(NamedTuple):
    """Records without a key of a side that is kept."""

    ranks: Places
    times: Ints
    orders: Ints
    texts: BytesColumn
    objects: list[Any] | None

    def arrived(self, first_code: int) -> ArrivedRecords:
        """These records; ``first_code``: where their values begin in a pool."""
        codes = np.arange(first_code, first_code + len(self.times))
        return ArrivedRecords(self.ranks, self.times, self.orders, np.full(len(self.times), -1, np.intp), codes)


@dataclasses.dataclass
class JoinRecords:
    """The records of a batch, by side. ``keyless``: of the sides that are kept."""

    sides: list[SideRecords | None]
    keyless: list[Keyless | None]
    ranks: Places
    """The place of each record among all of them."""
    orders: Ints
    """The orders of all of them, ascending."""
    late: list[Batch]
    dropped: dict[str, int]
    now: Ints = dataclasses.field(default_factory=lambda: np.empty(0, np.int64))
    """Stream time at each place, the record there included; on watermarks empty."""
    index: dict[bytes, int] = dataclasses.field(default_factory=dict)
    """Numbers of keys, the same for both sides."""
    numbers: list[Places] = dataclasses.field(default_factory=list)
    """The number of each record's key, by side."""


class BufferedEntries(NamedTuple):
    """Entries of a buffer that records of a batch may meet. ``found``: ``None``: there are none."""

    found: FoundEntries | None
    numbers: Places
    times: Ints


class FoundPairs(NamedTuple):
    """Pairs, in the order of the results. ``codes``: of the values in the pools, by side; ``ports``: which side's record
    came later; ``records``: that, by its place among those of its side; ``partners``: the other, by its place among the
    stored entries and the records behind them."""

    codes: tuple[Places, Places]
    ranks: Places
    lefts: Ints
    rights: Ints
    orders: Ints
    numbers: Places
    ports: Places
    records: Places
    partners: Places

    def where(self, mask: Mask) -> FoundPairs:
        """Those pairs."""
        codes, *parts = self
        return FoundPairs((codes[0][mask], codes[1][mask]), *(part[mask] for part in parts))


NO_PAIRS = FoundPairs((np.empty(0, np.intp), np.empty(0, np.intp)), *(np.empty(0, np.intp) for _ in range(8)))


class RecordsOfSides:
    """Reads the records of batches. ``values``: the sides' serdes."""

    def __init__(self, bounds: JoinBounds, key_serde: Serde[Any], values: tuple[SideValues, SideValues]) -> None:
        self._bounds = bounds
        self._key_serde = key_serde
        self._values = values

    def of(
        self, batches: Sequence[tuple[int, Batch]], time: EventTime, floors_ms: tuple[int, int]
    ) -> JoinRecords | None:
        """The records of in ports. ``floors_ms``: below these times the buffers have no entries. ``None``: row by row."""
        if len({port for port, _ in batches}) < len(batches):
            return None
        orders = np.concatenate([batch.orders for _, batch in batches])
        by_order = np.argsort(orders, kind="stable")
        ranks = np.empty(len(orders), np.intp)
        ranks[by_order] = np.arange(len(orders))
        records = JoinRecords([None, None], [None, None], ranks, orders[by_order], [], {})
        at = 0
        for port, batch in batches:
            if not self._add_side(records, port, batch, ranks[at : at + len(batch)], time, floors_ms[port]):
                return None
            at += len(batch)
        records.index, records.numbers = _common_keys(records.sides)
        records.now = _stream_time(records.sides, time, len(orders))
        return records

    def _add_side(
        self, to: JoinRecords, port: int, batch: Batch, ranks: Places, time: EventTime, floor_ms: int
    ) -> bool:
        """Add the records that are joined, and count what is dropped. ``False``: by rows."""
        keys, raw = self._key_column(batch), self._values[port].raw(batch)
        times, orders = batch.times, batch.orders
        if keys is None or raw is None or batch.olds is not None:
            return False
        left: Mask = np.ones(len(batch), np.bool_)
        marks = time.before(orders)
        if marks is not None and (too_late := times < marks).any():
            to.late.append(batch.where(too_late))
            to.dropped["late"] = to.dropped.get("late", 0) + int(too_late.sum())
            left = ~too_late
        for reason, nulls in (("null_value", raw.nulls), ("null_key", nulls_of(keys))):
            if nulls is not None and (absent := nulls & left).any():
                left = left & ~absent
                if reason == "null_key" and self._bounds.kept is not None and self._bounds.kept.sides[port]:
                    places = np.flatnonzero(absent)
                    found = self._values[port].written(_without_nulls(raw.take(places)))
                    if found is None:
                        return False
                    to.keyless[port] = Keyless(ranks[places], times[places], orders[places], *found)
                else:
                    to.dropped[reason] = to.dropped.get(reason, 0) + int(absent.sum())
        places = np.flatnonzero(left)
        if len(places) < len(batch):
            keys, raw, ranks = keys.take(places), raw.take(places), ranks[places]
            times, orders = times[places], orders[places]
        lowest_ms = 0 if marks is None else max(0, floor_ms)
        if len(times) and (int(times.min()) < lowest_ms or int(times.max()) >= FAR):
            return False
        keyed_rows = keyed(keys, self._key_serde)
        written = self._values[port].written(BytesColumn(raw.data, raw.offsets))
        if keyed_rows is None or written is None:
            return False
        listed = keyed_rows.store_keys
        packed = BytesColumn.of(listed)
        distinct = DistinctKeys(listed, (packed.data, packed.offsets))
        to.sides[port] = SideRecords(batch, ranks, times, orders, distinct, keyed_rows.groups.numbers, *written)
        return True

    def _key_column(self, batch: Batch) -> Column | None:
        """Keys that are what their bytes decode to."""
        serde, column = self._key_serde, batch.key_column
        if isinstance(column, EncodedColumn):
            return column if column.serde == serde else None
        if column is not None:
            return None
        keys = batch.keys
        return CodedColumn.of(keys) if {type(k) for k in keys} <= {serde.exact, type(None)} else None


def _stream_time(sides: list[SideRecords | None], time: EventTime, records: int) -> Ints:
    """Stream time at each place of the batch, the record there included; on watermarks an empty array."""
    if time.by_place_ms is not None:
        return np.empty(0, np.int64)
    now = np.full(records, time.stream_time_ms, np.int64)
    for side in sides:
        if side is not None:
            now[side.ranks] = np.maximum(now[side.ranks], side.times)
    return np.maximum.accumulate(now)


def _common_keys(sides: list[SideRecords | None]) -> tuple[dict[bytes, int], list[Places]]:
    """Keys by number, the same for both sides, and the number of each record's."""
    index: dict[bytes, int] = {}
    out: list[Places] = []
    for side in sides:
        if side is None:
            out.append(np.empty(0, np.intp))
            continue
        of_keys = [index.setdefault(key, len(index)) for key in side.keys.listed]
        out.append(np.array(of_keys, np.intp)[side.numbers])
    return index, out


def headers_at(batches: Sequence[tuple[int, Batch]], ranks: Places, wanted: Places) -> list[Headers] | None:
    """The headers of the records at these places."""
    listed: list[Headers] = [()] * len(ranks)
    every = (h for _, batch in batches for h in ([()] * len(batch) if batch.headers is None else batch.headers))
    for rank, headers in zip(ranks.tolist(), every, strict=True):
        listed[rank] = headers
    found = [() if rank < 0 else listed[rank] for rank in wanted.tolist()]
    return found if any(found) else None


def texts_of(stored: tuple[Any, Any] | list[bytes]) -> BytesColumn:
    """Stored values as a column."""
    return BytesColumn.of(stored) if isinstance(stored, list) else BytesColumn(*stored)


def _without_nulls(column: BytesColumn) -> BytesColumn:
    """A column of which no value is null."""
    return BytesColumn(column.data, column.offsets)


def late_in_order(late: list[Batch]) -> Batch | None:
    """The records of both sides in the order of the task, as lists."""
    if not late:
        return None
    whole = concat([batch.listed() for batch in late])
    return whole.pick(np.argsort(whole.orders, kind="stable"))
