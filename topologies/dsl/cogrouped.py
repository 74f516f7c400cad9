"""Cogrouping in the DSL: several grouped streams, whose values may differ in type, folded into one table."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.state.errors import TopologyError
from penstock.topologies.dsl.aggregation import add_aggregation, checked_windows
from penstock.topologies.dsl.table import KTable
from penstock.topologies.dsl.wiring import Flow, as_emission, as_serde, check_function
from penstock.topologies.operator_api.operator import Emission
from penstock.topologies.operators.aggregates.fold import Adder, Aggregation, Fold
from penstock.topologies.windows import Windows

if TYPE_CHECKING:
    from penstock.topologies.dsl.grouped import KGroupedStream


@dataclasses.dataclass(frozen=True)
class CogroupedKStream:
    """Grouped streams with an adder each. All must have keys of one serde; they are co-partitioned like the sides of a
    join. Records of all streams meet their aggregate in the order of the task.

    Over windows each stream has a stream time of its own (Kafka Streams), so that a stream that lags behind the others
    loses nothing: by up to a day, or by ``retention`` less the windows' size and grace. All streams have one time where
    windows are custom ones, or are emitted ``on_close``, once for all."""

    parts: tuple[tuple[Flow, Adder], ...]
    windows: Windows | None = None
    retention_ms: int | None = None

    def cogroup(self, other: KGroupedStream, adder: Callable[[Any, Any, Any], Any]) -> CogroupedKStream:
        """With one stream more. The same stream may be given again, with another adder."""
        from penstock.topologies.dsl.grouped import KGroupedStream  # which makes cogroups

        if not isinstance(other, KGroupedStream):
            raise TopologyError(
                f"cogroup of {self.parts[0][0].out!r} with {other!r:.60}: it takes grouped streams; call group_by_key() "
                "or group_by(fn) on the stream"
            )
        flow, first = other._flow, self.parts[0][0]
        what = f"cogroup of {first.out!r} with {flow.out!r}"
        if other._windows is not None or self.windows is not None:
            raise TopologyError(f"{what}: cogroup all streams first, then call windowed_by on the result")
        if flow.key.name != first.key.name:
            raise TopologyError(
                f"{what}: their keys have the serdes {first.key.name} and {flow.key.name}, so that equal keys may lie in "
                "different partitions; give both the same key serde"
            )
        return dataclasses.replace(self, parts=(*self.parts, (flow, check_function(adder, what))))

    def windowed_by(self, windows: Windows, *, retention: int | str | None = None) -> CogroupedKStream:
        """Aggregate per key and window: see ``KGroupedStream.windowed_by``."""
        what = f"windowed_by on the cogroup of {self.parts[0][0].out!r}"
        checked, retention_ms = checked_windows(windows, retention, what)
        if self.windows is not None:
            raise TopologyError(f"{what}: the streams are windowed already; call windowed_by once")
        return dataclasses.replace(self, windows=checked, retention_ms=retention_ms)

    def aggregate(
        self,
        init: Callable[[], Any],
        *,
        value: Any = None,
        merger: Callable[[Any, Any, Any], Any] | None = None,
        name: str | None = None,
        emission: Emission | None = None,
        late: bool = False,
    ) -> KTable:
        """The table: each record goes to its stream's adder, from ``init()`` on; ``None`` deletes the key. ``value`` is
        the aggregate's serde, which must be named. ``merger(key, a, b)``: of two sessions that meet."""
        first = self.parts[0][0]
        name = first.wiring.name(first, "cogroup", name)
        if value is None:
            raise TopologyError(
                f"operator {name!r}: the serde of its aggregates is unknown; name it: aggregate(…, value=int)"
            )
        serde = as_serde(value, f"the aggregates of operator {name!r}")
        if merger is not None:
            check_function(merger, name)
        if late and len({flow.value.name for flow, _ in self.parts}) > 1:
            raise TopologyError(
                f"operator {name!r}: late=True needs streams with values of one serde, to write the late records by; "
                "leave late out, or map the streams to one type first"
            )
        request = Aggregation(
            name=name,
            key=first.key,
            value=serde,
            shown_serde=serde,
            emission=first.wiring.emission if emission is None else as_emission(emission, f"operator {name!r}"),
            fold=Fold(adders=tuple(a for _, a in self.parts), init=check_function(init, name), merger=merger),
            windows=self.windows,
            retention_ms=self.retention_ms,
            late=late,
            by_watermark=any(flow.watermarked for flow, _ in self.parts),
        )
        return add_aggregation(tuple(flow for flow, _ in self.parts), request)
