"""The external sinks of one task: which rows wait for the commit, and where each sink stands.

Rows are collected only after ``collect``, so that replays give none to anybody. The runner takes them with the commit,
writes them, and says after each opening of a sink where it stands: rows before that are left out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence

from penstock.state.log import TaskId
from penstock.topologies.graph.topology import Subtopology, Topology
from penstock.topologies.operator_api.external_sinks import Sink, SinkPartition, SinkRows
from penstock.topologies.operator_api.operator import Operator
from penstock.topologies.operators.records.external_sink import ExternalSinkOperator, ExternalSinkSpec


@dataclasses.dataclass(frozen=True)
class TaskSink:
    """One of them."""

    partition: SinkPartition
    sink: Sink


class TaskSinks(Mapping[str, TaskSink]):
    """See the module. By the operator's name."""

    def __init__(
        self,
        task: TaskId,
        application_id: str,
        topology: Topology,
        subtopology: Subtopology,
        topic_ids: Mapping[str, str],
    ) -> None:
        self._sinks: dict[str, TaskSink] = {}
        for name in subtopology.operators:
            if isinstance(spec := topology.operators[name], ExternalSinkSpec):
                topic = topology.source(spec.source).topic_name(application_id)
                at = SinkPartition(application_id, name, topic, topic_ids.get(topic, ""), task.partition)
                self._sinks[name] = TaskSink(at, spec.sink)
        self._operators: dict[str, ExternalSinkOperator] = {}
        self._offset_of: Callable[[int], int] | None = None
        self._collects = False

    def __getitem__(self, name: str) -> TaskSink:
        return self._sinks[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._sinks)

    def __len__(self) -> int:
        return len(self._sinks)

    def begin(self, operators: Sequence[Operator], offset_of: Callable[[int], int]) -> None:
        """The task begins with new operators; rows of the old ones are dropped. ``offset_of(order)``: of a record."""
        running = [op for op in operators if isinstance(op, ExternalSinkOperator)]
        self._operators = {op.ctx.name: op for op in running}
        self._offset_of = offset_of
        if self._collects:
            self.collect()

    def collect(self) -> None:
        """Collect rows from now on."""
        self._collects = True
        for operator in self._operators.values():
            operator.offset_of = self._offset_of

    def stands_at(self, name: str, position: int) -> None:
        """Leave out the rows of records before this offset: a sink has them."""
        self._operators[name].skip_below = position

    def take(self, name: str) -> SinkRows:
        """Return the rows since the last call."""
        return self._operators[name].take()
