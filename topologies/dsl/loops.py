"""Feedback: records that go around through a topic until they are done.

The topic is a repartition topic of the application, so that what goes around is in the log like everything else: exactly
once, replayable, at the price of a commit per round under exactly-once. Each record counts its rounds in a header; the
bound on them is what lets watermarks go around too: behind the bound's last round nothing older can come.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.state.errors import TopologyError
from penstock.topologies.dsl.handle import Handle
from penstock.topologies.dsl.wiring import Flow, check_function
from penstock.topologies.operator_api.internal_names import REPARTITION
from penstock.topologies.operators.records.feedback_loop import FeedbackSpec
from penstock.topologies.operators.records.source_sink import SourceSpec
from penstock.topologies.operators.records.stateless import MergeSpec

if TYPE_CHECKING:
    from penstock.topologies.dsl.stream import KStream


@dataclasses.dataclass(frozen=True)
class Loop:
    """What comes out of a loop: ``done``, what the body gave as done; ``exhausted``, records that were to go around once
    more than the bound allows."""

    done: KStream
    exhausted: KStream


class LoopMethods(Handle):
    """Methods of ``KStream``."""

    def loop(
        self,
        body: Callable[[KStream], tuple[KStream, KStream]],
        *,
        max_iterations: int,
        partitions: int | None = None,
        name: str | None = None,
    ) -> Loop:
        """``body(records)`` gives ``(again, done)``: ``again`` comes back among ``records``, by its key, at most
        ``max_iterations`` times for each record; its serdes must be those of the stream. ``iteration_of(headers)`` tells
        how often a record has gone around. Operators in the body that hold records back until the watermark delay what
        goes around beyond it: records should keep their timestamps and go around at once."""
        wiring = self._flow.wiring
        name = wiring.name(self._flow, "loop", name)
        if max_iterations < 1:
            raise TopologyError(
                f"operator {name!r}: max_iterations={max_iterations}; let records go around at least once"
            )
        check_function(body, name)
        flow = self._flow
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
        made: Any = body(self._stream(entry))
        if not (isinstance(made, tuple) and len(made) == 2 and all(isinstance(m, Handle) for m in made)):
            raise TopologyError(
                f"operator {name!r}: the body must return (again, done), two streams, not {made!r:.100}"
            )
        again, done = made
        self._check_serdes(again._flow, name)
        wiring.add(name, FeedbackSpec(most=max_iterations), again._flow)
        around = dataclasses.replace(again._flow, operator=name, port="out")
        wiring.add(f"{name}-back", wiring.internal_sink(topic, flow, partitions), around)
        return Loop(done, self._stream(dataclasses.replace(around, port="exhausted")))

    def _check_serdes(self, again: Flow, name: str) -> None:
        mine = (self._flow.key.name, self._flow.value.name)
        if (again.key.name, again.value.name) != mine:
            raise TopologyError(
                f"operator {name!r}: what goes around has serdes {again.key.name} and {again.value.name}, the stream has "
                f"{mine[0]} and {mine[1]}; map one to the other's types"
            )
