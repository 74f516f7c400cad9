"""Aggregates of a whole stream, whatever the keys."""

from __future__ import annotations

import dataclasses
from typing import Any

from penstock.state.errors import TopologyError
from penstock.state.serdes.serde import BYTES, STRING
from penstock.state.serdes.window_keys import windowed_serde
from penstock.state.stores.store import StoreSpec
from penstock.topologies.aggregators.base import Aggregator
from penstock.topologies.dsl.internals.table_flow import TableFlow
from penstock.topologies.dsl.wiring import Flow, as_emission
from penstock.topologies.operator_api.operator import Emission
from penstock.topologies.operators.aggregates.stream_aggregate import StreamPartialSpec, StreamTotalSpec, partial_store
from penstock.topologies.operators.micro_batches.batch_aggregates import PARTIAL
from penstock.topologies.windows import Duration, Windows, duration_ms

DAY_MS = 86_400_000
"""How long partials are accepted after their window: tasks may be this far apart."""


def aggregated_all(
    flow: Flow,
    aggregator: Aggregator,
    windows: Windows | None,
    *,
    approximate: bool,
    emission: Emission | None,
    retention: Duration | None,
    name: str | None,
) -> TableFlow:
    """The aggregate of the whole stream, or of each window of it: see ``KStream.aggregate_all``."""
    wiring = flow.wiring
    name = wiring.name(flow, "aggregate-all", name)
    _check_merges(aggregator, name, approximate=approximate)
    kept_ms = _kept_ms(windows, retention, name)
    partial = StreamPartialSpec(
        stores=(partial_store(f"{name}-partial", aggregator),),
        aggregator=aggregator,
        windows=windows,
        emission=wiring.emission if emission is None else as_emission(emission, f"operator {name!r}"),
        uses_watermark=windows is not None and flow.watermarked,
    )
    wiring.add(f"{name}-partial", partial, flow)
    sent = flow.behind(f"{name}-partial", key=STRING, value=PARTIAL)
    sent = wiring.repartition(sent, partitions=1, name=f"{name}-partial")
    key = STRING if windows is None else windowed_serde(STRING, windows.length_ms or 1)
    store = StoreSpec(
        name,
        "key_value" if windows is None else "window",
        STRING,
        aggregator.result_serde,
        window_size_ms=None if windows is None else windows.length_ms,
        retention_ms=kept_ms,
    )
    partials = StoreSpec(f"{name}-partials", "key_value", BYTES, BYTES)
    wiring.add(name, StreamTotalSpec(stores=(partials, store), aggregator=aggregator, windows=windows), sent)
    made = dataclasses.replace(sent, operator=name, key=key, value=aggregator.result_serde)
    return TableFlow(made, store)


def _kept_ms(windows: Windows | None, retention: Duration | None, name: str) -> int | None:
    """Return how long after its start a window accepts partials."""
    if windows is None:
        return None
    if not isinstance(windows, Windows) or windows.length_ms is None or windows.time != "event":
        raise TopologyError(f"operator {name!r}: {windows!r:.100} has no fixed length in event time; use tumbling")
    least_ms = windows.length_ms + windows.grace_ms
    kept_ms = least_ms + DAY_MS if retention is None else duration_ms(retention)
    if kept_ms < least_ms:
        raise TopologyError(f"operator {name!r}: retention={retention!r}; give at least {least_ms} ms")
    return kept_ms


def _check_merges(aggregator: Any, name: str, *, approximate: bool) -> None:
    if not isinstance(aggregator, Aggregator):
        raise TopologyError(
            f"operator {name!r} needs a ready aggregate, such as count() or sum_('price'), not {aggregator!r:.60}"
        )
    if aggregator.merge is None or aggregator.ordered:
        raise TopologyError(
            f"operator {name!r}: {aggregator.name} depends on the order of all records, which parallel tasks do "
            "not know; send the stream through one partition first"
        )
    if not aggregator.exact_merge and not approximate:
        raise TopologyError(
            f"operator {name!r}: partials of {aggregator.name} do not merge exactly; declare the column's type "
            "(number=int or Decimal), or allow it with approximate=True"
        )
