"""Which partition an entry of a store belongs to, under any number of partitions; and for which stores that is certain.

A task has the records of the keys that murmur2 puts into its partition. So an entry that is kept under its record's key
belongs to the task of that key, whatever the number of tasks. The key stands in the stored key, with bytes around it
that the kind of the store and the operator determine (``StorePlacing.key_of``).

That holds where nothing between the topic and the store changes keys, where records are in the partitions that murmur2 says,
and where the stored bytes of a key are the bytes that came. ``placings`` proves the first and the last from the topology:
it knows which operators keep keys and how each of them lays out its stores, and refuses the others by name. The second
is left to the data, since anybody may write to a user's topic: each entry is looked at, and one that is not where its key
belongs is refused before anything is changed (``misplaced``).
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterable, Mapping
from typing import Final, Literal

from penstock.state.errors import SettingsError
from penstock.state.serdes.partitioner import partition_for
from penstock.state.serdes.serde import BYTES, FLOAT, INT, INT32, STRING, Serde
from penstock.state.serdes.window_keys import WindowedSerde
from penstock.state.stores.store import StoreKind, StoreSpec
from penstock.topologies.graph.topology import Subtopology, Topology
from penstock.topologies.operator_api.operator import OperatorSpec
from penstock.topologies.operators.aggregates.aggregate import AggregateSpec
from penstock.topologies.operators.aggregates.expiring_aggregate import ExpiringAggregateSpec
from penstock.topologies.operators.base.foreign_key_messages import SUBSCRIPTION
from penstock.topologies.operators.joins.foreign_key_join import (
    ForeignKeyJoinSpec,
    ForeignKeyResponseSpec,
    partition_of_answer,
)
from penstock.topologies.operators.joins.stream_stream_join import StreamStreamJoinSpec
from penstock.topologies.operators.joins.stream_table_join import StreamTableJoinSpec
from penstock.topologies.operators.joins.table_table_join import TableTableJoinSpec
from penstock.topologies.operators.records.deduplicate import DeduplicateSpec
from penstock.topologies.operators.records.source_sink import SinkSpec, SourceSpec
from penstock.topologies.operators.records.stateless import (
    BranchSpec,
    FilterSpec,
    MapValuesSpec,
    MergeSpec,
    PeekSpec,
)
from penstock.topologies.operators.records.table_source import TableSourceSpec
from penstock.topologies.operators.tables.suppress import SuppressSpec
from penstock.topologies.operators.tables.table_aggregate import TableAggregateSpec
from penstock.topologies.operators.tables.table_operators import MaterializeSpec, TableFilterSpec, TableMapValuesSpec
from penstock.topologies.operators.tables.versioned_table import VersionedTableSourceSpec
from penstock.topologies.operators.windows.pane_aggregate import PaneAggregateSpec
from penstock.topologies.operators.windows.session_windows import SessionAggregateSpec
from penstock.topologies.operators.windows.sliding_windows import SlidingAggregateSpec
from penstock.topologies.operators.windows.window_aggregate import WindowAggregateSpec

Around = Literal["key", "timer", "pending", "subscription", "member"]
"""The bytes around the key, besides those of the store's kind: none; a timer's time before it; that, side and time, and a
sequence number after it (a join's records without a partner); its length before it and another key after it; its length
before it and a member of a distinct count after it."""
_KIND_BYTES: Final[Mapping[StoreKind, tuple[int, int]]] = {
    "key_value": (0, 0),
    "window": (8, 0),
    "key_window": (8, 8),
    "session": (8, 16),
    "list": (8, 12),
    "versioned": (0, 8),
}
"""The bytes before and after the key (``penstock.state.stores.store``)."""
_AROUND_BYTES: Final[Mapping[Around, tuple[int, int]]] = {"key": (0, 0), "timer": (8, 0), "pending": (17, 4)}
_LENGTH = struct.Struct(">i")
_STAMP_BYTES = 8

_LAYOUTS: Final[Mapping[type[OperatorSpec], tuple[Around, ...]]] = {
    TableSourceSpec: ("key",),
    VersionedTableSourceSpec: ("key",),
    MaterializeSpec: ("key", "timer"),
    AggregateSpec: ("key", "member"),
    ExpiringAggregateSpec: ("key", "timer"),
    TableAggregateSpec: ("key", "timer"),
    WindowAggregateSpec: ("key", "member"),
    PaneAggregateSpec: ("key", "key", "key"),
    SessionAggregateSpec: ("key",),
    SlidingAggregateSpec: ("key",),
    StreamStreamJoinSpec: ("key", "key", "pending"),
    SuppressSpec: ("key",),
    DeduplicateSpec: ("key", "timer"),
    ForeignKeyResponseSpec: ("subscription",),
}
"""The operators that write stores, and how each store is laid out, in the order of ``stores``."""
_READERS: Final = (StreamTableJoinSpec, TableTableJoinSpec)
_KEEPING: Final = (
    SourceSpec,
    FilterSpec,
    MapValuesSpec,
    PeekSpec,
    BranchSpec,
    MergeSpec,
    TableFilterSpec,
    TableMapValuesSpec,
    ForeignKeyJoinSpec,
)
"""Operators that emit records under the keys under which they came, as those with a layout do, and all that read tables."""
_ONE_FORM: Final = frozenset(s.name for s in (BYTES, STRING, INT, INT32, FLOAT))
"""Serdes that write a value only in the bytes that they read it from."""


@dataclasses.dataclass(frozen=True)
class StorePlacing:
    """Where the key stands in the keys of a store. ``suffix_bytes``: how long the window is that follows it."""

    store: str
    kind: StoreKind
    around: Around = "key"
    suffix_bytes: int = 0

    def key_of(self, store_key: bytes) -> bytes:
        """The record's key. Raises ``SettingsError`` for bytes that no such store has."""
        if self.around in ("subscription", "member"):
            start = _KIND_BYTES[self.kind][0] + _LENGTH.size
            length = _LENGTH.unpack_from(store_key, start - _LENGTH.size)[0] if len(store_key) >= start else -1
            if length >= 0 and start + length <= len(store_key):
                return store_key[start : start + length]
        else:
            before, after = (a + b for a, b in zip(_KIND_BYTES[self.kind], _AROUND_BYTES[self.around], strict=True))
            after += self.suffix_bytes
            if len(store_key) >= before + after:
                return store_key[before : len(store_key) - after]
        raise SettingsError(
            f"store {self.store} holds an entry under {store_key!r:.80}, which its operator would not write, so its "
            "partition is not known"
        )


def misplaced(placing: StorePlacing, store_keys: Iterable[bytes], partition: int, partitions: int) -> bytes | None:
    """The first stored key whose partition of ``partitions`` is not this one; ``None`` without one."""
    return next((k for k in store_keys if partition_for(placing.key_of(k), partitions) != partition), None)


def readdressed(value: bytes, partitions: int) -> bytes:
    """The stored value of a foreign-key subscription, whose answer goes to the left key's task of ``partitions``."""
    asked = SUBSCRIPTION.deserialize(value[_STAMP_BYTES:])
    return value[:_STAMP_BYTES] + SUBSCRIPTION.serialize(asked._replace(partition=partition_for(asked.key, partitions)))


def subscribers(topology: Topology) -> dict[str, int]:
    """For each store of foreign-key subscriptions, the sub-topology to whose tasks its answers go."""
    readers = {topology.source(n).topic: s.number for s in topology.subtopologies for n in s.sources}
    found: dict[str, int] = {}
    for name, spec in topology.operators.items():
        if isinstance(spec, ForeignKeyResponseSpec):
            sinks = (topology.operators[child] for _, child, _ in topology.children(name))
            for sink in sinks:
                if isinstance(sink, SinkSpec):
                    found[spec.stores[0].name] = readers[sink.topic]
    return found


# -- proofs ------------------------------------------------------------------------------------------------------


def placings(topology: Topology, sub: Subtopology) -> tuple[dict[str, StorePlacing], list[str]]:
    """The placing of each store of a sub-topology whose keys are to move, and why others have none, a sentence each."""
    out: dict[str, StorePlacing] = {}
    wrong: list[str] = []
    if not sub.stores:
        return out, wrong
    wrong += _moving_keys(topology, sub)
    keys = {topology.source(n).key_serde.name for n in sub.sources}
    for name in sub.operators:
        spec = topology.operators[name]
        for around, store in _laid_out(spec):
            placing, why = _placing(store, around, spec, keys)
            if placing is None:
                wrong.append(why)
            elif out.setdefault(store.name, placing) != placing:
                wrong.append(f"store {store.name}: two operators lay out its keys differently")
    refused = {why.partition(":")[0].removeprefix("store ") for why in wrong}
    for store in sub.stores:
        if store.name not in out and store.name not in refused:
            users = [n for n in sub.operators if store in topology.operators[n].stores]
            kinds = ", ".join(f"{n} ({topology.operators[n].kind})" for n in users)
            wrong.append(f"store {store.name}: the partition of its entries does not follow from their keys ({kinds})")
    return out, wrong


def _laid_out(spec: OperatorSpec) -> list[tuple[Around, StoreSpec]]:
    """The stores that an operator writes, with their layouts."""
    if isinstance(spec, ForeignKeyJoinSpec):
        return [] if spec.marks is None else [("key", spec.marks)]
    if isinstance(spec, TableAggregateSpec) and spec.distinct is not None:
        return list(zip(("key", "member"), spec.stores, strict=True))
    return list(zip(_LAYOUTS.get(type(spec), ()), spec.stores, strict=False))


def _placing(store: StoreSpec, around: Around, spec: OperatorSpec, keys: set[str]) -> tuple[StorePlacing | None, str]:
    if isinstance(spec, VersionedTableSourceSpec):
        return None, (
            f"store {store.name}: a versioned table is restored by the stream time that its topic shows, and a topic of "
            "other partitions would show another one"
        )
    if around == "subscription":
        assert isinstance(spec, ForeignKeyResponseSpec)
        inner, suffix = spec.foreign_key_serde, 0
    else:
        # timers and members are kept under keys of the rows' own store
        rows = store if around == "key" else spec.stores[0]
        inner, suffix = _inner(rows.key_serde)
    if {inner.name} != keys:
        return None, (
            f"store {store.name}: its keys are written by serde {inner.name}, and those of its topics by "
            f"{', '.join(sorted(keys))}, so the bytes may differ"
        )
    return StorePlacing(store.name, store.kind, around, suffix), ""


def _inner(serde: Serde[object]) -> tuple[Serde[object], int]:
    return (serde.inner, serde.suffix_bytes) if isinstance(serde, WindowedSerde) else (serde, 0)


def _moving_keys(topology: Topology, sub: Subtopology) -> list[str]:
    """Why records of one key may be in several tasks, or stores under other keys than their records."""
    wrong: list[str] = []
    for name in sub.sources:
        source = topology.source(name)
        if not source.internal:
            if source.key_serde.name not in _ONE_FORM:
                wrong.append(
                    f"input {source.topic}: serde {source.key_serde.name} may write the bytes of a key otherwise than the "
                    "producer did, so the partition is not certain; send it through repartition() first"
                )
            continue
        sinks = [s for o in topology.subtopologies for s in map(topology.sink, o.sinks) if s.internal]
        for sink in (s for s in sinks if s.topic == source.topic):
            answers = sink.route is partition_of_answer
            # packed records are written with their keys' bytes
            same_bytes = sink.packs or sink.key_serde.name == source.key_serde.name
            by_key = sink.route == "key" and sink.inner_key is None and same_bytes
            if not (by_key or answers):
                wrong.append(f"topic {source.topic}: its records are not partitioned by their keys alone")
    stateful = {n for n in sub.operators if topology.operators[n].stores}
    for name in sub.operators:
        spec = topology.operators[name]
        own_key = not (isinstance(spec, StreamTableJoinSpec) and spec.key_fn is not None)
        keeps = type(spec) in _LAYOUTS or isinstance(spec, _READERS) or type(spec) in _KEEPING
        if (keeps and own_key) or not (reached := _behind(topology, name) & stateful):
            continue
        said = "is not known to keep keys" if not spec.stores else "has stores that cannot be moved"
        wrong.append(f"operator {name} ({spec.kind}) {said}, and {', '.join(sorted(reached))} depend on it")
    return wrong


def _behind(topology: Topology, name: str) -> set[str]:
    """The operator itself and all that its records reach without a topic between."""
    found = {name}
    waiting = [name]
    while waiting:
        more = [child for _, child, _ in topology.children(waiting.pop()) if child not in found]
        found.update(more)
        waiting += more
    return found
