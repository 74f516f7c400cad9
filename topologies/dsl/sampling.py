"""Deduplication and samples in the DSL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.state.errors import TopologyError
from penstock.state.serdes.window_keys import windowed_serde
from penstock.topologies.aggregators.encoding import RESULT_JSON
from penstock.topologies.dsl.handle import Function, Handle
from penstock.topologies.dsl.typed import row_function
from penstock.topologies.dsl.wiring import as_serde
from penstock.topologies.expressions.tree import Expression
from penstock.topologies.operators.base.record_pairs import pair_serde
from penstock.topologies.operators.records.deduplicate import DeduplicateSpec, dedup_stores
from penstock.topologies.operators.records.sampling import SampleKeysSpec, SampleReservoirSpec, reservoir_store
from penstock.topologies.operators.records.stateless import MapSpec
from penstock.topologies.windows import TumblingWindows, duration_ms

if TYPE_CHECKING:
    from penstock.topologies.dsl.stream import KStream


class SamplingMethods(Handle):
    """Methods of ``KStream``."""

    def deduplicate(
        self,
        within: int | str,
        key: Function | Expression | None = None,
        *,
        grace: int | str | None = None,
        id_serde: Any = str,
        name: str | None = None,
    ) -> KStream:
        """The records of which no record with the same key, processed before, is less than ``within`` away in event
        time, to either side. With ``key``, a function of key and value or an expression, its result takes the key's
        place: such records travel through a repartition topic by it (``id_serde`` writes it) and keep their own key.
        Records whose key, or whose result, is null pass.

        What came is remembered until stream time has gone on by ``within + grace`` (``grace``: by default ``within``):
        a duplicate that is later than that passes."""
        wiring = self._flow.wiring
        name = wiring.name(self._flow, "deduplicate", name)
        within_ms = duration_ms(within)
        if within_ms < 1:
            raise TopologyError(f"operator {name!r}: within={within!r} lets everything pass; give at least 1 ms")
        grace_ms = within_ms if grace is None else duration_ms(grace)
        flow = self._flow
        if key is None:
            flow = wiring.by_key(flow)
        else:
            fn = row_function(key, name, flow)
            ids, packed = as_serde(id_serde, f"the ids of operator {name!r}"), pair_serde(flow.key, flow.value)
            wiring.add(f"{name}-id", MapSpec(fn=lambda k, v: (fn(k, v), (k, v))), flow)
            flow = wiring.repartition(self._behind(f"{name}-id", key=ids, value=packed), name=f"{name}-id")
        stores = dedup_stores(name, flow.key)
        wiring.add(name, DeduplicateSpec(stores=stores, within_ms=within_ms, grace_ms=grace_ms), flow)
        behind = self._stream(flow)._behind(name)
        if key is None:
            return self._stream(behind)
        wiring.add(f"{name}-record", MapSpec(fn=_second), behind)
        mine = self._flow
        return self._stream(
            self._stream(behind)._behind(f"{name}-record", key=mine.key, value=mine.value, rekeyed=True)
        )

    def sample(self, fraction: float, *, seed: int = 0, name: str | None = None) -> KStream:
        """All records of the share ``fraction`` of the keys, chosen by a stable hash: a larger fraction takes the same
        keys and more. Another ``seed`` chooses others. Records without a key are dropped and counted."""
        name = self._flow.wiring.name(self._flow, "sample", name)
        if not 0 <= fraction <= 1:
            raise TopologyError(f"operator {name!r}: fraction={fraction}; it must be from 0 to 1")
        if not 0 <= seed < 1 << 64:
            raise TopologyError(f"operator {name!r}: seed={seed}; it must be from 0 to 2**64 - 1")
        spec = SampleKeysSpec(fraction=fraction, key_serde=self.key_serde, seed=seed)
        return self._stream(self._add("sample", name, lambda _: spec))

    def sample_reservoir(self, n: int, window: TumblingWindows | int | str, *, name: str | None = None) -> KStream:
        """Per key and tumbling window a list of ``n`` values chosen at random (all, if there are fewer), in order of
        arrival, under a ``Windowed`` key when the watermark passes the window's end and grace. The choice depends on key,
        window and the order of its records alone. ``window``: ``tumbling(…)``, or a size without grace."""
        wiring = self._flow.wiring
        name = wiring.name(self._flow, "sample-reservoir", name)
        if n < 1:
            raise TopologyError(f"operator {name!r}: n={n}; a reservoir holds at least 1 value")
        windows = window if isinstance(window, TumblingWindows) else TumblingWindows(duration_ms(window), 0)
        if windows.offset_ms or windows.time != "event":
            raise TopologyError(f"operator {name!r}: reservoirs have windows of event time without offset")
        flow = wiring.by_key(self._flow)
        spec = SampleReservoirSpec(
            stores=(reservoir_store(name, flow.key),),
            n=n,
            size_ms=windows.size_ms,
            grace_ms=windows.grace_ms,
            value_serde=flow.value,
        )
        wiring.add(name, spec, flow)
        keys = windowed_serde(flow.key, windows.size_ms)
        return self._stream(self._stream(flow)._behind(name, key=keys, value=RESULT_JSON))


def _second(key: Any, pair: tuple[Any, Any]) -> tuple[Any, Any]:
    return pair
