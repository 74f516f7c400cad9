"""Partial aggregates while they are held, by span (``WindowSpan``) and key.

They do not use the fold strategies of an aggregation (``folds``), for three reasons. A strategy folds into the entries of
a store, by store key; partials have no store, and writing a store key for each record would cost what combining saves.
A strategy lists the update that each record made; here nobody reads them. And partials are sent in the order in which
their keys first had a record, so a deleted key must leave its place, while an entry of a store keeps it.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import count
from types import ModuleType
from typing import Any, Final, NamedTuple

import numpy as np

from penstock.state.native import compiled
from penstock.state.serdes.serde import Serde
from penstock.state.stores.count_store import Tally
from penstock.topologies.columnar.encoded_columns import EncodedColumn
from penstock.topologies.columnar.kernels import Coder, packed
from penstock.topologies.operator_api.batch import Batch, ColumnBatch
from penstock.topologies.operator_api.columns import BytesColumn, Column, Ints, NumberColumn, Places, joined
from penstock.topologies.operator_api.operator import NO_TIME
from penstock.topologies.operators.aggregates.column_combining import Spans
from penstock.topologies.operators.columnar.distinct import ValueColumns
from penstock.topologies.operators.columnar.grouping import Entries
from penstock.topologies.windows import END_OF_TIME_MS

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


class SpanPartials(NamedTuple):
    """Partials of a batch's records of one span, not held yet. ``span``: where it begins; ``keys``: distinct, in the order
    of their first records; ``partials``: numbers of records, or aggregates that have taken in what was held before;
    ``latest``: the highest timestamp of each key's records; ``earliest``: the lowest one, for sessions; ``values``: those of
    distinct counts, if they are not in the partials."""

    span: int
    keys: list[Any]
    partials: list[Any] | Ints
    latest: Ints
    records: int
    values: ValueColumns | None = None
    earliest: Ints | None = None


class PartialAggregates:
    """The held partials. ``folded``: how many records went into partials that may grow with them."""

    folded = 0
    in_columns = True
    """Whether records can be added as columns."""

    @property
    def held(self) -> int:
        """How many partials there are."""
        raise AssertionError(type(self).__name__)

    def readable(self, batch: Batch) -> Batch:
        """The records whose values can be written, with their values as the aggregation would have read them."""
        return batch

    def reads(self, batch: ColumnBatch) -> bool:
        """Whether all values of a batch, of which none is null, are sure to be ``readable`` as they are."""
        return True

    def add(self, span: int, keys: list[Any], batch: Batch) -> None:
        """Add records of one span, in task order. ``keys``: hashable, one for each."""
        raise AssertionError(type(self).__name__)

    def add_spans(self, batch: ColumnBatch, spans: Spans) -> bool:
        """Add a batch's records without finding their groups, if possible. ``False``: nothing was done."""
        return False

    def of_columns(self, span: int, keys: list[Any], found: Entries, batch: ColumnBatch) -> SpanPartials | None:
        """The partials of a batch's columns, for ``put``; nothing is done yet. ``keys``: those of the groups. ``None``: row
        by row."""
        return None

    def put(self, made: SpanPartials) -> None:
        """Hold partials of records."""
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

    def of_columns(self, span: int, keys: list[Any], found: Entries, batch: ColumnBatch) -> SpanPartials | None:
        return SpanPartials(span, keys, found.counts(), found.latest(batch.times), len(batch))

    def put(self, made: SpanPartials) -> None:
        counted = self._spans.setdefault(made.span, _Counted())
        numbers = np.fromiter(map(counted.index.__getitem__, made.keys), np.intp, len(made.keys))
        counted.add_distinct(numbers, np.asarray(made.partials), made.latest)

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

    def put(self, made: SpanPartials) -> None:
        column, latest = packed(made.keys), np.ascontiguousarray(made.latest)
        done = self._of(made.span).add(column.data, column.offsets, np.asarray(made.partials, np.int64), latest)
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


class SessionPartials(CountPartials):
    """Numbers of records as two partials for each key and span, no longer than a gap: one at the time of the first record,
    and one for the last record, unless they have the same time."""

    def __init__(self, serde: Serde[Any]) -> None:
        super().__init__()
        self._latest = count_partials(serde)
        self._earliest = count_partials(serde)
        """Holds times as what is left to the end of time, of which it keeps the highest."""

    @property
    def held(self) -> int:
        return 2 * self._latest.held

    def add(self, span: int, keys: list[Any], batch: Batch) -> None:
        self._latest.add(span, keys, batch)
        left = END_OF_TIME_MS - batch.times
        self._earliest.add(span, keys, ColumnBatch(keys, batch.values, left, np.asarray(batch.order)))

    def add_column(self, span: int, keys: Column | None, times: Ints) -> bool:
        return self._latest.add_column(span, keys, times) and self._earliest.add_column(
            span, keys, END_OF_TIME_MS - times
        )

    def of_columns(self, span: int, keys: list[Any], found: Entries, batch: ColumnBatch) -> SpanPartials | None:
        made = super().of_columns(span, keys, found, batch)
        return None if made is None else made._replace(earliest=found.latest(END_OF_TIME_MS - batch.times))

    def put(self, made: SpanPartials) -> None:
        assert made.earliest is not None
        self._latest.put(made)
        self._earliest.put(made._replace(latest=made.earliest))

    def taken(self) -> Taken:
        latest, earliest = self._latest.taken(), self._earliest.taken()
        if not len(latest.times):
            return latest
        counts = latest.partials
        assert isinstance(counts, NumberColumn)
        first = END_OF_TIME_MS - earliest.times
        two = first < latest.times
        places = np.flatnonzero(two)
        return Taken(
            _repeated(latest.keys, places),
            NumberColumn(np.concatenate([counts.array - two, np.ones(len(places), np.int64)])),
            np.concatenate([first, latest.times[places]]),
        )


def _repeated(keys: list[Any] | Column, places: Places) -> list[Any] | Column:
    """The keys, and those at these places again."""
    if isinstance(keys, list):
        return keys + [keys[i] for i in places.tolist()]
    whole = joined([keys, keys.take(places)])
    assert whole is not None
    return whole


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
