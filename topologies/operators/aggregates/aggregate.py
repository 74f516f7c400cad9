"""Aggregations per key: the operator, and the fold that windowed ones share.

Null keys and null values are dropped and counted. The result's timestamp is the highest of the records that went into
it. The state is read once per distinct key of a batch; what is emitted is every update, or the last one per key at each
commit (``per_commit``, as Kafka Streams with its cache), in the order in which the keys first changed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, ClassVar, Final

import numpy as np

from penstock.state.errors import SerdeError, TopologyError
from penstock.state.serdes.serde import Serde
from penstock.state.stores.count_store import tallies
from penstock.state.stores.part_store import TalliedNumbers
from penstock.state.stores.store import StoreSpec
from penstock.state.stores.store_view import KeyValueStoreView
from penstock.topologies.aggregators.kept_records import KeptBest
from penstock.topologies.columnar.column_parts import FEWEST, has_bytes_of
from penstock.topologies.columnar.encoded_columns import WrittenColumn
from penstock.topologies.columnar.kernels import Coder
from penstock.topologies.columnar.windowed_keys import stored_keys
from penstock.topologies.operator_api.batch import Batch, ColumnBatch
from penstock.topologies.operator_api.columns import BytesColumn, Column, Ints
from penstock.topologies.operator_api.edge_kinds import Emits
from penstock.topologies.operator_api.operator import Emission, Operator, OperatorContext, OperatorSpec
from penstock.topologies.operator_api.required_columns import ROW_LAYOUT, EdgeLayout, InputMode, RequiredColumns
from penstock.topologies.operators.aggregates.fold import Aggregation, BuiltOperator, Fold, with_members
from penstock.topologies.operators.aggregates.folds.choice import column_fold, held_fold, row_fold
from penstock.topologies.operators.aggregates.folds.kept import KeptResults, keeping_mode
from penstock.topologies.operators.aggregates.folds.partials import merges_in_columns
from penstock.topologies.operators.aggregates.folds.strategy import Changes, OutKeys, Touched
from penstock.topologies.operators.aggregates.folds.tallied_parts import TalliedParts, letters_of
from penstock.topologies.operators.aggregates.folds.updates import why_no_updates
from penstock.topologies.operators.base.member_store import MemberStore
from penstock.topologies.operators.base.row_functions import map_rows, serialize_keys, without_nulls
from penstock.topologies.operators.columnar.flushing import PartFlush
from penstock.topologies.operators.columnar.grouping import entries_of
from penstock.topologies.operators.columnar.input_modes import counting_mode, folding_mode, why_rows
from penstock.topologies.operators.columnar.part_results import ShownParts

_UNREAD: Final = object()
"""Stands for a key that can be read from the store's."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class AggregateSpec(OperatorSpec):
    """Keeps ``fold`` of the records of each key in its store, and its distinct members in a second one. The edge after it
    carries upserts. In port n has the n-th adder."""

    fold: Fold
    emits: Emits = "upsert"

    olds_in_columns: ClassVar[bool] = True
    """Whether aggregates are folded by columns where old values are sent, too."""
    flushes_columns: ClassVar[bool] = True
    """Whether results that were held for a commit are emitted in columns."""
    lists_of_keys: ClassVar[bool] = True
    """Whether whole values are kept by columns where keys are lists."""

    @property
    def tallies(self) -> bool:
        """Whether each record touches one entry, so that the compiled part may fold it."""
        return True

    @property
    def tallied(self) -> bytes | None:
        """The parts that the compiled part folds (``letters_of``); ``None``: it does not."""
        only_last = self.emission != "every_update" and not self.sends_olds
        return letters_of(self.fold) if only_last and self.tallies else None

    @property
    def store(self) -> StoreSpec:
        """Where the aggregates are kept."""
        return self.stores[0]

    @property
    def by_key(self) -> bool:
        # without windows, a ttl and several inputs, of which each would change groups in its own order
        return type(self) is AggregateSpec and len(self.in_ports) == 1

    @property
    def keeps_keys(self) -> bool:
        return self.by_key

    def input_mode(self, port: int, out: Sequence[RequiredColumns]) -> InputMode:
        return self.columns_mode(None, None)

    def columns_mode(self, reason: str | None, late: RequiredColumns | None) -> InputMode:
        """How it takes records. ``reason``: why one by one, whatever it folds; ``late``: what is needed of late ones."""
        in_columns = self.olds_in_columns or not self.sends_olds
        if reason is None and in_columns and self.fold.kept is not None and self.keeps_records:
            updates = self.emission == "every_update"
            return keeping_mode(self.fold.kept, late, updates=updates, olds=self.sends_olds)
        folds = bool(self.fold.parts) and not self.fold.partials
        if reason is None and folds and self.emission == "every_update":
            reason = why_no_updates(self.fold)
        if reason is None and folds and in_columns:
            return folding_mode(self.fold.parts, late)
        merges = merges_in_columns(self.fold) or (self.fold.partials and self.tallied is not None)
        if reason is None and in_columns and merges and self.emission != "every_update":
            return counting_mode(late, why_rows=None, sums=True)
        counts = self.fold.counts or self.fold.sums
        reason = reason or why_rows(counts=counts, sends_olds=self.sends_olds, ready=self.fold.timed)
        return counting_mode(late, why_rows=reason, sums=self.fold.sums)

    @property
    def values_choose_windows(self) -> bool:
        """Whether the window of a record depends on its value."""
        return False

    def reads_values(self, port: int) -> bool:
        counts = self.fold.counts and self.fold.result is None
        needs_none = counts or port in self.fold.unread
        return not needs_none or self.values_choose_windows or len(self.out_ports) > 1

    @property
    def keeps_records(self) -> bool:
        """Whether it keeps whole values of the records that it gets."""
        return self.fold.kept is not None and not self.fold.partials

    def row_reason(self, port: int, given: EdgeLayout) -> str | None:
        if self.keeps_records and self.lists_of_keys:  # next to columns of values, lists of keys are as good
            given = dataclasses.replace(given, keys=given.keys or given.values)
        return super().row_reason(port, given)

    def output_layout(self, port: int, given: EdgeLayout, input_mode: InputMode) -> EdgeLayout:
        if port > 0:  # late records, as they came
            return given
        if input_mode.rows is None and self.keeps_records:
            return self._layout_of_kept(given)
        if input_mode.rows is None and self.fold.parts:
            if self.emission == "per_commit" and self.tallied is not None:
                shown = ShownParts.why_not(self.fold.result_of_parts) is None
                return EdgeLayout(keys=True, values=True, olds=True) if shown else ROW_LAYOUT
            return ROW_LAYOUT if self.fold.partials else self._layout_of_parts()
        counts = input_mode.rows is None
        # results held until a commit are kept in columns if the store can tally, which window stores cannot
        shown = self.emission == "every_update" or (self.emission == "per_commit" and tallies(self.store))
        return EdgeLayout(keys=True, values=True) if counts and shown else ROW_LAYOUT

    def _layout_of_kept(self, given: EdgeLayout) -> EdgeLayout:
        if self.emission == "per_commit":
            one = not isinstance(self.fold.kept, KeptBest) and not self.sends_olds
            return EdgeLayout(values=True, fields=frozenset()) if one else ROW_LAYOUT
        if self.emission != "every_update":
            return ROW_LAYOUT
        keys = given.keys or not self.lists_of_keys
        # a single value is passed on as bytes, of which no field has been read
        return EdgeLayout(keys) if isinstance(self.fold.kept, KeptBest) else EdgeLayout(keys, True, fields=frozenset())

    def _layout_of_parts(self) -> EdgeLayout:
        if self.emission == "every_update":
            return EdgeLayout(keys=True, values=True, olds=True)
        if self.emission == "per_commit" and self.flushes_columns:
            return PartFlush.layout(self.fold.result_of_parts, self.store.key_serde)
        return ROW_LAYOUT

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
    built = request.apart
    store = StoreSpec(request.name, "key_value", request.key, built.value)
    stores = with_members(store, built.fold)
    spec = AggregateSpec(in_ports=request.in_ports, stores=stores, emission=request.emission, fold=built.fold)
    return BuiltOperator(spec, request.key, built)


class AggregateOperator(Operator):
    """The running form. It keeps the state, and decides what is emitted when; the strategies in ``folds`` apply
    records to entries."""

    def __init__(self, ctx: OperatorContext, spec: AggregateSpec) -> None:
        super().__init__(ctx)
        self._key_serde: Serde[Any] = spec.store.key_serde
        self._result = spec.fold.result
        self._sends_olds = spec.sends_olds
        self._may_skip = not spec.fold.partials
        self._lists_of_keys = spec.keeps_records and spec.lists_of_keys
        self._emits: Emission | None = spec.emission if ctx.has_consumers else None
        """When changes are emitted; ``None``: never, because there are no consumers."""
        self._folded = False
        """Whether records were folded by columns: then results are emitted as columns, too."""
        self._changed: dict[bytes, Any] = {}
        self._olds: dict[bytes, Any] | None = {} if spec.sends_olds else None
        """The last emitted value of each key that changed since the last commit."""
        self._flush_parts: PartFlush | None = None
        if spec.flushes_columns and spec.fold.parts and not spec.fold.partials:
            self._flush_parts = PartFlush(spec.fold.parts, spec.fold.result_of_parts, self._key_serde)
        self.fold_in(spec, ctx.state(spec.store.name))

    def fold_in(self, spec: AggregateSpec, state: KeyValueStoreView) -> None:
        """Choose how records are folded into a store."""
        self._state = state
        self._members = None if spec.fold.distinct is None else MemberStore(self.ctx.state(spec.stores[1].name))
        updates, olds, members = spec.emission == "every_update", spec.sends_olds, self._members
        self._rows = row_fold(state, spec.fold, members=members, updates=updates, olds=olds)
        show = self.ctx.emit if self._emits == "every_update" else None
        self._columns = None
        if spec.olds_in_columns or not olds:
            out_keys = self.out_keys_of_columns()
            self._columns = column_fold(
                state, spec.fold, members=members, updates=updates, olds=olds, show=show, out_keys=out_keys
            )
        self._kept = None if olds else KeptResults.of_fold(spec.fold.kept)
        self._own_keys = self._kept is not None and type(self).out_keys is AggregateOperator.out_keys
        """Whether keys are shown as they are in the store, so that they need not be read before."""
        self._held = None if spec.sends_olds else held_fold(self._columns, state, self._key_serde, spec.fold)
        self._tallied = TalliedParts.of(state, spec.fold, spec.tallied, self._key_serde)

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

    def out_keys_of_columns(self) -> OutKeys | None:
        """The keys of updates by columns; ``None``: records keep their keys."""
        return None

    # -- records -------------------------------------------------------------------------------------------------

    def process_columns(self, port: int, batch: ColumnBatch) -> Batch | None:
        if self._columns is None and self._tallied is None:
            return batch
        if batch.key_column is None and not self._lists_of_keys:
            return batch
        usable = self.usable(batch)
        assert isinstance(usable, ColumnBatch)
        if not len(usable) or (self._held is not None and self._held.fold(usable)) or self.tally(usable):
            return None
        found = entries_of(usable, self._key_serde)
        return None if found is not None and self.fold_columns(usable, found) else usable

    def process(self, port: int, batch: Batch) -> None:
        keys, batch = serialize_keys(self.ctx, self.usable(batch), self._key_serde)
        if keys:
            self.apply(port, batch, keys)

    def tally(self, batch: ColumnBatch, starts: Ints | None = None) -> bool:
        """Fold records without nulls in the compiled part. ``starts``: of their windows. ``False``: nothing was done."""
        if self._tallied is None or not self._tallied.fold(batch, starts):
            return False
        self._folded = True
        return True

    def tallied_keys(self, found: TalliedNumbers) -> Column:
        """The keys of emitted records."""
        return stored_keys(BytesColumn(*found.names), self._key_serde)

    def fold_columns(self, batch: ColumnBatch, touched: Touched) -> bool:
        """Fold records into the entries that they touch, and emit. ``False``: nothing was done."""
        if self._columns is None:
            return False
        olds: list[Any] = []
        if self._olds is not None and self._emits == "per_commit":
            self._state.load(touched.entries.store_keys)
            olds = list(map(self._state.entries.__getitem__, touched.entries.store_keys))
        if not self._columns.fold(batch, touched):
            return False
        self._folded = True
        if self._emits == "per_commit":
            for store_key, old in zip(touched.entries.store_keys, olds, strict=False):
                assert self._olds is not None
                self._olds.setdefault(store_key, None if old is None else old[0])
            if self._own_keys and has_bytes_of(batch.key_column, self._key_serde):
                self._changed.update(dict.fromkeys(touched.entries.store_keys, _UNREAD))
            else:
                self._changed.update(zip(touched.entries.store_keys, touched.entries.keys, strict=True))
        return True

    def apply(self, port: int, batch: Batch, store_keys: list[bytes]) -> None:
        """Fold records that have a store key each, and emit."""
        self._state.load(store_keys)
        self.done(batch, store_keys, self._rows.fold(port, batch, store_keys, self.row_failed))

    def row_failed(self, batch: Batch, index: int, error: Exception) -> None:
        """A user function raised for a row."""
        self.ctx.failed(batch, index, error, may_skip=self._may_skip)

    def done(self, batch: Batch, store_keys: list[bytes], changes: Changes | None) -> None:
        """Mark what changed, and emit it or keep it for the commit."""
        if changes is None:
            if self._emits == "per_commit":
                self._changed.update(zip(store_keys, batch.keys, strict=True))
            return
        places, values, timestamps, olds = changes
        if places is not None:
            store_keys, batch = [store_keys[i] for i in places], batch.pick(places)
        self._state.dirty.update(zip(store_keys, timestamps, strict=True))
        if self._emits == "every_update":
            keys = self.out_keys(store_keys, batch.keys)
            out = Batch(keys, values, timestamps, batch.order, batch.headers, olds)
            self.ctx.emit(self.shown(out))
        elif self._emits == "per_commit":
            if self._olds is not None and olds is not None:
                for store_key, old in zip(store_keys, olds, strict=True):
                    self._olds.setdefault(store_key, old)
            self._changed.update(zip(store_keys, batch.keys, strict=True))

    # -- emission ------------------------------------------------------------------------------------------------

    def shown(self, batch: Batch) -> Batch:
        """The batch with results instead of aggregates."""
        result = self._result
        if result is None:
            return batch

        if self._folded and self._kept is not None and len(batch) >= FEWEST:
            kept = self._kept.of(batch.values)
            if kept is not None:
                return batch.replace(values=kept)

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
        settled = self._held.flush(self.ctx.emit) if self._held is not None and self._emits is not None else None
        if self._tallied is not None and self._emits == "per_commit":
            settled = self._tallied.flush(self.ctx.emit, self.tallied_keys)
        if settled:
            self._changed = settled | self._changed
        self._flush_changed()

    def _flush_changed(self) -> None:
        if not self._changed:
            return
        flushed = self._flushed() if self._folded else None
        if flushed is not None:
            self._changed.clear()
            if self._olds is not None:
                self._olds.clear()
            self.ctx.emit(flushed)
            return
        keys = self._changed_keys()
        values: list[Any] = []
        timestamps: list[int] = []
        for store_key in self._changed:
            # what changed since the last commit is an entry, even if its window has expired since
            found = self._state.unpack(self._state.entries[store_key], store_key)
            values.append(None if found is None else found[0])
            timestamps.append(self._state.dirty[store_key] if found is None else found[1])
        olds = None if self._olds is None else list(map(self._olds.__getitem__, self._changed))
        self._changed.clear()
        if self._olds is not None:
            self._olds.clear()
        if isinstance(keys, Column):
            nowhere = np.zeros(len(keys), np.int64)
            self.ctx.emit(self.shown(ColumnBatch(keys, values, np.array(timestamps, np.int64), nowhere, None, olds)))
        else:
            self.ctx.emit(self.shown(Batch(keys, values, timestamps, [0] * len(keys), None, olds)))

    def _changed_keys(self) -> list[Any] | Column:
        """The keys that changed since the last commit."""
        store_keys, keys = list(self._changed), list(self._changed.values())
        unread = sum(key is _UNREAD for key in keys)
        if unread == len(keys):
            return WrittenColumn(BytesColumn.of(list(store_keys)), self._key_serde, Coder())
        if unread:
            read = self._key_serde.deserialize
            keys = [read(data) if key is _UNREAD else key for data, key in zip(store_keys, keys, strict=True)]
        return self.out_keys(store_keys, keys)

    def _flushed(self) -> ColumnBatch | None:
        """The results that changed since the commit, as columns; ``None``: row by row."""
        if self._flush_parts is None or not self._state.immutable:
            return None
        store_keys = list(self._changed)
        entries = list(map(self._state.entries.__getitem__, store_keys))
        if None in entries:
            return None
        olds = None if self._olds is None else list(map(self._olds.__getitem__, store_keys))
        return self._flush_parts.of(store_keys, [e[0] for e in entries], [e[1] for e in entries], olds)
