"""The three operators of a foreign-key join on columns: messages are read and written where they stand, rows stay texts.

Each does for a batch what its row form does for one record after another, and has done nothing where it leaves the batch to
that (``None``).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from penstock.state.serdes.serde import Serde
from penstock.state.stores.store_view import KeyValueStoreView
from penstock.topologies.columnar.column_parts import nulls_of, present, serialized, spread_over, written
from penstock.topologies.columnar.encoded_columns import AddressedColumn, EncodedColumn, WrittenColumn
from penstock.topologies.columnar.kernels import Coder
from penstock.topologies.operator_api.batch import ColumnBatch
from penstock.topologies.operator_api.columns import BytesColumn, CodedColumn, Column, Mask
from penstock.topologies.operators.base import foreign_key_messages as wire
from penstock.topologies.operators.base.foreign_key_messages import RESPONSE, SUBSCRIPTION, Response
from penstock.topologies.operators.columnar.pairs import SIDES, Result, fields_read, result_of, still_means
from penstock.topologies.operators.columnar.side_values import PairsOfPools
from penstock.topologies.operators.columnar.stateless import ColumnarStep
from penstock.topologies.operators.columnar.stored_rows import (
    RowValues,
    bytes_of_keys,
    entries_of,
    present_texts,
    texts_of,
    time_of,
)

_INT = struct.Struct(">i")
_PRESENT = b"\x01"
Routes = Callable[[Any, Response, int], int]


def _heads(first: int, second: int, hashes: Sequence[bytes | None]) -> list[bytes]:
    """The beginnings of subscriptions: flags, instruction, hash."""
    hashed, unhashed = bytes((first, second)), bytes((first | wire.NO_HASH, second))
    return [unhashed if h is None else hashed + h for h in hashes]


def _messages(column: Column | None, serde: Serde[Any]) -> list[bytes] | None:
    """The messages of a column that came as they are written."""
    if not isinstance(column, EncodedColumn) or column.serde != serde or column.nulls is not None:
        return None
    return column.raw.to_list()  # type: ignore[return-value]  # none is null


def _at(
    batch: ColumnBatch, places: list[int], keys: Column, values: Column, times: list[int] | None = None
) -> ColumnBatch:
    """Records that those at these places cause, at their times or others."""
    at = np.array(places, np.intp)
    headers = None if batch.headers is None else [batch.headers[i] for i in places]
    return ColumnBatch(
        keys, values, batch.times[at] if times is None else np.array(times, np.int64), batch.orders[at], headers
    )


class Subscribing:
    """Makes subscriptions of changes of left rows. ``step`` gives the foreign keys."""

    def __init__(
        self, step: ColumnarStep, values: RowValues, key_serde: Serde[Any], foreign_serde: Serde[Any], partition: int
    ) -> None:
        self._step = step
        self._values = values
        self._key_serde, self._foreign_serde = key_serde, foreign_serde
        self._tail = _INT.pack(partition)
        self._coders = Coder(), Coder()

    def of(self, batch: ColumnBatch) -> tuple[ColumnBatch, int] | None:
        """The subscriptions, and how many new rows name no right row."""
        news, olds = batch.value_column, batch.old_column
        texts = self._values.of_column(news)
        if news is None or olds is None or texts is None:
            return None
        keys = bytes_of_keys(batch, self._key_serde)
        if keys is None or None in keys:
            return None
        before, now = self._named(batch, olds), self._named(batch, news)
        if before is None or now is None:
            return None
        rows = texts.to_list()
        hashes = wire.hashes_of(rows)
        forgets = _heads(wire.SUBSCRIBED, wire.DELETE_NO_PROPAGATE, hashes)
        subscribes = _heads(wire.SUBSCRIBED, wire.PROPAGATE_NULL_IF_NO_FK, hashes)
        absent = nulls_of(olds)
        if texts.nulls is not None and absent is not None and (texts.nulls & absent).any():
            return None
        places: list[int] = []
        foreign: list[bytes | None] = []
        messages: list[bytes | None] = []
        unnamed = 0
        tail = self._tail
        for i, (was, name, key) in enumerate(zip(before, now, keys, strict=True)):
            rest = key + tail  # type: ignore[operator]  # no key is null
            if was is not None and was != name:
                places.append(i)
                foreign.append(was)
                messages.append(forgets[i] + rest)
            if name is None and rows[i] is not None:
                unnamed += 1
            places.append(i)
            foreign.append(name)
            messages.append(subscribes[i] + rest)
        named = WrittenColumn(BytesColumn.of(foreign), self._foreign_serde, self._coders[0])
        asked = WrittenColumn(BytesColumn.of(messages), SUBSCRIPTION, self._coders[1])
        return _at(batch, places, named, asked), unnamed

    def _named(self, batch: ColumnBatch, rows: Column) -> list[bytes | None] | None:
        """The foreign key of each row, as bytes."""
        places, there = present(batch, rows)
        if not len(there):
            return [None] * len(batch)
        made: Column | None = self._step.make(there) if isinstance(there, ColumnBatch) else None
        if made is None:
            return None
        data = serialized(made, self._foreign_serde)
        listed = written(made.to_list(), self._foreign_serde) if data is None else data.to_list()
        if listed is None or places is None:
            return listed
        out: list[bytes | None] = [None] * len(batch)
        for place, name in zip(places.tolist(), listed, strict=True):
            out[place] = name
        return out


class Answering:
    """Keeps subscriptions, in a store that keeps them as bytes, and answers them with right rows, which such a store has
    too."""

    def __init__(
        self,
        values: RowValues,
        subscriptions: KeyValueStoreView,
        rows: KeyValueStoreView,
        foreign_serde: Serde[Any],
        route: Routes,
    ) -> None:
        self._values = values
        self._subscriptions, self._rows = subscriptions, rows
        self._foreign_serde = foreign_serde
        self._route = route
        self._coder = Coder()

    def load(self, batch: ColumnBatch) -> bool:
        """Load the rows that subscriptions name. ``False``: nothing was done."""
        names = bytes_of_keys(batch, self._foreign_serde)
        if names is not None:
            self._rows.load(name for name in names if name is not None)
        return names is not None

    def subscribed(self, batch: ColumnBatch) -> ColumnBatch | None:
        """The answers to subscriptions, which are kept or forgotten."""
        asked = _messages(batch.value_column, SUBSCRIPTION)
        names = None if asked is None else bytes_of_keys(batch, self._foreign_serde)
        if asked is None or names is None:
            return None
        distinct = [name for name in dict.fromkeys(names) if name is not None]
        entries = entries_of(self._rows, distinct)
        texts = self._values.canonical(texts_of(entries))
        if texts is None:
            return None
        times = [0 if e is None else time_of(e) for e in entries]
        found = dict(zip(distinct, zip(texts.to_list(), times, strict=True), strict=True))
        kept_keys: list[bytes] = []
        kept: list[bytes | None] = []
        kept_times: list[int] = []
        out = _Answers()
        for i, (name, message, ts) in enumerate(zip(names, asked, batch.timestamps, strict=True)):
            value, at = None, ts
            if name is not None:
                left = wire.left_key(message)
                kept_keys.append(wire.subscription_key(name, left))
                kept_times.append(ts)
                if message[1] == wire.DELETE_NO_PROPAGATE:
                    kept.append(None)
                    continue
                kept.append(message)
                value, row_ts = found[name]
                if value is not None:
                    at = max(ts, row_ts)
            out.add(i, message, value, at)
        self._subscriptions.put_raw(kept_keys, kept, [], kept_times)
        return self._sent(batch, out)

    def changed(self, batch: ColumnBatch) -> ColumnBatch | None:
        """The answers to all subscriptions of right rows that have changed."""
        texts = self._values.of_column(batch.value_column)
        names = None if texts is None else bytes_of_keys(batch, self._foreign_serde)
        if texts is None or names is None or None in names:
            return None
        out = _Answers()
        prefixes = [wire.subscription_key(name, b"") for name in names]  # type: ignore[arg-type]  # no name is null
        found = self._subscriptions.entries_within([(low, wire.after_prefix(low)) for low in prefixes])
        for i, (entries, value, ts) in enumerate(zip(found, texts.to_list(), batch.timestamps, strict=True)):
            for _, entry in entries:
                if entry is not None:
                    out.add(i, entry[8:], value, max(ts, time_of(entry)))
        if not wire.all_written(BytesColumn.of(out.asked), SUBSCRIPTION):
            return None
        return self._sent(batch, out)

    def _sent(self, batch: ColumnBatch, out: _Answers) -> ColumnBatch:
        partitions = np.array(out.partitions, np.int64)
        answers = AddressedColumn(
            BytesColumn.of(out.messages), RESPONSE, self._coder, partitions, self._route, wire.addressed
        )
        return _at(batch, out.places, BytesColumn.of(out.keys), answers, out.times)


class _Answers:
    """Answers so far."""

    def __init__(self) -> None:
        self.places: list[int] = []
        self.asked: list[bytes | None] = []
        self.keys: list[bytes | None] = []
        self.messages: list[bytes | None] = []
        self.partitions: list[int] = []
        self.times: list[int] = []

    def add(self, place: int, asked: bytes, value: bytes | None, ts: int) -> None:
        """Answer a subscription, whose bytes are ``asked``, with a value."""
        self.places.append(place)
        self.asked.append(asked)
        self.keys.append(wire.left_key(asked))
        self.messages.append(wire.response_to(asked, value))
        self.partitions.append(wire.left_partition(asked))
        self.times.append(ts)


class Joining:
    """Joins answers with left rows, which a store keeps as bytes. ``marks``: which keys have a result."""

    def __init__(
        self,
        joiner: Any,
        values: tuple[RowValues, RowValues],
        rows: KeyValueStoreView,
        key_serde: Serde[Any],
        marks: KeyValueStoreView | None,
        *,
        left: bool,
    ) -> None:
        self._joiner = joiner
        self._result: Result = result_of(joiner)
        self._read = [fields_read(joiner, side) for side in SIDES]
        self._values = values
        self._rows = rows
        self._key_serde = key_serde
        self._marks = marks
        self._left = left

    def load(self, batch: ColumnBatch) -> bool:
        """Load what answers meet. ``False``: nothing was done."""
        keys = bytes_of_keys(batch, self._key_serde)
        if keys is None or None in keys:
            return False
        for state in (self._rows, self._marks):
            if state is not None:
                state.load(keys)  # type: ignore[arg-type]  # none is null
        return True

    def of(self, batch: ColumnBatch) -> ColumnBatch | None:
        """The results of answers that are not out of date."""
        answers = _messages(batch.value_column, RESPONSE) if still_means(self._joiner) else None
        keys = None if answers is None else bytes_of_keys(batch, self._key_serde)
        if answers is None or keys is None or None in keys:
            return None
        texts = self._values[0].canonical(texts_of(entries_of(self._rows, keys)))  # type: ignore[arg-type]  # none is null
        if texts is None:
            return None
        hashes = wire.hashes_of(texts.to_list())
        current = [i for i, (h, a) in enumerate(zip(hashes, answers, strict=True)) if h == wire.answered_hash(a)]
        places = np.array(current, np.intp)
        rights = BytesColumn.of([wire.answered_value(answers[i]) for i in current])
        met = batch.pick(places)
        results = self._results(met, texts.take(places), rights)
        if results is None:
            return None
        if self._marks is not None:
            nulls = nulls_of(results)
            there = [True] * len(met) if nulls is None else (~nulls).tolist()
            shown = self._shown(self._marks, [keys[i] for i in current], there, met.timestamps)  # type: ignore[misc]  # none is null
            if not shown.all():
                shown_at = np.flatnonzero(shown)
                met, results = met.pick(shown_at), results.take(shown_at)
        made = met.replace(values=results)
        assert isinstance(made, ColumnBatch)
        return made

    def _results(self, met: ColumnBatch, lefts: BytesColumn, rights: BytesColumn) -> Column | None:
        """The result of each answer, null where there is none."""
        canonical = self._values[1].canonical(rights)
        if canonical is None:
            return None
        missing, absent = _null(lefts), _null(rights)
        with_result = np.flatnonzero(~missing if self._left else ~(missing | absent))
        if not len(with_result):
            return CodedColumn(np.zeros(len(met), np.int32), [None])
        pools = [
            self._values[0].pool(present_texts(lefts, with_result)),
            self._values[1].pool(present_texts(canonical, np.flatnonzero(~absent))),
        ]
        if not all(pool.read(names) for pool, names in zip(pools, self._read, strict=True) if names and len(pool)):
            return None
        of_right = np.where(absent, -1, np.cumsum(~absent) - 1)[with_result]
        pairs = PairsOfPools([*pools], [np.arange(len(with_result)), of_right])
        made = self._result(pairs, met.pick(with_result))
        places = None if len(with_result) == len(met) else with_result
        return None if made is None else spread_over(made, places, len(met))

    def _shown(self, marks: KeyValueStoreView, keys: list[bytes], there: list[bool], times: list[int]) -> Mask:
        """Where there is, or was, a result; updates the marks."""
        marks.load(keys)
        shown = np.ones(len(keys), np.bool_)
        entries = marks.entries
        changes: dict[bytes, tuple[bytes, int] | None] = {}
        changed: dict[bytes, int] = {}
        for i, (key, now, ts) in enumerate(zip(keys, there, times, strict=True)):
            before = changes[key] if key in changes else entries[key]
            if (before is not None) != now:
                changes[key], changed[key] = (_PRESENT, ts) if now else None, ts
            elif not now:
                shown[i] = False
        if None not in changes.values():
            marks.put_entries([*changes], [*changes.values()], [*changed.values()])
        else:
            for key, entry in changes.items():
                marks.put_entry(key, entry, changed[key])
        return shown


def _null(column: BytesColumn) -> Mask:
    return np.zeros(len(column), np.bool_) if column.nulls is None else column.nulls
