"""The inner join of two streams on columns: all records of a batch, of both sides, at once.

The partners of each record are those that ``StreamStreamJoin`` finds record by record: the other side's entries in the
store, and those of the batch that arrived before it. Entries are sorted by key and time, so that a record's partners are one
range of them. Nothing is written and nothing counted before everything is known.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from penstock.state.errors import SerdeError
from penstock.state.log import Headers
from penstock.state.serdes.serde import Serde
from penstock.state.stores.segmented_store import DistinctKeys, FoundEntries, SegmentedState
from penstock.topologies.columnar.column_parts import keyed, nulls_of
from penstock.topologies.columnar.encoded_columns import SAME_BYTES, EncodedColumn, ParsedColumn
from penstock.topologies.columnar.kernels import Coder
from penstock.topologies.columnar.text_columns import FieldReaders, TextColumn, TextPool
from penstock.topologies.operator_api.batch import Batch, ColumnBatch, concat
from penstock.topologies.operator_api.columns import BytesColumn, CodedColumn, Column, Ints, Mask, Places, joined
from penstock.topologies.operators.columnar.pairs import SIDES, Result, condition_of, fields_read, result_of
from penstock.topologies.operators.columnar.row_texts import WrittenTexts, written_texts
from penstock.topologies.operators.columnar.source import json_decoder

PAIRS_MAX = 1 << 20
"""More partners in time at once take too much memory: then the join goes record by record."""
_FAR = 1 << 62


class JoinBounds(NamedTuple):
    """A join's window. ``keep_ms``: for how long each side's buffer keeps a record behind stream time."""

    before_ms: int
    after_ms: int
    keep_ms: tuple[int, int]
    result_time: str

    def around(self, port: int) -> tuple[int, int]:
        """How far before, and after, a record of a side its partners may lie."""
        return (self.before_ms, self.after_ms) if port == 0 else (self.after_ms, self.before_ms)


class EventTime(NamedTuple):
    """Time before a batch. ``watermark_ms``: by place, the watermark after the records so far; ``None``: the join runs on
    stream time."""

    stream_time_ms: int
    watermark_ms: int
    by_place_ms: list[int] | None
    stride: int

    def before(self, orders: Ints) -> Ints | None:
        """The watermark before each record."""
        if self.by_place_ms is None:
            return None
        marks = np.array([self.watermark_ms, *self.by_place_ms], np.int64)
        return np.maximum(marks[orders // self.stride], self.watermark_ms)


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


class _Side(NamedTuple):
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


class _Results(NamedTuple):
    """Joined records, and the places of those that made them."""

    batch: ColumnBatch
    ranks: Places


class _Stored(NamedTuple):
    """Entries of a buffer that records of a batch may meet. ``found``: ``None``: there are none."""

    found: FoundEntries | None
    numbers: Places
    times: Ints


class _SideValues:
    """Reads and writes the values of one side. ``None``: by rows."""

    def __init__(self, serde: Serde[Any]) -> None:
        self._serde = serde
        decoder = None if serde in SAME_BYTES else json_decoder(serde)
        self._readers = None if decoder is None else FieldReaders(serde, decoder)
        self._written: WrittenTexts | None = None if decoder is None else written_texts(serde)

    def raw(self, batch: Batch) -> BytesColumn | None:
        """The values of a batch as bytes that the serde reads."""
        column = batch.value_column
        if column is None:
            return self._listed(batch.values)
        known = EncodedColumn if self._readers is None else ParsedColumn
        return column.raw if isinstance(column, known) and column.serde == self._serde else None

    def _listed(self, values: list[Any]) -> BytesColumn | None:
        if self._readers is None and not {type(v) for v in values} <= {self._serde.exact, type(None)}:
            return None
        try:
            return BytesColumn.of(self._serde.serialize_all(values))
        except SerdeError:  # raised again at its record
            return None

    def written(self, raw: BytesColumn) -> tuple[BytesColumn, list[Any] | None] | None:
        """As the serde writes them; and the values, where they were read for it."""
        if self._readers is None or not len(raw):
            return raw, None
        if self._written is not None:
            texts = self._written.of(raw)
            return None if texts is None else (texts, None)
        try:
            objects = list(map(self._serde.deserialize, raw.to_list()))  # type: ignore[arg-type]  # none is null
            return BytesColumn.of(self._serde.serialize_all(objects)), objects
        except Exception:  # raised again at its record
            return None

    def pool(self, texts: BytesColumn, objects: list[Any] | None) -> TextPool | EncodedColumn:
        """The values of all that may be part of a pair."""
        if self._readers is None:
            return EncodedColumn(texts, self._serde, Coder())
        return TextPool(texts, self._readers, objects)


class _Pairs:
    """Pairs of values: ``codes`` are their indices in the pools, by side."""

    def __init__(self, pools: list[TextPool | EncodedColumn], codes: list[Places]) -> None:
        self._pools = dict(zip(SIDES, pools, strict=True))
        self._codes = dict(zip(SIDES, codes, strict=True))
        self._taken: dict[tuple[str, str | None], Column | None] = {}

    def whole(self, side: str) -> Column:
        """The values of a side."""
        pool, codes = self._pools[side], self._codes[side]
        return TextColumn(pool, codes) if isinstance(pool, TextPool) else pool.take(codes)

    def field(self, side: str, name: str) -> Column | None:
        """A field of them."""
        if (side, name) not in self._taken:
            pool = self._pools[side]
            whole = pool.field(name) if isinstance(pool, TextPool) else None
            self._taken[side, name] = None if whole is None else whole.take(self._codes[side])
        return self._taken[side, name]


class StreamJoinColumns:
    """The running form."""

    def __init__(
        self,
        bounds: JoinBounds,
        condition: Any,
        joiner: Any,
        buffers: tuple[SegmentedState, SegmentedState],
        key_serde: Serde[Any],
        value_serdes: tuple[Serde[Any], Serde[Any]],
    ) -> None:
        self._bounds = bounds
        self._condition = None if condition is None else condition_of(condition)
        self._result: Result = result_of(joiner)
        self._buffers = buffers
        self._key_serde = key_serde
        self._values = (_SideValues(value_serdes[0]), _SideValues(value_serdes[1]))
        self._read = [fields_read(condition, side) | fields_read(joiner, side) for side in SIDES]

    def join(self, batches: Sequence[tuple[int, Batch]], time: EventTime) -> JoinedBatch | None:
        """Join the records of in ports, each at most once. ``None``: row by row; nothing was done."""
        if len({port for port, _ in batches}) < len(batches):
            return None
        orders = np.concatenate([batch.orders for _, batch in batches])
        ranks = np.empty(len(orders), np.intp)
        ranks[np.argsort(orders, kind="stable")] = np.arange(len(orders))
        sides: list[_Side | None] = [None, None]
        late: list[Batch] = []
        dropped: dict[str, int] = {}
        at = 0
        for port, batch in batches:
            side = self._side(port, batch, ranks[at : at + len(batch)], time, late, dropped)
            if side is None:
                return None
            sides[port] = side
            at += len(batch)
        numbers = _common_keys(sides)
        now = _stream_time(sides, time, len(orders))
        out = self._joined(sides, numbers, now)
        if isinstance(out, str):
            return None
        if out is not None and any(batch.headers is not None and any(batch.headers) for _, batch in batches):
            out.batch.headers = _headers(batches, ranks, out.ranks)
        appends = [None if s is None else self._appends(port, s, now) for port, s in enumerate(sides)]
        latest = time.stream_time_ms if time.by_place_ms is not None or not len(now) else int(now[-1])
        return JoinedBatch(None if out is None else out.batch, _in_order(late), dropped, appends, latest)

    # -- records -------------------------------------------------------------------------------------------------

    def _side(
        self, port: int, batch: Batch, ranks: Places, time: EventTime, late: list[Batch], dropped: dict[str, int]
    ) -> _Side | None:
        """The records that are joined. Adds late ones to ``late``, and counts what is dropped."""
        keys, raw = self._key_column(batch), self._values[port].raw(batch)
        times, orders = batch.times, batch.orders
        if keys is None or raw is None or batch.olds is not None:
            return None
        left: Mask = np.ones(len(batch), np.bool_)
        marks = time.before(orders)
        if marks is not None and (too_late := times < marks).any():
            late.append(batch.where(too_late))
            dropped["late"] = dropped.get("late", 0) + int(too_late.sum())
            left = ~too_late
        for reason, nulls in (("null_value", raw.nulls), ("null_key", nulls_of(keys))):
            if nulls is not None and (absent := nulls & left).any():
                dropped[reason] = dropped.get(reason, 0) + int(absent.sum())
                left = left & ~absent
        places = np.flatnonzero(left)
        if len(places) < len(batch):
            keys, raw, ranks = keys.take(places), raw.take(places), ranks[places]
            times, orders = times[places], orders[places]
        lowest_ms = 0 if marks is None else max(0, self._buffers[port].floor_ms)
        if len(times) and int(times.min()) < lowest_ms:
            return None
        found = keyed(keys, self._key_serde)
        written = self._values[port].written(BytesColumn(raw.data, raw.offsets))
        if found is None or written is None:
            return None
        listed = found.store_keys
        packed = BytesColumn.of(listed)
        distinct = DistinctKeys(listed, (packed.data, packed.offsets))
        return _Side(batch, ranks, times, orders, distinct, found.groups.numbers, *written)

    def _key_column(self, batch: Batch) -> Column | None:
        """Keys that are what their bytes decode to."""
        serde, column = self._key_serde, batch.key_column
        if isinstance(column, EncodedColumn):
            return column if column.serde == serde else None
        if column is not None:
            return None
        keys = batch.keys
        return CodedColumn.of(keys) if {type(k) for k in keys} <= {serde.exact, type(None)} else None

    def _appends(self, port: int, side: _Side, now: Ints) -> Appends:
        floors = now[side.ranks] - self._bounds.keep_ms[port] if len(now) else None
        expired = None if floors is None else side.times < floors
        texts = (side.texts.data, side.texts.offsets)
        return side.keys, side.numbers, side.times, texts, expired if expired is not None and expired.any() else None

    # -- partners ------------------------------------------------------------------------------------------------

    def _joined(self, sides: list[_Side | None], numbers: list[Places], now: Ints) -> _Results | str | None:
        """The results; a text: row by row."""
        stored = [self._stored(port, sides[1 - port], numbers[1 - port]) for port in (0, 1)]
        found: list[tuple[Places, Places]] = []
        for port in (0, 1):
            partners = self._partners(port, sides, numbers, stored[1 - port], now)
            if partners is None:
                return "too many pairs"
            found.append(partners)
        pools: list[TextPool | EncodedColumn] = []
        entries: list[Places] = []
        for port in (0, 1):
            used, codes = _used(stored[port], found[1 - port][1])
            pool = self._pool(port, stored[port].found, used, sides[port])
            if pool is None:
                return "a value cannot be read"
            pools.append(pool)
            entries.append(codes)
        return self._results(sides, numbers, stored, found, pools, entries)

    def _stored(self, port: int, others: _Side | None, numbers: Places) -> _Stored:
        """The buffered entries of a side that may be partners of the other side's records."""
        if others is None or not len(others.times):
            return _Stored(None, np.empty(0, np.intp), np.empty(0, np.int64))
        before_ms, after_ms = self._bounds.around(1 - port)
        low, high = int(others.times.min()) - before_ms, int(others.times.max()) + after_ms
        found = self._buffers[port].within(others.keys, max(low, 0), high)
        firsts = np.empty(len(others.keys.listed), np.intp)
        firsts[others.numbers] = numbers
        return _Stored(found, np.repeat(firsts, found.counts), found.times)

    def _partners(
        self, port: int, sides: list[_Side | None], numbers: list[Places], stored: _Stored, now: Ints
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
        if span * (int(max(of_entries.max(), numbers[port].max())) + 2) >= _FAR:
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
        self, port: int, stored: FoundEntries | None, used: Places, side: _Side | None
    ) -> TextPool | EncodedColumn | None:
        """The values of stored entries, and behind them those of the batch."""
        values = self._values[port]
        raw = [] if stored is None or not len(used) else stored.values_at(used)
        written = values.written(BytesColumn.of(raw) if isinstance(raw, list) else BytesColumn(*raw))
        if written is None:
            return None
        texts, objects = written
        if side is not None:
            both = joined([texts, side.texts])
            assert isinstance(both, BytesColumn)
            texts = both
            if objects is not None or side.objects is not None:
                objects = None if side.objects is None else [*(objects or []), *side.objects]
        pool = values.pool(texts, objects)
        if isinstance(pool, TextPool) and self._read[port] and len(pool) and not pool.read(self._read[port]):
            return None
        return pool

    # -- results -------------------------------------------------------------------------------------------------

    def _results(
        self,
        sides: list[_Side | None],
        numbers: list[Places],
        stored: list[_Stored],
        found: list[tuple[Places, Places]],
        pools: list[TextPool | EncodedColumn],
        entries: list[Places],
    ) -> _Results | str | None:
        """The joined records; ``entries[port]`` are the partners, by their places in the pool, of the other side's."""
        codes: list[list[Places]] = [[], []]
        parts: list[tuple[Places, Ints, Ints, Ints, Places]] = []
        for port in (0, 1):
            side, (records, partners) = sides[port], found[port]
            if side is None or not len(records):
                continue
            other = sides[1 - port]
            behind = stored[1 - port].times
            times = behind if other is None else np.concatenate([behind, other.times])
            codes[port].append(records + (len(pools[port]) - len(side.times)))
            codes[1 - port].append(entries[1 - port])
            own, theirs = side.times[records], times[partners]
            parts.append((side.ranks[records], own if port == 0 else theirs, theirs if port == 0 else own,
                          side.orders[records], numbers[port][records]))  # fmt: skip
        if not parts:
            return None
        ranks, lefts, rights, orders, of_keys = (np.concatenate(part) for part in zip(*parts, strict=True))
        places = np.argsort(ranks, kind="stable")
        both = [np.concatenate(of_side)[places] for of_side in codes]
        ranks, lefts, rights, orders, of_keys = (part[places] for part in (ranks, lefts, rights, orders, of_keys))
        if self._condition is not None:
            mask = self._condition(_Pairs(pools, both), ColumnBatch([], [], rights, orders))
            if mask is None:
                return "the condition fails"
            if not mask.all():
                both = [some[mask] for some in both]
                ranks, lefts, rights, orders, of_keys = (part[mask] for part in (ranks, lefts, rights, orders, of_keys))
        if not len(orders):
            return None
        values = self._result(_Pairs(pools, both), ColumnBatch([], [], rights, orders))
        if values is None:
            return "the joiner fails"
        wanted = self._bounds.result_time
        times = np.maximum(lefts, rights) if wanted == "latest" else lefts if wanted == "left" else rights
        return _Results(ColumnBatch(self._keys(sides, numbers, of_keys), values, times, orders), ranks)

    def _keys(self, sides: list[_Side | None], numbers: list[Places], of_pairs: Places) -> Column:
        distinct: dict[int, bytes] = {}
        for side, of_side in zip(sides, numbers, strict=True):
            if side is not None and len(of_side):
                firsts = np.empty(len(side.keys.listed), np.intp)
                firsts[side.numbers] = of_side
                distinct.update(zip(firsts.tolist(), side.keys.listed, strict=True))
        keys = BytesColumn.of([distinct[number] for number in range(len(distinct))])
        return EncodedColumn.of_codes(of_pairs.astype(np.int32), keys, self._key_serde, Coder())


def _headers(batches: Sequence[tuple[int, Batch]], ranks: Places, wanted: Places) -> list[Headers] | None:
    """The headers of the records at these places."""
    listed: list[Headers] = [()] * len(ranks)
    every = (h for _, batch in batches for h in ([()] * len(batch) if batch.headers is None else batch.headers))
    for rank, headers in zip(ranks.tolist(), every, strict=True):
        listed[rank] = headers
    found = [listed[rank] for rank in wanted.tolist()]
    return found if any(found) else None


def _stream_time(sides: list[_Side | None], time: EventTime, records: int) -> Ints:
    """Stream time at each place of the batch, the record there included; on watermarks an empty array."""
    if time.by_place_ms is not None:
        return np.empty(0, np.int64)
    now = np.full(records, time.stream_time_ms, np.int64)
    for side in sides:
        if side is not None:
            now[side.ranks] = np.maximum(now[side.ranks], side.times)
    return np.maximum.accumulate(now)


def _common_keys(sides: list[_Side | None]) -> list[Places]:
    """The number of each record's key, the same for both sides."""
    index: dict[bytes, int] = {}
    out: list[Places] = []
    for side in sides:
        if side is None:
            out.append(np.empty(0, np.intp))
            continue
        of_keys = [index.setdefault(key, len(index)) for key in side.keys.listed]
        out.append(np.array(of_keys, np.intp)[side.numbers])
    return out


def _used(stored: _Stored, partners: Places) -> tuple[Places, Places]:
    """The places of stored entries that are partners, and the partners by their places among these and what is behind
    them."""
    count = len(stored.times)
    used = np.zeros(count, np.bool_)
    used[partners[partners < count]] = True
    renumbered = np.cumsum(used) - 1
    kept = int(used.sum())
    codes = partners - (count - kept)
    of_stored = partners < count
    codes[of_stored] = renumbered[partners[of_stored]]
    return np.flatnonzero(used), codes


def _in_order(late: list[Batch]) -> Batch | None:
    """The records of both sides in the order of the task, as lists."""
    if not late:
        return None
    whole = concat([batch.listed() for batch in late])
    return whole.pick(np.argsort(whole.orders, kind="stable"))
