"""Aggregations in the DSL: of a grouped stream per key, and per key and tumbling window."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from penstock.state.errors import TopologyError
from penstock.state.serde import INT, Serde
from penstock.state.store import StoreSpec
from penstock.state.window_keys import windowed_serde
from penstock.topologies.dsl.table import KTable
from penstock.topologies.dsl.wiring import Flow, as_emission, as_serde, check_function
from penstock.topologies.operator import Emission
from penstock.topologies.operators.aggregate import Aggregate
from penstock.topologies.windows import TumblingWindows, duration_ms


class KGroupedStream:
    """Records with equal keys in one partition. Every method adds one operator with one store, both called
    ``name``, and returns its table. Records with a null key or a null value are dropped and counted.
    ``emission``: ``every_update`` or ``per_commit``; ``None``: the builder's."""

    def __init__(self, flow: Flow, windows: TumblingWindows | None = None, retention_ms: int | None = None) -> None:
        self._flow = flow
        self._windows = windows
        self._retention_ms = retention_ms

    def windowed_by(self, windows: TumblingWindows, *, retention: int | str | None = None) -> KGroupedStream:
        """Aggregate per key and window; the tables' keys are then ``Windowed``. ``retention``: how long a
        window can be read after it started (at least, and by default, size + grace)."""
        what = f"windowed_by on {self._flow.out!r}"
        if not isinstance(windows, TumblingWindows):
            raise TopologyError(f"{what}: {windows!r:.100} is no window; use tumbling(size, grace=…)")
        if self._windows is not None:
            raise TopologyError(f"{what}: the stream is windowed already; call windowed_by once")
        least_ms = windows.size_ms + windows.grace_ms
        retention_ms = least_ms if retention is None else duration_ms(retention)
        if retention_ms < least_ms:
            raise TopologyError(
                f"{what}: retention {retention_ms} ms would drop windows that still take records; "
                f"give at least size + grace = {least_ms} ms"
            )
        return KGroupedStream(self._flow, windows, retention_ms)

    def count(self, *, name: str | None = None, emission: Emission | None = None) -> KTable:
        """The number of records per key. Values are longs."""
        name = self._flow.wiring.name(self._flow, "count", name)
        return self._add(name, INT, emission, counts=True)

    def reduce(
        self, fn: Callable[[Any, Any], Any], *, name: str | None = None, emission: Emission | None = None
    ) -> KTable:
        """``fn(aggregate, value)`` over the values; a key's first value is its first aggregate."""
        name = self._flow.wiring.name(self._flow, "reduce", name)
        check_function(fn, name)

        def adder(key: Any, value: Any, aggregate: Any) -> Any:
            return fn(aggregate, value)

        return self._add(name, self._flow.value, emission, adder=adder)

    def aggregate(
        self,
        init: Callable[[], Any],
        adder: Callable[[Any, Any, Any], Any],
        *,
        value: Any = None,
        name: str | None = None,
        emission: Emission | None = None,
    ) -> KTable:
        """``adder(key, value, aggregate)`` over the records, from ``init()``; ``None`` deletes the key.
        ``value`` is the aggregate's serde, which must be named."""
        name = self._flow.wiring.name(self._flow, "aggregate", name)
        if value is None:
            raise TopologyError(
                f"operator {name!r}: the serde of its aggregates is unknown; name it: aggregate(…, value=int)"
            )
        serde = as_serde(value, f"the aggregates of operator {name!r}")
        check_function(init, name)
        return self._add(name, serde, emission, init=init, adder=check_function(adder, name))

    def _add(
        self,
        name: str,
        value: Serde[Any],
        emission: Emission | None,
        *,
        init: Callable[[], Any] | None = None,
        adder: Callable[[Any, Any, Any], Any] | None = None,
        counts: bool = False,
    ) -> KTable:
        flow, windows = self._flow, self._windows
        if windows is None:
            store = StoreSpec(name, "key_value", flow.key, value)
        else:
            store = StoreSpec(
                name,
                "window",
                flow.key,
                value,
                window_size_ms=windows.size_ms,
                retention_ms=self._retention_ms,
            )
        spec = Aggregate(
            stores=(store,),
            emission=flow.wiring.emission if emission is None else as_emission(emission, f"operator {name!r}"),
            # which records are late depends on the records of other keys, which move stream time
            order_sensitive=windows is not None,
            init=init,
            adder=adder,
            counts=counts,
            windows=windows,
        )
        flow.wiring.add(name, spec, flow)
        key = flow.key if windows is None else windowed_serde(flow.key, windows.size_ms)
        return KTable(dataclasses.replace(flow, operator=name, port=None, key=key, value=value, rekeyed=False), store)
