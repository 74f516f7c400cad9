"""Partial aggregates of folds that do not count, while they are held."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.state.errors import SerdeError
from penstock.state.native import compiled
from penstock.state.serdes.serde import JSON, STRING, Serde
from penstock.state.serdes.tuple_lists import BAG, forms_with_bags
from penstock.topologies.aggregators.bag import Bag
from penstock.topologies.columnar.column_parts import nulls_of
from penstock.topologies.columnar.encoded_columns import SAME_BYTES, EncodedColumn, ParsedColumn, WrittenColumn
from penstock.topologies.columnar.json_writing import DictOf
from penstock.topologies.columnar.kernels import Coder
from penstock.topologies.operator_api.batch import Batch, ColumnBatch
from penstock.topologies.operator_api.columns import BytesColumn, Column, NumberColumn, StructColumn
from penstock.topologies.operator_api.operator import OperatorContext
from penstock.topologies.operators.aggregates.fold import Fold
from penstock.topologies.operators.aggregates.folds.best_texts import BestTexts
from penstock.topologies.operators.aggregates.partial_aggregates import PartialAggregates, SpanPartials, Taken
from penstock.topologies.operators.base.row_functions import map_rows
from penstock.topologies.operators.columnar.distinct import Bags, ValueColumns
from penstock.topologies.operators.columnar.folding import DISTINCT, PartFolds
from penstock.topologies.operators.columnar.grouping import Entries
from penstock.topologies.operators.columnar.row_texts import written_texts
from penstock.topologies.operators.columnar.source import json_decoder

_NO_GROUP = -1


class FoldPartials(PartialAggregates):
    """Aggregates of any fold. Values are as the aggregation after the topic would have read them, and held aggregates
    are as its store would have returned them: an adder gets the same objects, whatever the serdes change."""

    in_columns = False

    def __init__(self, ctx: OperatorContext, fold: Fold, record_serde: Serde[Any], partial_serde: Serde[Any]) -> None:
        self._ctx = ctx
        self._fold = fold
        self._record_serde = record_serde
        self._partial_serde = partial_serde
        self._held: dict[int, dict[Any, tuple[Any, int]]] = {}
        # ready aggregates (timed) promise that accumulators are immutable and come back equal
        self._as_bytes = not (fold.timed or partial_serde.immutable)
        self._exact = None if fold.timed else partial_serde.exact
        self._plain = fold.timed
        self._readable = ReadableColumns(record_serde)
        self._grows = True
        """Whether a partial may grow with its records."""

    @property
    def held(self) -> int:
        return sum(map(len, self._held.values()))

    def readable(self, batch: Batch) -> Batch:
        serde = self._record_serde
        if serde.immutable and set(map(type, batch.values)) == {serde.exact}:
            try:
                serde.serialize_all(batch.values)
                return batch
            except SerdeError:  # met again below, with its row
                pass
        if isinstance(batch, ColumnBatch) and self._readable.are_dicts(batch.value_column):
            assert batch.value_column is not None
            return batch.replace(values=batch.value_column.to_list())  # its own: an adder may change them
        write, read = serde.serialize, serde.deserialize
        values, batch = map_rows(self._ctx, batch, lambda value: read(write(value)), batch.values)
        return batch.replace(values=values)

    def reads(self, batch: ColumnBatch) -> bool:
        return self._readable.are(batch.value_column)

    def add(self, span: int, keys: list[Any], batch: Batch) -> None:
        held = self._held.setdefault(span, {})
        stored, given = self._storing(), self._partial_serde.deserialize if self._as_bytes else None
        init, adder, timed = self._fold.init, self._fold.adders[0], self._fold.timed
        rows = zip(keys, batch.keys, batch.values, batch.timestamps, strict=True)
        for i, (group, key, value, ts) in enumerate(rows):
            found = held.get(group)
            row = (value, ts) if timed else value
            try:
                if found is None:
                    new = value if init is None else adder(key, row, init())
                else:
                    old, old_ts = found
                    new = adder(key, row, old if given is None else given(old))
                    if old_ts > ts:
                        ts = old_ts
                if new is not None:
                    held[group] = (new if stored is None else stored(new), ts)
                elif found is not None:
                    del held[group]
            except Exception as exc:
                self._ctx.failed(batch, i, exc)
        if self._grows:
            self.folded += len(keys)

    def put(self, made: SpanPartials) -> None:
        held = self._held.setdefault(made.span, {})
        for key, partial, ts in zip(made.keys, made.partials, made.latest.tolist(), strict=True):
            found = held.get(key)
            held[key] = partial, ts if found is None or found[1] < ts else found[1]
        if self._grows:
            self.folded += made.records

    def _held_before(self, span: int, keys: list[Any], absent: Any) -> list[Any]:
        """The partial of each key that is held; ``absent`` where there is none."""
        held = self._held.get(span)
        if held is None:
            return [absent] * len(keys)
        return [absent if entry is None else entry[0] for entry in map(held.get, keys)]

    def _storing(self) -> Callable[[Any], Any] | None:
        """Converts an aggregate to what is held; ``None``: it is held as it is."""
        if self._plain:
            return None
        write, read, exact = self._partial_serde.serialize, self._partial_serde.deserialize, self._exact
        if self._as_bytes:
            return write
        return lambda new: new if type(new) is exact else read(write(new))

    def taken(self) -> Taken:
        keys: list[Any] = []
        partials: list[Any] = []
        timestamps: list[int] = []
        for held in self._held.values():
            keys += held
            partials += [partial for partial, _ in held.values()]
            timestamps += [ts for _, ts in held.values()]
        if self._as_bytes:
            partials = list(map(self._partial_serde.deserialize, partials))
        self._held = {}
        self.folded = 0
        return Taken(keys, partials, np.array(timestamps, np.int64))


class BestPartials(FoldPartials):
    """Values that are kept by rank. Those that come as columns stay bytes."""

    in_columns = True

    def __init__(
        self, ctx: OperatorContext, fold: Fold, record_serde: Serde[Any], partial_serde: Serde[Any], best: BestTexts
    ) -> None:
        super().__init__(ctx, fold, record_serde, partial_serde)
        self._best = best

    def of_columns(self, span: int, keys: list[Any], found: Entries, batch: ColumnBatch) -> SpanPartials | None:
        try:
            made = self._best.with_records(found.groups.numbers, batch, self._held_before(span, keys, ()))
        except Exception:  # raised again at its record
            return None
        return None if made is None else SpanPartials(span, keys, made, found.latest(batch.times), len(batch))


class PartPartials(FoldPartials):
    """Tuples of accumulators of aggregate expressions. Of values that come as columns, only what these read is looked at."""

    in_columns = True

    def __init__(
        self, ctx: OperatorContext, fold: Fold, record_serde: Serde[Any], partial_serde: Serde[Any], parts: PartFolds
    ) -> None:
        super().__init__(ctx, fold, record_serde, partial_serde)
        assert fold.init is not None
        self._parts = parts
        self._init = fold.init()
        counts = [place for place, part in enumerate(fold.parts) if part.function == DISTINCT]
        self._grows = bool(counts)
        self._counts = {place: number for number, place in enumerate(counts)}
        self._forms = forms_with_bags(partial_serde.lists)
        native = compiled()
        if self._forms is not None and [i for i, form in enumerate(self._forms) if form == BAG[0]] != counts:
            self._forms = None
        self._make = None if native is None or self._forms is None else native.Bags
        self._bags: Bags | None = None
        self._numbers: dict[int, dict[Any, int]] = {}
        self._coder = Coder()

    def of_columns(self, span: int, keys: list[Any], found: Entries, batch: ColumnBatch) -> SpanPartials | None:
        columns = self._parts.columns(batch) if self.reads(batch) else None
        if columns is None:
            return None
        if self._bags is None and self._make is not None:
            self._bags = self._make()
        values = None if self._bags is None else ValueColumns(self._counts)
        made = self._parts.folded(self._held_before(span, keys, self._init), found.groups, columns, values)
        if made is None or (values is not None and self._bags is not None and not values.fits(self._bags)):
            return None
        return SpanPartials(span, keys, made, found.latest(batch.times), len(batch), values)

    def put(self, made: SpanPartials) -> None:
        super().put(made)
        if made.values is not None and self._bags is not None:
            known = self._numbers.setdefault(made.span, {})
            first, fresh = sum(map(len, self._numbers.values())), 0
            for key in made.keys:
                if known.setdefault(key, first + fresh) == first + fresh:
                    fresh += 1
            made.values.put(self._bags, np.fromiter(map(known.__getitem__, made.keys), np.int64, len(made.keys)))

    def taken(self) -> Taken:
        bags, spans = self._bags, self._numbers
        self._bags, self._numbers = None, {}
        if not bags:
            return super().taken()
        of_keys = [spans.get(span, {}).get(key, _NO_GROUP) for span, held in self._held.items() for key in held]
        keys, partials, times = super().taken()
        assert isinstance(partials, list) and self._forms is not None
        own = max(of_keys) + 1
        for place, partial in enumerate(partials):
            if of_keys[place] == _NO_GROUP:
                of_keys[place], own = own, own + 1
            for part, number in self._counts.items():
                if partial[part]:
                    bags.add_pairs(number, of_keys[place], partial[part].pairs())
        written = bags.written(partials, np.array(of_keys, np.int64), self._forms)
        if written is None:
            return Taken(keys, [self._with_bags(p, bags, n) for p, n in zip(partials, of_keys, strict=True)], times)
        return Taken(keys, WrittenColumn(BytesColumn.of_raw(*written), self._partial_serde, self._coder), times)

    def _with_bags(self, partial: tuple[Any, ...], bags: Bags, group: int) -> tuple[Any, ...]:
        parts = list(partial)
        for part, number in self._counts.items():
            parts[part] = Bag(bags.pairs(group, number))
        return tuple(parts)


class ReadableColumns:
    """Tells which columns are sure to be the values that ``serde`` reads of what it writes of them."""

    def __init__(self, serde: Serde[Any]) -> None:
        self._serde = serde
        self._as_read = serde in (*SAME_BYTES, JSON) or json_decoder(serde) is not None
        self._written = written_texts(serde)

    def are(self, column: Column | None) -> bool:
        """Whether a column's are. No null value is asked about."""
        if isinstance(column, (EncodedColumn, ParsedColumn)) and column.serde == self._serde:
            return self._as_read
        return self._written is not None and self._written.sure(column)

    def are_dicts(self, column: Column | None) -> bool:
        """Whether a column's are dicts of numbers, truths and texts."""
        if self._serde != JSON or not isinstance(column, StructColumn) or type(column.build) is not DictOf:
            return False
        return column.nulls is None and all(map(_is_plain, column.fields.values()))


def _is_plain(column: Column) -> bool:
    if nulls_of(column) is not None:
        return False
    if isinstance(column, NumberColumn):
        return column.array.dtype in (np.int64, np.bool_)
    return isinstance(column, EncodedColumn) and column.serde == STRING
