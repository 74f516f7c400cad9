"""Which operator an aggregation over windows that are ordered in time gets."""

from __future__ import annotations

import dataclasses
from typing import Any

from penstock.state.errors import TopologyError
from penstock.state.log import Windowed
from penstock.state.serdes.serde import Serde
from penstock.state.serdes.window_keys import starting_serde, windowed_serde
from penstock.state.stores.store import StoreSpec
from penstock.topologies.operators.aggregates.fold import Aggregation, BuiltOperator, with_members
from penstock.topologies.operators.windows.pane_aggregate import by_panes, pays
from penstock.topologies.operators.windows.window_aggregate import FOREVER_MS, WindowAggregateSpec
from penstock.topologies.operators.windows.window_closing import closing_spec, retained_ms
from penstock.topologies.windows import END_OF_TIME_MS, SpanWindows


def build_operator(request: Aggregation) -> BuiltOperator:
    """The operator of an aggregation over such windows."""
    windows = request.windows
    assert isinstance(windows, SpanWindows)
    check_closes(request)
    retention_ms, lag_ms = request.retention_ms or FOREVER_MS, None
    if windows.horizon_ms is not None:
        retention_ms, lag_ms = retained_ms(request, windows.horizon_ms)
    # panes are merged, and so keep their members themselves
    panes = pays(request)
    built = request if panes else request.apart
    store = StoreSpec(
        request.name,
        "window",
        request.key,
        built.value,
        window_size_ms=windows.length_ms,
        retention_ms=retention_ms,
    )
    spec = closing_spec(WindowAggregateSpec, built, store, one_by_one=False, lag_ms=lag_ms)
    if panes:
        spec = by_panes(spec)
    else:
        spec = dataclasses.replace(spec, stores=with_members(store, built.fold, windows.horizon_ms or FOREVER_MS))
    return BuiltOperator(spec, key_serde(request.key, windows), built)


def check_closes(request: Aggregation) -> None:
    """Raises ``TopologyError`` where results or late records wait for the end of windows that have none."""
    assert request.windows is not None
    if request.windows.horizon_ms is None and request.emission == "on_close":
        raise TopologyError(
            f"operator {request.name!r}: {request.windows.describe()} never closes, so emission='on_close' would emit "
            "nothing; use 'every_update' or 'per_commit'"
        )


def key_serde(key: Serde[Any], windows: SpanWindows) -> Serde[Windowed]:
    """The serde of the results' keys: key | start, as the end follows from the start."""
    if windows.length_ms is not None:
        return windowed_serde(key, windows.length_ms)
    if windows.horizon_ms is None:
        return starting_serde(key, windows.describe(), lambda start: END_OF_TIME_MS)
    return starting_serde(key, windows.describe(), windows.end_of)
