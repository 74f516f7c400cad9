"""Deduplication, throttling and samples."""

from __future__ import annotations

from typing import Any

from penstock.state.errors import TopologyError
from penstock.state.serdes.window_keys import windowed_serde
from penstock.topologies.aggregators.encoding import RESULT_JSON
from penstock.topologies.dsl.typed import row_function
from penstock.topologies.dsl.wiring import Flow, as_serde
from penstock.topologies.operators.base.record_pairs import pair_serde
from penstock.topologies.operators.records.deduplicate import DeduplicateSpec, dedup_stores
from penstock.topologies.operators.records.sampling import SampleKeysSpec, SampleReservoirSpec, reservoir_store
from penstock.topologies.operators.records.stateless import MapSpec
from penstock.topologies.operators.records.throttle import ThrottleSpec, throttle_store
from penstock.topologies.windows import Duration, TumblingWindows, duration_ms


def deduplicated(
    flow: Flow, within: Duration, key: Any, *, grace: Duration | None, id_serde: Any, name: str | None
) -> Flow:
    """Drop records if one with the same key, or the same ``key(key, value)``, is near in time."""
    mine, wiring = flow, flow.wiring
    name = wiring.name(flow, "deduplicate", name)
    within_ms = duration_ms(within)
    if within_ms < 1:
        raise TopologyError(f"operator {name!r}: within={within!r} lets everything pass; give at least 1 ms")
    grace_ms = within_ms if grace is None else duration_ms(grace)
    if key is None:
        flow = wiring.by_key(flow)
    else:
        fn = row_function(key, name, flow)
        ids, packed = as_serde(id_serde, f"the ids of operator {name!r}"), pair_serde(flow.key, flow.value)
        wiring.add(f"{name}-id", MapSpec(fn=lambda k, v: (fn(k, v), (k, v))), flow)
        flow = wiring.repartition(flow.behind(f"{name}-id", key=ids, value=packed), name=f"{name}-id")
    stores = dedup_stores(name, flow.key)
    wiring.add(name, DeduplicateSpec(stores=stores, within_ms=within_ms, grace_ms=grace_ms), flow)
    behind = flow.behind(name)
    if key is None:
        return behind
    wiring.add(f"{name}-record", MapSpec(fn=_second), behind)
    return behind.behind(f"{name}-record", key=mine.key, value=mine.value, rekeyed=True)


def throttled(flow: Flow, n: int, per: Duration, *, grace: Duration | None, name: str | None) -> Flow:
    """Drop records beyond the first ``n`` of their key in each interval."""
    wiring = flow.wiring
    name = wiring.name(flow, "throttle", name)
    per_ms = duration_ms(per)
    if n < 1 or per_ms < 1:
        raise TopologyError(f"operator {name!r}: {n} per {per!r} lets nothing pass; give at least 1 per 1 ms")
    grace_ms = per_ms if grace is None else duration_ms(grace)
    flow = wiring.by_key(flow)
    stores = (throttle_store(name, flow.key, per_ms, grace_ms),)
    wiring.add(name, ThrottleSpec(stores=stores, n=n, per_ms=per_ms, grace_ms=grace_ms), flow)
    return flow.behind(name)


def sampled(flow: Flow, fraction: float, *, seed: int, name: str | None) -> Flow:
    """Keep all records of a share of the keys."""
    name = flow.wiring.name(flow, "sample", name)
    if not 0 <= fraction <= 1:
        raise TopologyError(f"operator {name!r}: fraction={fraction}; it must be from 0 to 1")
    if not 0 <= seed < 1 << 64:
        raise TopologyError(f"operator {name!r}: seed={seed}; it must be from 0 to 2**64 - 1")
    flow.wiring.add(name, SampleKeysSpec(fraction=fraction, key_serde=flow.key, seed=seed), flow)
    return flow.behind(name)


def sampled_by_reservoir(flow: Flow, n: int, window: TumblingWindows | Duration, *, name: str | None) -> Flow:
    """Choose ``n`` values at random per key and window."""
    wiring = flow.wiring
    name = wiring.name(flow, "sample-reservoir", name)
    if n < 1:
        raise TopologyError(f"operator {name!r}: n={n}; a reservoir holds at least 1 value")
    windows = window if isinstance(window, TumblingWindows) else TumblingWindows(duration_ms(window), 0)
    if windows.offset_ms or windows.time != "event":
        raise TopologyError(f"operator {name!r}: use event-time windows without an offset for reservoirs")
    flow = wiring.by_key(flow)
    spec = SampleReservoirSpec(
        stores=(reservoir_store(name, flow.key),),
        n=n,
        size_ms=windows.size_ms,
        grace_ms=windows.grace_ms,
        value_serde=flow.value,
    )
    wiring.add(name, spec, flow)
    return flow.behind(name, key=windowed_serde(flow.key, windows.size_ms), value=RESULT_JSON)


def _second(key: Any, pair: tuple[Any, Any]) -> tuple[Any, Any]:
    return pair
