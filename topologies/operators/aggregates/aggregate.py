"""Aggregations per key: the operator, and the fold that windowed ones share.

Null keys and null values are dropped and counted. The result's timestamp is the highest of the records that went into
it. The state is read once per distinct key of a batch; what is emitted is every update, or the last one per key at each
commit (``per_commit``, as Kafka Streams with its cache), in the order in which the keys first changed.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from penstock.state.errors import SerdeError, TopologyError
from penstock.state.serdes.serde import Serde
from penstock.state.stores.count_store import CountStoreView, tallies
from penstock.state.stores.store import StoreSpec
from penstock.topologies.columnar.column_parts import key_bytes, worth_columns
from penstock.topologies.columnar.encoded_columns import EncodedColumn
from penstock.topologies.columnar.kernels import Coder
from penstock.topologies.operator_api.batch import Batch, ColumnBatch
from penstock.topologies.operator_api.columns import BytesColumn, Column, Ints, NumberColumn
from penstock.topologies.operator_api.edge_kinds import Emits
from penstock.topologies.operator_api.operator import Operator, OperatorContext, OperatorSpec
from penstock.topologies.operator_api.required_columns import ROW_LAYOUT, EdgeLayout, InputMode, RequiredColumns
from penstock.topologies.operators.aggregates.fold import Aggregation, BuiltOperator, Fold
from penstock.topologies.operators.base.row_functions import map_rows, serialize_keys, without_nulls
from penstock.topologies.operators.columnar.counting import add_counts, counted_updates, sums_of
from penstock.topologies.operators.columnar.folding import ColumnFold
from penstock.topologies.operators.columnar.grouping import Entries, entries_of
from penstock.topologies.operators.columnar.input_modes import counting_way, folding_way, why_rows


@dataclasses.dataclass(frozen=True, kw_only=True)
class AggregateSpec(OperatorSpec):
    """Keeps ``fold`` of the records of each key in its store. The edge behind it carries upserts. In port n has the n-th
    adder."""

    fold: Fold
    emits: Emits = "upsert"

    @property
    def store(self) -> StoreSpec:
        """Where the aggregates are kept."""
        return self.stores[0]

    def input_mode(self, port: int, out: Sequence[RequiredColumns]) -> InputMode:
        return self.way_of_columns(None, None)

    def way_of_columns(self, reason: str | None, late: RequiredColumns | None) -> InputMode:
        """How it takes records: ``reason``: why one by one, whatever it folds; ``late``: what is needed of late ones."""
        folds = bool(self.fold.parts) and not self.fold.partials
        if reason is None and folds and self.emission == "every_update":
            reason = "it emits every update"
        if reason is None and folds and not self.sends_olds:
            return folding_way(self.fold.parts, late)
        reason = reason or why_rows(counts=self.fold.counts or self.fold.sums, sends_olds=self.sends_olds)
        return counting_way(late, why_rows=reason, sums=self.fold.sums)

    def output_layout(self, port: int, given: EdgeLayout, input_mode: InputMode) -> EdgeLayout:
        if port > 0:  # late records, as they came
            return given
        counts = input_mode.rows is None and not self.fold.parts
        # what is held until a commit is kept in columns where a store can tally, which those of windows cannot
        shown = self.emission == "every_update" or (self.emission == "per_commit" and tallies(self.store))
        return EdgeLayout(keys=True, values=True) if counts and shown else ROW_LAYOUT

    def open(self, ctx: OperatorContext) -> Operator:
        """The running form."""
        return AggregateOperator(ctx, self)

    def details(self) -> dict[str, Any]:
        """Store and emission."""
        return {"store": self.store.name, "emission": self.emission}


def build_operator(request: Aggregation) -> BuiltOperator:
    """The operator of an aggregation without windows."""
    if request.emission == "on_close":
        raise TopologyError(
            f"operator {request.name!r}: emission='on_close' waits for a window to close, and there is none; "
            "call windowed_by first, or use 'every_update' or 'per_commit'"
        )
    if request.late:
        raise TopologyError(f"operator {request.name!r}: late=True, but without windows nothing is late; leave it out")
    store = StoreSpec(request.name, "key_value", request.key, request.value)
    spec = AggregateSpec(in_ports=request.in_ports, stores=(store,), emission=request.emission, fold=request.fold)
    return BuiltOperator(spec, request.key)


class AggregateOperator(Operator):
    """The running form. ``mute``: changes are not emitted, neither at once nor at the commit."""

    mute = False

    def __init__(self, ctx: OperatorContext, spec: AggregateSpec) -> None:
        super().__init__(ctx)
        fold = spec.fold
        self._state = ctx.state(spec.store.name)
        self._key_serde: Serde[Any] = spec.store.key_serde
        self._every_update = spec.emission == "every_update"
        self._changed: dict[bytes, Any] = {}
        self._olds: dict[bytes, Any] | None = {} if spec.sends_olds else None
        """Of the keys that changed since the last commit, what was emitted last."""
        self._init: Callable[[], Any] | None = fold.init
        self._adders = fold.adders
        self._adder = fold.adders[0]
        self._timed = fold.timed
        self._result = fold.result
        self._sends_olds = spec.sends_olds
        self._sums, self._partials = fold.sums, fold.partials
        # Then the last count per key is all that anyone sees, and no function of the user's is called.
        self._only_counts = (
            (fold.counts or fold.sums)
            and not self._every_update
            and not spec.sends_olds
            and self._state.immutable
            and self._state.exact is int
        )
        self.in_columns = (
            (fold.counts or (fold.sums and self._only_counts))
            and fold.result is None
            and not spec.sends_olds
            and self._state.immutable
            and self._state.exact is int
        )
        self._columns: ColumnFold | None = None
        if not self._every_update and not spec.sends_olds and self._state.immutable and fold.init is not None:
            self._columns = ColumnFold.of(fold.parts)
        self.in_columns = self.in_columns or self._columns is not None
        """Whether batches of columns can be taken as such."""

    def usable(self, batch: Batch) -> Batch:
        """Without the records that have no key or no value."""
        return without_nulls(self.ctx, without_nulls(self.ctx, batch, "key"), "value")

    def prefetch(self, port: int, batch: Batch) -> None:
        usable = batch if None not in batch.keys else batch.where([k is not None for k in batch.keys])
        with suppress(SerdeError):  # process meets it at its row
            self._state.load(self.keys_to_load(usable, self._key_serde.serialize_all(usable.keys)))

    def keys_to_load(self, batch: Batch, keys: list[Any]) -> list[bytes]:
        """The store's keys of the records whose key bytes these are."""
        return keys

    def out_keys(self, store_keys: list[bytes], keys: list[Any]) -> list[Any]:
        """The keys of emitted records, from the store's keys and the input records'."""
        return keys

    def process(self, port: int, batch: Batch) -> None:
        batch = self.usable(batch)
        if self.in_columns and worth_columns(batch) and self._tallied(batch):
            return
        if self.in_columns and worth_columns(batch):
            found = entries_of(batch, self._key_serde)
            if found is not None and self.take_columns(batch, found, windowed=False):
                return
        keys, batch = serialize_keys(self.ctx, batch, self._key_serde)
        if keys:
            self.apply(port, batch, keys)

    def _tallied(self, batch: ColumnBatch) -> bool:
        """Count records of which nobody downstream hears before the commit, if the store's view can do all of it."""
        state = self._state
        if (
            (self._every_update and self.ctx.has_consumers)
            or self._columns is not None
            or not isinstance(state, CountStoreView)
        ):
            return False
        keys, counts = key_bytes(batch.key_column, self._key_serde), None
        if self._sums:
            numbers = batch.value_column
            if not isinstance(numbers, NumberColumn) or numbers.array.dtype != np.int64 or numbers.nulls is not None:
                return False
            counts = numbers.array
        return keys is not None and state.count(keys.data, keys.offsets, batch.times, counts)

    def take_columns(self, batch: ColumnBatch, found: Entries, *, windowed: bool) -> bool:
        """Take records by their entries where ``in_columns``; ``False``: nothing was done, they must be taken one by one."""
        if self._columns is not None:
            return self._fold_columns(batch, found, self._columns)
        counts = self.counts_in(batch, found)
        if counts is not None:
            self.count_columns(batch, found, counts, windowed=windowed)
        return counts is not None

    def _fold_columns(self, batch: ColumnBatch, found: Entries, fold: ColumnFold) -> bool:
        columns = fold.columns(batch)
        return columns is not None and self.fold_entries(found, found.latest(batch.times), columns, fold)

    def fold_entries(self, found: Entries, latest: Ints, columns: list[Column | None], fold: ColumnFold) -> bool:
        """Fold records, ``columns`` of them and the ``latest`` of each entry, where the last aggregate is all that anyone
        sees. ``False``: nothing was done."""
        state, init = self._state, self._init
        assert init is not None
        state.load(found.store_keys)
        entries, exact = state.entries, state.exact
        before = list(map(entries.__getitem__, found.store_keys))
        new = fold.folded([init() if e is None else e[0] for e in before], found.groups, columns)
        if new is None:
            return False
        times: list[int] = latest.tolist()
        for key, acc, ts, entry in zip(found.store_keys, new, times, before, strict=True):
            ts = ts if entry is None else max(ts, entry[1])
            entries[key] = (acc if type(acc) is exact else state.as_stored(acc), ts)
            state.dirty[key] = ts
        if self.ctx.has_consumers and not self.mute:
            self._changed.update(zip(found.store_keys, found.keys, strict=True))
        return True

    def counts_in(self, batch: ColumnBatch, found: Entries) -> list[int] | None:
        """How many records each entry has; ``None``: row by row."""
        return sums_of(batch, found) if self._sums else found.counts().tolist()

    def count_columns(self, batch: ColumnBatch, found: Entries, counts: list[int], *, windowed: bool) -> None:
        """Count records by their entries, and emit, where ``in_columns``."""
        self._state.load(found.store_keys)
        if self.emits_every:
            before = list(map(self._state.entries.__getitem__, found.store_keys))
            self.ctx.emit(counted_updates(batch, found, before, self.out_keys, windowed=windowed))
        self.add_columns(found, counts, found.latest(batch.times))

    @property
    def emits_every(self) -> bool:
        """Whether somebody is told of every update."""
        return self._every_update and self.ctx.has_consumers and not self.mute

    def add_columns(self, found: Entries, counts: list[int], latest: Ints) -> None:
        """Add to the counts of entries that are loaded; ``latest``: the highest timestamp of each one's records."""
        if not self._every_update and self.ctx.has_consumers and not self.mute:
            self._changed.update(zip(found.store_keys, found.keys, strict=True))
        add_counts(self._state, found, counts, latest)

    def apply(self, port: int, batch: Batch, store_keys: list[bytes]) -> None:
        """Fold records that have a store key each, and emit."""
        self._adder = self._adders[port]
        self._state.load(store_keys)
        self.apply_loaded(batch, store_keys)

    def apply_loaded(self, batch: Batch, store_keys: list[bytes]) -> None:
        """The same of store keys that are loaded."""
        if self._only_counts:
            if self._sums:
                self._add(store_keys, batch.values, batch.timestamps)
            else:
                self._count(store_keys, batch.timestamps)
            if self.ctx.has_consumers and not self.mute:
                self._changed.update(zip(store_keys, batch.keys, strict=True))
            return
        values = list(zip(batch.values, batch.timestamps, strict=True)) if self._timed else batch.values
        if self._state.immutable and not self._sends_olds:
            places, news, timestamps = self._fold(batch, store_keys, values)
            olds = None
        else:
            places, news, timestamps, olds = self._fold_decoding(batch, store_keys, values)
        self.done(batch, store_keys, places, news, timestamps, olds)

    def _fold(
        self, batch: Batch, store_keys: list[bytes], values: list[Any]
    ) -> tuple[list[int] | None, list[Any], list[int]]:
        """Run every record against the state: (rows that were folded, ``None`` for all; new values; timestamps)."""
        state = self._state
        entries, exact, init, adder = state.entries, state.exact, self._init, self._adder
        news: list[Any] = []
        times: list[int] = []
        failed: list[int] = []
        for i, (key, store_key, value, ts) in enumerate(
            zip(batch.keys, store_keys, values, batch.timestamps, strict=True)
        ):
            found = entries[store_key]
            try:
                if found is None:
                    new = value if init is None else adder(key, value, init())
                else:
                    old, old_ts = found
                    new = adder(key, value, old)
                    if old_ts > ts:
                        ts = old_ts
                if type(new) is exact:
                    entries[store_key] = (new, ts)
                else:
                    entries[store_key] = None if new is None else (state.as_stored(new), ts)
            except Exception as exc:
                self.row_failed(batch, i, exc)
                failed.append(i)
                continue
            news.append(new)
            times.append(ts)
        return without(failed, len(batch.keys)), news, times

    def row_failed(self, batch: Batch, index: int, error: Exception) -> None:
        """A function of the user's raised for a row."""
        self.ctx.failed(batch, index, error, may_skip=not self._partials)

    def _count(self, store_keys: list[bytes], timestamps: list[int]) -> None:
        """Count a batch of which nobody sees more than the last value per key: one step per distinct key."""
        entries = self._state.entries
        latest = dict(zip(store_keys, timestamps, strict=True))
        if timestamps != sorted(timestamps):
            for key, ts in zip(store_keys, timestamps, strict=True):
                if ts > latest[key]:
                    latest[key] = ts
        for key, records in Counter(store_keys).items():
            ts = latest[key]
            if (found := entries[key]) is not None:
                count, found_ts = found
                records += count
                if found_ts > ts:
                    latest[key] = ts = found_ts
            entries[key] = (records, ts)
        self._state.dirty.update(latest)

    def _add(self, store_keys: list[bytes], counts: list[int], timestamps: list[int]) -> None:
        """The same of records that were counted elsewhere: keys may repeat."""
        entries, dirty = self._state.entries, self._state.dirty
        for key, records, ts in zip(store_keys, counts, timestamps, strict=True):
            if (found := entries[key]) is not None:
                count, found_ts = found
                records += count
                if found_ts > ts:
                    ts = found_ts
            entries[key] = (records, ts)
            dirty[key] = ts

    def _fold_decoding(
        self, batch: Batch, store_keys: list[bytes], values: list[Any]
    ) -> tuple[list[int] | None, list[Any], list[int], list[Any] | None]:
        """The same for values that could be changed in place: each record decodes its own copy. And with the old values,
        if they are wanted."""
        state, init, adder = self._state, self._init, self._adder
        news: list[Any] = []
        times: list[int] = []
        olds: list[Any] = []
        failed: list[int] = []
        for i, (key, store_key, value, ts) in enumerate(
            zip(batch.keys, store_keys, values, batch.timestamps, strict=True)
        ):
            entry = state.entries[store_key]
            found = state.unpack(entry, store_key)
            try:
                if found is None:
                    new = value if init is None else adder(key, value, init())
                else:
                    new = adder(key, value, found[0])
                    ts = max(ts, found[1])
                state.put(store_key, new, ts)
            except Exception as exc:
                self.row_failed(batch, i, exc)
                failed.append(i)
                continue
            news.append(new)
            times.append(ts)
            if self._sends_olds:
                before = state.unpack(entry, store_key)  # the adder may have changed the one it was given
                olds.append(None if before is None else before[0])
        return without(failed, len(batch.keys)), news, times, olds if self._sends_olds else None

    def done(
        self,
        batch: Batch,
        store_keys: list[bytes],
        places: list[int] | None,
        values: list[Any],
        timestamps: list[int],
        olds: list[Any] | None,
    ) -> None:
        """Mark what changed, and emit it or keep it for the commit."""
        keys, order, headers = batch.keys, batch.order, batch.headers
        if places is not None:
            store_keys = [store_keys[i] for i in places]
            keys = [keys[i] for i in places]
            order = [order[i] for i in places]
            headers = None if headers is None else [headers[i] for i in places]
        self._state.dirty.update(zip(store_keys, timestamps, strict=True))
        if not self.ctx.has_consumers or self.mute:
            return
        if self._every_update:
            out = Batch(self.out_keys(store_keys, keys), values, timestamps, order, headers, olds)
            self.ctx.emit(self.shown(out))
            return
        if self._olds is not None and olds is not None:
            for store_key, old in zip(store_keys, olds, strict=True):
                self._olds.setdefault(store_key, old)
        self._changed.update(zip(store_keys, keys, strict=True))

    def shown(self, batch: Batch) -> Batch:
        """The batch with results in place of aggregates."""
        result = self._result
        if result is None:
            return batch

        def of(aggregate: Any) -> Any:
            return None if aggregate is None else result(aggregate)

        if batch.olds is None:
            values, batch = map_rows(self.ctx, batch, of, batch.values)
            return batch.replace(values=values)

        def both(aggregate: Any, old: Any) -> tuple[Any, Any]:
            return of(aggregate), of(old)

        pairs, batch = map_rows(self.ctx, batch, both, batch.values, batch.olds)
        news, olds = [new for new, _ in pairs], [old for _, old in pairs]
        return Batch(batch.keys, news, batch.timestamps, batch.order, batch.headers, olds)

    def flush(self) -> None:
        if isinstance(self._state, CountStoreView) and self.ctx.has_consumers and not self.mute:
            self._flush_tallied(self._state)
        self._flush_changed()

    def _flush_tallied(self, state: CountStoreView) -> None:
        """Emit what is in the tally, or have what was in it emitted with what has changed since."""
        if state.shown:
            return
        found = state.tallied()
        if found is not None:
            keys = EncodedColumn(BytesColumn(found.data, found.offsets), self._key_serde, Coder())
            nowhere = np.zeros(len(found.times), np.int64)
            self.ctx.emit(ColumnBatch(keys, NumberColumn(found.counts), found.times, nowhere))
        elif state.settled:  # nothing had changed when the tally was begun
            read = self._key_serde.deserialize
            self._changed = {key: read(key) for key in state.settled} | self._changed
        state.shown = found is not None or bool(state.settled)

    def _flush_changed(self) -> None:
        if not self._changed:
            return
        keys = self.out_keys(list(self._changed), list(self._changed.values()))
        values: list[Any] = []
        timestamps: list[int] = []
        for store_key in self._changed:
            # what was changed since the last commit is an entry, though its window may have expired since
            found = self._state.unpack(self._state.entries[store_key], store_key)
            values.append(None if found is None else found[0])
            timestamps.append(self._state.dirty[store_key] if found is None else found[1])
        olds = None if self._olds is None else list(map(self._olds.__getitem__, self._changed))
        self._changed.clear()
        if self._olds is not None:
            self._olds.clear()
        self.ctx.emit(self.shown(Batch(keys, values, timestamps, [0] * len(keys), None, olds)))


def without(failed: list[int], count: int) -> list[int] | None:
    """All places but the failed ones; ``None`` for all."""
    if not failed:
        return None
    skipped = set(failed)
    return [i for i in range(count) if i not in skipped]
