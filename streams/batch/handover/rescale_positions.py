"""Where the tasks of a rescaled application begin: input positions, and the event time that is committed with them.

*Positions.* Inputs that got other topics were read to their ends, and repartition topics too. So the new topics begin where
they begin; the topic of a table behind the rows that were written to it; and an input that both applications read
goes on where the old one stands.

*Time.* A task of the new application has keys of several old tasks, whose stream times differ. Were it given the lowest, a
record could be taken that was late before, and a window be opened again whose result is out. Were it given the highest,
a record could be late that was in time. Neither is allowed. Two cases are exact:

* Of ``old`` to ``new`` partitions, task ``q`` has keys of the old tasks ``p`` with ``p % g == q % g``, where ``g`` is their
  greatest common divisor: both are the hash modulo their number. If ``new`` is a multiple of ``old``, that is one, and its
  time is taken over.
* Where several old tasks stand at times that mean the same. To a windowed aggregation all times mean the same between which
  no window closes; to other operators that keep a time only equal times do. To those that keep none, time means nothing.

Else it is refused, naming the operator and the times (``check_times``). Where times mean the same, the highest is taken: the
next record moves time beyond all of them, or to none that means anything else.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from penstock.state.errors import SettingsError
from penstock.state.log import TopicPartition
from penstock.state.recovery.changelog import changelog_topic
from penstock.streams.batch.cluster import CommittedInput
from penstock.streams.batch.handover.rescale_plan import Rescaling
from penstock.streams.ports.log import OffsetAndMetadata
from penstock.streams.task import commit_metadata
from penstock.streams.task.commit_metadata import CommitMetadata
from penstock.topologies.graph.topology import Subtopology
from penstock.topologies.operator_api.operator import NO_TIME, OperatorSpec
from penstock.topologies.operators.windows.window_aggregate import WindowAggregateSpec

CommittedInputs = Mapping[TopicPartition, CommittedInput]
"""The positions that the old application has committed."""


def contributors(task: int, old: int, new: int) -> range:
    """The tasks, of ``old``, that have keys of this one of ``new``."""
    step = math.gcd(old, new)
    return range(task % step, old, step)


def check_times(plan: Rescaling, committed: CommittedInputs) -> None:
    """Raises ``SettingsError`` where old tasks that come together stand at times that mean different things."""
    for sub in (plan.old.topology.subtopologies[n] for n in sorted(plan.moved)):
        old, new = plan.old.tasks(sub.number), plan.new.tasks(sub.number)
        for group in sorted({tuple(contributors(q, old, new)) for q in range(new)}):
            times = {p: _times(plan, sub, p, committed) for p in group}
            for name in sub.operators:
                _check_operator(plan, sub, name, times)


def _check_operator(plan: Rescaling, sub: Subtopology, name: str, times: Mapping[int, Mapping[str, int]]) -> None:
    """``times``: of all operators that keep one, by task."""
    spec = plan.old.topology.operators[name]
    for key in sorted({k for found in times.values() for k in found if k == name or k.startswith(f"{name}:")}):
        at = {p: found.get(key, NO_TIME) for p, found in times.items()}
        if len({_meaning(spec, ms) for ms in at.values()}) > 1:
            said = ", ".join(f"task {p} at {ms}" for p, ms in sorted(at.items()))
            old = plan.old.tasks(sub.number)
            raise SettingsError(
                f"operator {name} ({spec.kind}) cannot be rescaled now: tasks whose keys come together stand at different "
                f"event times ({said}), so a record that is late for one key would be in time for another. Choose a "
                f"multiple of {old} partitions, where no tasks come together; or bring them to times between which no "
                "window closes, such as by a record of the same time in each partition"
            )


def _meaning(spec: OperatorSpec, time_ms: int) -> int:
    """A number that is equal for times that an operator cannot tell apart."""
    if isinstance(spec, WindowAggregateSpec) and spec.clock == "stream_time" and spec.lag_ms is None:
        # the lowest start of a window that is open
        return spec.windows.open_from(max(time_ms - spec.windows.grace_ms, 0))
    return time_ms


def _task_metadata(
    plan: Rescaling, sub: Subtopology, task: int, committed: CommittedInputs
) -> Iterator[CommitMetadata]:
    for name in sub.sources:
        found = committed.get(TopicPartition(plan.old.topic(name), task))
        if found is not None:
            yield found.metadata


def _times(plan: Rescaling, sub: Subtopology, task: int, committed: CommittedInputs) -> dict[str, int]:
    """The times of the operators of an old task."""
    return {k: ms for m in _task_metadata(plan, sub, task, committed) for k, ms in m.operators.items()}


# -- the new application's -----------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class NewTopics:
    """The new application's topics as they stand: begins and ends of its inputs and of what was written, and topic ids."""

    ends: Mapping[TopicPartition, tuple[int, int]]
    ids: Mapping[str, str]


def new_positions(
    plan: Rescaling, committed: CommittedInputs, topics: NewTopics
) -> dict[TopicPartition, OffsetAndMetadata]:
    """The positions with which the new application begins. An input that both read and of which the old one has committed
    nothing has none either."""
    out: dict[TopicPartition, OffsetAndMetadata] = {}
    for sub in plan.new.topology.subtopologies:
        moved, (old, new) = sub.number in plan.moved, (plan.old.tasks(sub.number), plan.new.tasks(sub.number))
        for task in range(new):
            olds = contributors(task, old, new) if moved else range(task, task + 1)
            metadata = [m for p in olds for m in _task_metadata(plan, sub, p, committed)]
            if not moved and not metadata:
                continue
            logged = [s for s in sub.stores if s.changelog and s.source_topic is None]
            places = {s.name: TopicPartition(changelog_topic(plan.new.application_id, s), task) for s in logged}
            operators: dict[str, int] = {}
            for name, ms in (item for m in metadata for item in m.operators.items()):
                operators[name] = max(ms, operators.get(name, NO_TIME))
            of_task = CommitMetadata(
                version=commit_metadata.VERSION,
                stream_time_ms=max((m.stream_time_ms for m in metadata), default=NO_TIME),
                wall_ms=max((m.wall_ms for m in metadata), default=NO_TIME),
                operators=operators,
                changelogs={store: topics.ends[tp][1] for store, tp in places.items()},
            )
            for name in sub.sources:
                offset = _offset(plan, name, task, committed, topics)
                if offset is None:
                    continue
                noted = _of_input(
                    of_task, plan, name, [committed.get(TopicPartition(plan.old.topic(name), p)) for p in olds]
                )
                tp = TopicPartition(plan.new.topic(name), task)
                noted = msgspec.structs.replace(noted, first=offset, topic_id=topics.ids.get(tp.topic, ""))
                out[tp] = OffsetAndMetadata(offset, commit_metadata.encode(noted))
    return out


def _offset(plan: Rescaling, source: str, task: int, committed: CommittedInputs, topics: NewTopics) -> int | None:
    old, new = plan.old.topic(source), TopicPartition(plan.new.topic(source), task)
    if old in plan.tables:
        return topics.ends[new][1]
    if plan.old.topology.source(source).internal or old in plan.renamed:
        return topics.ends[new][0]
    found = committed.get(TopicPartition(old, task))
    return None if found is None else found.offset


def _of_input(
    of_task: CommitMetadata, plan: Rescaling, source: str, before: Sequence[CommittedInput | None]
) -> CommitMetadata:
    """The metadata of one input's position. Its time judges only how far ahead a record may be, so the highest does."""
    known = [c.metadata for c in before if c is not None]
    return msgspec.structs.replace(
        of_task,
        partition_time_ms=max((m.partition_time_ms for m in known), default=NO_TIME),
        began_ms=max((m.began_ms for m in known), default=NO_TIME),
        form=plan.new.topology.source(source).form,
    )
