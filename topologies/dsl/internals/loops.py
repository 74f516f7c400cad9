"""Loops: records go around through a topic until they are done.

The topic is a repartition topic of the application, so what goes around is in the log like everything else: exactly
once and replayable, at the price of a commit per round under exactly-once. Each record counts its rounds in a header.
The bound on rounds lets watermarks go around too: after the last round nothing older can come.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from penstock.state.errors import TopologyError
from penstock.topologies.dsl.handle import Handle
from penstock.topologies.dsl.wiring import Flow, check_function
from penstock.topologies.operator_api.internal_names import REPARTITION
from penstock.topologies.operators.records.feedback_loop import FeedbackSpec
from penstock.topologies.operators.records.source_sink import SourceSpec
from penstock.topologies.operators.records.stateless import MergeSpec


def looped(
    flow: Flow, body: Callable[[Any], Any], *, max_iterations: int, partitions: int | None, name: str | None
) -> tuple[Any, Flow]:
    """Return what the body is done with, and the records that exceeded the bound on rounds."""
    wiring = flow.wiring
    name = wiring.name(flow, "loop", name)
    if max_iterations < 1:
        raise TopologyError(f"operator {name!r}: max_iterations={max_iterations}; give at least 1")
    check_function(body, name)
    topic = f"{name}{REPARTITION}"
    source = SourceSpec(
        topic=topic,
        key_serde=flow.key,
        value_serde=flow.value,
        internal=True,
        partitions=partitions,
        loop_rounds=max_iterations,
    )
    wiring.add_source(f"{name}-again", source)
    back = dataclasses.replace(flow, operator=f"{name}-again", port=None, rekeyed=False)
    wiring.add(f"{name}-entry", MergeSpec(), wiring.by_key(flow), back)
    entry = dataclasses.replace(flow, operator=f"{name}-entry", port=None, rekeyed=False)
    made = body(wiring.handles.stream(entry))
    if not (isinstance(made, tuple) and len(made) == 2 and all(isinstance(m, Handle) for m in made)):
        raise TopologyError(f"operator {name!r}: the body must return (again, done), two streams, not {made!r:.100}")
    again: Flow = made[0]._flow
    _check_serdes(flow, again, name)
    wiring.add(name, FeedbackSpec(most=max_iterations), again)
    around = dataclasses.replace(again, operator=name, port="out")
    wiring.add(f"{name}-back", wiring.internal_sink(topic, flow, partitions), around)
    return made[1], dataclasses.replace(around, port="exhausted")


def _check_serdes(flow: Flow, again: Flow, name: str) -> None:
    if (again.key.name, again.value.name) != (flow.key.name, flow.value.name):
        raise TopologyError(
            f"operator {name!r}: the records to repeat have serdes {again.key.name} and {again.value.name}, the stream has "
            f"{flow.key.name} and {flow.value.name}; map one to the types of the other"
        )
