"""Aggregations per key, and per key and tumbling window.

Null keys and null values are dropped and counted. The result's timestamp is the highest of the records that went into
it. The state is read once per distinct key of a batch; what is emitted is every update, or the last one per key at each
commit (``per_commit``, as Kafka Streams with its cache), in the order in which the keys first changed.
"""

from __future__ import annotations

import dataclasses
import struct
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from penstock.state.errors import SerdeError
from penstock.state.log import Windowed
from penstock.state.serde import Serde
from penstock.state.store import StoreSpec
from penstock.state.views import window_floor
from penstock.topologies.batch import Batch
from penstock.topologies.edges import Emits
from penstock.topologies.operator import Operator, OperatorContext, OperatorSpec
from penstock.topologies.operators.rows import serialize_keys
from penstock.topologies.windows import TumblingWindows

_START = struct.Struct(">q")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Aggregate(OperatorSpec):
    """``new = adder(key, value, init())`` for a key's first record, ``adder(key, value, aggregate)`` after.

    ``init`` is ``None`` for a reduce: then the first value is the aggregate. A ``None`` result deletes the key.
    ``counts``: the aggregate is the number of records, and needs no function. The edge behind it carries upserts.
    """

    init: Callable[[], Any] | None = None
    adder: Callable[[Any, Any, Any], Any] | None = None
    counts: bool = False
    windows: TumblingWindows | None = None
    emits: Emits = "upsert"

    @property
    def store(self) -> StoreSpec:
        """Where the aggregates are kept."""
        return self.stores[0]

    def open(self, ctx: OperatorContext) -> Operator:
        """The running form."""
        return _Aggregates(ctx, self) if self.windows is None else _WindowAggregates(ctx, self, self.windows)

    def details(self) -> dict[str, Any]:
        """Store, windows and emission."""
        shown: dict[str, Any] = {"store": self.store.name, "emission": self.emission}
        if self.windows is not None:
            shown |= {"window": f"{self.windows.size_ms} ms", "grace": f"{self.windows.grace_ms} ms"}
        return shown


def _counted(key: Any, value: Any, aggregate: int) -> int:
    return aggregate + 1


class _Aggregates(Operator):
    def __init__(self, ctx: OperatorContext, spec: Aggregate) -> None:
        super().__init__(ctx)
        self._state = ctx.state(spec.store.name)
        self._key_serde: Serde[Any] = spec.store.key_serde
        self._every_update = spec.emission == "every_update"
        self._changed: dict[bytes, Any] = {}
        self._init: Callable[[], Any] | None = int if spec.counts else spec.init
        self._adder = _counted if spec.counts else spec.adder
        assert self._adder is not None
        # Then the last count per key is all that anyone sees, and no function of the user's is called.
        self._only_counts = (
            spec.counts and not self._every_update and self._state.immutable and self._state.exact is int
        )

    def _usable(self, batch: Batch) -> Batch:
        """Without the records that have no key or no value."""
        for column, reason in ((batch.keys, "null_key"), (batch.values, "null_value")):
            if None in column:
                mask = [x is not None for x in column]
                self.ctx.dropped(reason, len(mask) - sum(mask))
                return self._usable(batch.where(mask))
        return batch

    def prefetch(self, port: int, batch: Batch) -> None:
        usable = batch if None not in batch.keys else batch.where([k is not None for k in batch.keys])
        with suppress(SerdeError):  # process meets it at its row
            self._state.load(self._store_keys(usable, self._key_serde.serialize_all(usable.keys)))

    def _store_keys(self, batch: Batch, keys: list[Any]) -> list[bytes]:
        """The store's keys of the records whose key bytes these are."""
        return keys

    def _out_keys(self, store_keys: list[bytes], keys: list[Any]) -> list[Any]:
        """The keys of emitted records, from the store's keys and the input records'."""
        return keys

    def process(self, port: int, batch: Batch) -> None:
        batch = self._usable(batch)
        keys, batch = serialize_keys(self.ctx, batch, self._key_serde)
        if not keys:
            return
        self._apply(batch, self._store_keys(batch, keys))

    def _apply(self, batch: Batch, store_keys: list[bytes]) -> None:
        self._state.load(store_keys)
        if self._only_counts:
            self._count(store_keys, batch.timestamps)
            if self.ctx.heard:
                self._changed.update(zip(store_keys, batch.keys, strict=True))
            return
        places, values, timestamps = self._fold(batch, store_keys)
        self._done(batch, store_keys, places, values, timestamps)

    def _fold(self, batch: Batch, store_keys: list[bytes]) -> tuple[list[int] | None, list[Any], list[int]]:
        """Run every record against the state: (rows that were folded, ``None`` for all; new values; timestamps)."""
        state = self._state
        if not state.immutable:
            return self._fold_decoding(batch, store_keys)
        entries, exact, init, adder = state.entries, state.exact, self._init, self._adder
        assert adder is not None
        values: list[Any] = []
        times: list[int] = []
        failed: list[int] = []
        for i, (key, store_key, value, ts) in enumerate(
            zip(batch.keys, store_keys, batch.values, batch.timestamps, strict=True)
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
                self.ctx.failed(batch, i, exc)
                failed.append(i)
                continue
            values.append(new)
            times.append(ts)
        return _without(failed, len(batch.keys)), values, times

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

    def _fold_decoding(self, batch: Batch, store_keys: list[bytes]) -> tuple[list[int] | None, list[Any], list[int]]:
        """The same for values that could be changed in place: each record decodes its own copy."""
        state, init, adder = self._state, self._init, self._adder
        assert adder is not None
        values: list[Any] = []
        times: list[int] = []
        failed: list[int] = []
        for i, (key, store_key, value, ts) in enumerate(
            zip(batch.keys, store_keys, batch.values, batch.timestamps, strict=True)
        ):
            found = state.unpack(state.entries[store_key])
            try:
                if found is None:
                    new = value if init is None else adder(key, value, init())
                else:
                    new = adder(key, value, found[0])
                    ts = max(ts, found[1])
                state.put(store_key, new, ts)
            except Exception as exc:
                self.ctx.failed(batch, i, exc)
                failed.append(i)
                continue
            values.append(new)
            times.append(ts)
        return _without(failed, len(batch.keys)), values, times

    def _done(
        self,
        batch: Batch,
        store_keys: list[bytes],
        places: list[int] | None,
        values: list[Any],
        timestamps: list[int],
    ) -> None:
        """Mark what changed, and emit it or keep it for the commit."""
        keys, order, headers = batch.keys, batch.order, batch.headers
        if places is not None:
            store_keys = [store_keys[i] for i in places]
            keys = [keys[i] for i in places]
            order = [order[i] for i in places]
            headers = None if headers is None else [headers[i] for i in places]
        self._state.dirty.update(zip(store_keys, timestamps, strict=True))
        if not self.ctx.heard:
            return
        if self._every_update:
            self.ctx.emit(Batch(self._out_keys(store_keys, keys), values, timestamps, order, headers))
        else:
            self._changed.update(zip(store_keys, keys, strict=True))

    def flush(self) -> None:
        if not self._changed:
            return
        keys = self._out_keys(list(self._changed), list(self._changed.values()))
        values: list[Any] = []
        timestamps: list[int] = []
        for store_key in self._changed:
            # what was changed since the last commit is an entry, though its window may have expired since
            found = self._state.unpack(self._state.entries[store_key])
            values.append(None if found is None else found[0])
            timestamps.append(self._state.dirty[store_key] if found is None else found[1])
        self._changed.clear()
        self.ctx.emit(Batch(keys, values, timestamps, [0] * len(keys)))


class _WindowAggregates(_Aggregates):
    """The same per window. ``stream_time_ms`` is the operator's own: the highest timestamp it has seen."""

    def __init__(self, ctx: OperatorContext, spec: Aggregate, windows: TumblingWindows) -> None:
        super().__init__(ctx, spec)
        self._size_ms = windows.size_ms
        self._grace_ms = windows.grace_ms
        self._retention_ms = spec.store.retention_ms or windows.size_ms + windows.grace_ms

    def resumed(self) -> None:
        self._expire()

    def _expire(self) -> None:
        floor_ms = self.stream_time_ms - self._retention_ms + 1
        if floor_ms > 0:
            self._state.expire_below(window_floor(floor_ms))

    def _store_keys(self, batch: Batch, keys: list[Any]) -> list[bytes]:
        size, pack = self._size_ms, _START.pack
        starts = [ts - ts % size for ts in batch.timestamps]
        prefixes = {s: pack(s) for s in set(starts)}
        return [prefixes[s] + k for s, k in zip(starts, keys, strict=True)]

    def process(self, port: int, batch: Batch) -> None:
        batch = self._in_time(self._usable(batch))
        keys, batch = serialize_keys(self.ctx, batch, self._key_serde)
        if not keys:
            return
        self._apply(batch, self._store_keys(batch, keys))
        self._expire()

    def _out_keys(self, store_keys: list[bytes], keys: list[Any]) -> list[Any]:
        size, unpack = self._size_ms, _START.unpack_from
        starts = [start for (start,) in map(unpack, store_keys)]
        return [Windowed(key, start, start + size) for key, start in zip(keys, starts, strict=True)]

    def _in_time(self, batch: Batch) -> Batch:
        """Without the records whose window has closed; moves stream time."""
        if not batch.keys:
            return batch
        size, grace, seen = self._size_ms, self._grace_ms, self.stream_time_ms
        latest = max(batch.timestamps)
        earliest = min(batch.timestamps)
        if earliest - earliest % size + size > max(latest, seen) - grace:
            self.stream_time_ms = max(latest, seen)
            return batch
        mask: list[bool] = []
        for ts in batch.timestamps:
            if ts > seen:
                seen = ts
            mask.append(ts - ts % size + size > seen - grace)
        self.stream_time_ms = seen
        late = len(mask) - sum(mask)
        if not late:
            return batch
        self.ctx.dropped("late", late)
        return batch.where(mask)


def _without(failed: list[int], count: int) -> list[int] | None:
    """All places but the failed ones; ``None`` for all."""
    if not failed:
        return None
    skipped = set(failed)
    return [i for i in range(count) if i not in skipped]
