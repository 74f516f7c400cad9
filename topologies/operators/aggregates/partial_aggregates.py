"""Partial aggregates while they are held, by span (``WindowSpan``) and key.

They do not use the fold strategies of an aggregation (``folds``), for three reasons. A strategy folds into the entries of
a store, by store key; partials have no store, and writing a store key for each record would cost what combining saves.
A strategy lists the update that each record made; here nobody reads them. And partials are sent in the order in which
their keys first had a record, so a deleted key must leave its place, while an entry of a store keeps it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import count
from types import ModuleType
from typing import Any, Final, NamedTuple

import numpy as np

from penstock.state.errors import SerdeError
from penstock.state.native import compiled
from penstock.state.serdes.serde import Serde
from penstock.state.stores.count_store import Tally
from penstock.topologies.columnar.encoded_columns import EncodedColumn
from penstock.topologies.columnar.kernels import Coder, packed
from penstock.topologies.operator_api.batch import Batch, ColumnBatch
from penstock.topologies.operator_api.columns import BytesColumn, Column, Ints, NumberColumn, Places, joined
from penstock.topologies.operator_api.operator import NO_TIME, OperatorContext
from penstock.topologies.operators.aggregates.fold import Fold
from penstock.topologies.operators.aggregates.folds.best_texts import BestTexts
from penstock.topologies.operators.base.row_functions import map_rows
from penstock.topologies.operators.columnar.grouping import Entries

_LEAST: Final = 64
"""Initial room for counts."""
_MANY: Final = 8
"""With this many times more keys than records in a batch, only the keys of the batch are touched."""

_FEW: Final = "no task sees 2**63 records between two commits"


class Taken(NamedTuple):
    """Partials to be sent; ``times`` are the highest timestamps of their records."""

    keys: list[Any] | Column
    partials: list[Any] | Column
    times: Ints


class PartialAggregates:
    """The held partials. ``folded``: how many records went into partials that may grow with them."""

    folded = 0

    @property
    def held(self) -> int:
        """How many partials there are."""
        raise AssertionError(type(self).__name__)

    def readable(self, batch: Batch) -> Batch:
        """The records whose values can be written, with their values as the aggregation would have read them."""
        return batch

    def add(self, span: int, keys: list[Any], batch: Batch) -> None:
        """Add records of one span, in task order. ``keys``: hashable, one for each."""
        raise AssertionError(type(self).__name__)

    def taken(self) -> Taken:
        """Return all partials and forget them; spans and keys in the order in which they first had a record."""
        raise AssertionError(type(self).__name__)


class CountPartials(PartialAggregates):
    """Numbers of records. A record costs one look-up of its key, in C, and what arrays take."""

    def __init__(self) -> None:
        self._spans: dict[int, _Counted] = {}

    @property
    def held(self) -> int:
        return sum(len(counted.index) for counted in self._spans.values())

    def add(self, span: int, keys: list[Any], batch: Batch) -> None:
        counted = self._spans.setdefault(span, _Counted())
        numbers = np.fromiter(map(counted.index.__getitem__, keys), np.intp, len(keys))
        counted.add(numbers, batch.times)

    def add_counts(self, span: int, keys: Sequence[Any], counts: Ints | list[int], times: Ints | list[int]) -> None:
        """Add records that are counted already. ``keys``: distinct; ``times``: the highest timestamp of each."""
        counted = self._spans.setdefault(span, _Counted())
        numbers = np.fromiter(map(counted.index.__getitem__, keys), np.intp, len(keys))
        counted.add_distinct(numbers, np.asarray(counts), np.asarray(times))

    def add_column(self, span: int, keys: Column | None, times: Ints) -> bool:
        """Add records as columns, if possible. ``False``: nothing was done."""
        return False

    def taken(self) -> Taken:
        spans = list(self._spans.values())
        self._spans = {}
        if not spans:
            return Taken([], [], np.empty(0, np.int64))
        return Taken(
            [key for counted in spans for key in counted.index],
            NumberColumn(np.concatenate([counted.counts[: len(counted.index)] for counted in spans])),
            np.concatenate([counted.latest[: len(counted.index)] for counted in spans]),
        )


class TalliedPartials(CountPartials):
    """Partial aggregates in the compiled part, where no key becomes an object."""

    def __init__(self, serde: Serde[Any], module: ModuleType) -> None:
        super().__init__()
        self._serde = serde
        self._coder = Coder()
        self._module = module
        self._tallies: dict[int, Tally] = {}
        self._spare: list[Tally] = []

    @property
    def held(self) -> int:
        return sum(map(len, self._tallies.values()))

    def add(self, span: int, keys: list[Any], batch: Batch) -> None:
        column = packed(keys)
        done = self._of(span).add(column.data, column.offsets, None, np.ascontiguousarray(batch.times))
        assert done, _FEW

    def add_counts(self, span: int, keys: Sequence[Any], counts: Ints | list[int], times: Ints | list[int]) -> None:
        column, numbers, latest = packed(list(keys)), np.array(counts, np.int64), np.array(times, np.int64)
        done = self._of(span).add(column.data, column.offsets, numbers, latest)
        assert done, _FEW

    def add_column(self, span: int, keys: Column | None, times: Ints) -> bool:
        if not isinstance(keys, EncodedColumn) or keys.serde != self._serde or keys.nulls is not None:
            return False
        times = np.ascontiguousarray(times)
        coded = keys.by_codes
        if coded is None:
            data, offsets, _ = keys.raw.raw()
            return self._of(span).add(data, offsets, None, times)
        data, offsets, _ = coded[1].raw()
        return self._of(span).add_coded(np.ascontiguousarray(coded[0]), data, offsets, times)

    def _of(self, span: int) -> Tally:
        tally = self._tallies.get(span)
        if tally is None:
            made: Tally = self._spare.pop() if self._spare else self._module.Tally()
            tally = self._tallies[span] = made
        return tally

    def taken(self) -> Taken:
        tallies = list(self._tallies.values())
        self._tallies = {}
        if not tallies:
            return Taken([], [], np.empty(0, np.int64))
        columns = [tally.columns() for tally in tallies]
        tallies[0].clear()
        self._spare = tallies[:1]
        keys = joined([BytesColumn(data, np.frombuffer(offsets, np.int64)) for data, offsets, _, _ in columns])
        assert isinstance(keys, BytesColumn)
        return Taken(
            EncodedColumn(keys, self._serde, self._coder),
            NumberColumn(np.concatenate([np.frombuffer(counts, np.int64) for _, _, counts, _ in columns])),
            np.concatenate([np.frombuffer(times, np.int64) for *_, times in columns]),
        )


def count_partials(serde: Serde[Any]) -> CountPartials:
    """Numbers of records by keys that are of this serde, BYTES or STRING."""
    module = compiled()
    return CountPartials() if module is None else TalliedPartials(serde, module)


class _Counted:
    """The counts of one span. ``index``: the number of each key, given in the order in which they come."""

    def __init__(self) -> None:
        self.index: defaultdict[Any, int] = defaultdict(count().__next__)
        self.counts = np.zeros(_LEAST, np.int64)
        self.latest = np.full(_LEAST, NO_TIME, np.int64)
        self._highest = NO_TIME

    def add(self, numbers: Places, times: Ints) -> None:
        """Records by their keys' numbers."""
        size = self._fit()
        if size > _MANY * len(numbers):
            np.add.at(self.counts, numbers, 1)
        else:
            self.counts[:size] += np.bincount(numbers, minlength=size)
        if times[0] >= self._highest and bool((times[1:] >= times[:-1]).all()):
            self.latest[numbers] = times  # of several times for one number the last one stays
            self._highest = int(times[-1])
        else:
            np.maximum.at(self.latest, numbers, times)
            self._highest = max(self._highest, int(times.max()))

    def add_distinct(self, numbers: Places, counts: Ints, times: Ints) -> None:
        """Counts of keys, each once."""
        self._fit()
        self.counts[numbers] += counts
        self.latest[numbers] = np.maximum(self.latest[numbers], times)
        self._highest = max(self._highest, int(times.max()))

    def _fit(self) -> int:
        """Make room for all keys; how many there are."""
        size = len(self.index)
        if size > len(self.counts):
            more = max(size, 2 * len(self.counts)) - len(self.counts)
            self.counts = np.concatenate([self.counts, np.zeros(more, np.int64)])
            self.latest = np.concatenate([self.latest, np.full(more, NO_TIME, np.int64)])
        return size


class FoldPartials(PartialAggregates):
    """Aggregates of any fold. Values are as the aggregation after the topic would have read them, and held aggregates
    are as its store would have returned them: an adder gets the same objects, whatever the serdes change."""

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
        write, read = serde.serialize, serde.deserialize
        values, batch = map_rows(self._ctx, batch, lambda value: read(write(value)), batch.values)
        return batch.replace(values=values)

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
        self.folded += len(keys)

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

    def __init__(
        self, ctx: OperatorContext, fold: Fold, record_serde: Serde[Any], partial_serde: Serde[Any], best: BestTexts
    ) -> None:
        super().__init__(ctx, fold, record_serde, partial_serde)
        self._best = best

    def add_columns(self, span: int, keys: list[Any], found: Entries, batch: ColumnBatch) -> bool:
        """Add records of one span. ``keys``: those of the groups. ``False``: nothing was done."""
        held = self._held.get(span, {})
        before = list(map(held.get, keys))
        try:
            accs = [() if entry is None else entry[0] for entry in before]
            new = self._best.with_records(found.groups.numbers, batch, accs)
        except Exception:  # raised again at its record
            return False
        if new is None:
            return False
        held = self._held.setdefault(span, {})
        for key, acc, ts, entry in zip(keys, new, found.latest(batch.times).tolist(), before, strict=True):
            held[key] = acc, ts if entry is None else max(ts, entry[1])
        self.folded += len(batch)
        return True


def partials_of(ctx: OperatorContext, fold: Fold, record_serde: Serde[Any], partial_serde: Serde[Any]) -> FoldPartials:
    """Partial aggregates of a fold that does not count."""
    best = BestTexts.of_fold(fold.kept)
    if best is None:
        return FoldPartials(ctx, fold, record_serde, partial_serde)
    return BestPartials(ctx, fold, record_serde, partial_serde, best)
