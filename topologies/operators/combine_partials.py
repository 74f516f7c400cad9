"""Partial aggregates while they are held, by span (see ``combine_spans``) and key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from penstock.state.errors import SerdeError
from penstock.state.serde import Serde
from penstock.topologies.batch import Batch
from penstock.topologies.operator import OperatorContext
from penstock.topologies.operators.fold import Fold
from penstock.topologies.operators.rows import map_rows


class Partials:
    """What is held. ``folded``: how many records went into partials that may grow with them."""

    folded = 0

    @property
    def held(self) -> int:
        """How many partials there are."""
        raise AssertionError(type(self).__name__)

    def readable(self, batch: Batch) -> Batch:
        """The records whose values can be written, with their values as the aggregation would have read them."""
        return batch

    def add(self, span: int, keys: list[Any], batch: Batch) -> None:
        """Take in records of one span, in task order. ``keys``: hashable, one for each."""
        raise AssertionError(type(self).__name__)

    def taken(self) -> tuple[list[Any], list[Any], list[int]]:
        """Keys, partials and timestamps of all that is held, which is held no longer; spans and keys in the order in
        which they first had a record."""
        raise AssertionError(type(self).__name__)


class CountPartials(Partials):
    """Numbers of records. Every step is one of C over a run of records."""

    def __init__(self) -> None:
        self._counts: dict[int, Counter[Any]] = {}
        self._latest: dict[int, dict[Any, int]] = {}
        """The highest timestamps, under the same keys in the same order."""
        self._highest: dict[int, int] = {}
        """Of all keys of a span."""

    @property
    def held(self) -> int:
        return sum(map(len, self._counts.values()))

    def add(self, span: int, keys: list[Any], batch: Batch) -> None:
        times = batch.timestamps
        latest = dict(zip(keys, times, strict=True))
        first, last = times[0], times[-1]
        if times != sorted(times):
            for key, ts in zip(keys, times, strict=True):
                if ts > latest[key]:
                    latest[key] = ts
            first, last = min(times), max(times)
        self._note(span, latest, first, last)
        self._counts[span].update(keys)

    def add_counts(self, span: int, keys: Sequence[Any], counts: Iterable[int], timestamps: Sequence[int]) -> None:
        """The same of records that are counted already. ``keys``: distinct, in the order in which they first had one of
        the records; ``timestamps``: the highest of each."""
        if keys:
            self._note(span, dict(zip(keys, timestamps, strict=True)), min(timestamps), max(timestamps))
            self._counts[span].update(dict(zip(keys, counts, strict=True)))

    def _note(self, span: int, latest: dict[Any, int], lowest: int, highest: int) -> None:
        """Timestamps of keys, all of them between these two."""
        known = self._latest.get(span)
        if known is None:
            self._counts[span], self._latest[span], self._highest[span] = Counter(), latest, highest
        elif lowest >= self._highest[span]:
            known.update(latest)
            self._highest[span] = highest
        else:
            for key, ts in latest.items():
                if known.get(key, -1) < ts:
                    known[key] = ts
            self._highest[span] = max(highest, self._highest[span])

    def taken(self) -> tuple[list[Any], list[Any], list[int]]:
        keys: list[Any] = []
        counts: list[int] = []
        timestamps: list[int] = []
        for span, counted in self._counts.items():
            keys += counted
            counts += counted.values()
            timestamps += self._latest[span].values()
        self._counts, self._latest, self._highest = {}, {}, {}
        return keys, counts, timestamps


class FoldPartials(Partials):
    """Aggregates of any fold. Values are what the aggregation would have read behind the topic, and what is held is what
    its store would have given back: an adder meets the same objects, whatever serdes make of what they are given."""

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
        """What makes of an aggregate what is held; ``None``: it is held as it is."""
        if self._plain:
            return None
        write, read, exact = self._partial_serde.serialize, self._partial_serde.deserialize, self._exact
        if self._as_bytes:
            return write
        return lambda new: new if type(new) is exact else read(write(new))

    def taken(self) -> tuple[list[Any], list[Any], list[int]]:
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
        return keys, partials, timestamps
