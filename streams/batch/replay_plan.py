"""The plan of a replay, made before anything is read: its range, its tasks, its journal, and what would make it
inexact, which is refused with what to do instead."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from penstock.state.errors import IncompatibleError, SettingsError, TopologyError
from penstock.state.log import TaskId, TopicPartition
from penstock.state.recovery.changelog import changelog_topic
from penstock.state.snapshots.manifest import Manifest, StorePartition
from penstock.streams.batch.cluster import Cluster, CommittedInput
from penstock.streams.batch.compact_executor import CompactTarget, StoreForm
from penstock.streams.batch.journals import JournalBounds
from penstock.streams.batch.output_topics import sink_topics
from penstock.streams.batch.savepoint import Savepoint, SavepointRepository
from penstock.streams.runtime.topic_setup import layout_of
from penstock.streams.task.commit_metadata import CommitMetadata
from penstock.topologies.graph.topology import Subtopology, Topology
from penstock.topologies.operator_api.operator import NO_TIME

START = "start"
"""``from``: where the application began to read each input, which need not be offset 0."""
OFFSETS = "offsets"
"""The start that a replay names if it began at offsets of the user's choice."""
_EMPTY = "the stores began empty, so what they say of records before the range is not in it"
SAVEPOINT = "savepoint:"
"""``from`` and ``to``: a savepoint, by name or ``latest``."""
To = str | Mapping[TopicPartition, int]
"""``committed``, ``end``, a savepoint, or offsets."""


@dataclasses.dataclass(frozen=True)
class ReplayPlan:
    """``ranges``: of every topic that is read from the log. ``starts``: per task and topic. ``ends``: the committed
    positions where the replay stops at them, for what belongs to a commit. ``bases``: the snapshots to begin with.
    ``savepoint``: where it begins, ``None`` for the application's first offsets. ``until``: the one that it ends at."""

    topology: Topology
    application_id: str
    started_from: str
    tasks: tuple[TaskId, ...]
    counts: Mapping[str, int]
    ranges: Mapping[TopicPartition, tuple[int, int]]
    starts: Mapping[TaskId, Mapping[str, tuple[int, CommitMetadata]]]
    ends: Mapping[TopicPartition, CommittedInput]
    bases: Mapping[tuple[TaskId, str], Manifest]
    recomputed: bool
    cautions: tuple[str, ...]
    savepoint: Savepoint | None = None
    until: Savepoint | None = None

    def topics(self, sub: Subtopology) -> list[str]:
        """The topics that a sub-topology reads."""
        return [self.topology.source(n).topic_name(self.application_id) for n in sub.sources]


def plan_replay(
    topology: Topology,
    application_id: str,
    cluster: Cluster,
    *,
    from_: str | Mapping[TopicPartition, int] = START,
    to: To = "committed",
    repository: str | None = None,
    recompute: bool = False,
) -> ReplayPlan:
    """The plan. ``from_``: offsets are where inputs begin with empty stores; inputs without one begin at their ends. Raises
    ``SettingsError`` or ``IncompatibleError`` for a range that could not be replayed exactly."""
    savepoint, saved_in = _savepoint(application_id, from_, repository)
    if recompute and savepoint is not None:
        _refuse_in_flight(topology, application_id)
    counts, tasks = _layout(topology, application_id, cluster, recompute)
    inputs = _inputs(topology, application_id, tasks, recompute)
    known = cluster.committed(inputs)
    until, _ = _end_savepoint(application_id, to, repository)
    committed = known if to == "committed" else (until.committed() if until is not None else {})
    if to == "committed" and not committed:
        raise SettingsError(
            f"the group {application_id} has no committed offsets, so there is nothing that it did to replay; check the "
            "application id, or replay to the end of the inputs (--to end)"
        )
    begins = savepoint.committed() if savepoint is not None else {}
    ends = cluster.ends(inputs)
    ranges: dict[TopicPartition, tuple[int, int]] = {}
    for tp in inputs:
        begin, end = ends[tp]
        if isinstance(from_, str):
            first = begins[tp].offset if tp in begins else _first(known.get(tp), (begin, end))
        else:
            first = min(max(from_.get(tp, end), begin), end)
        ranges[tp] = _range(tp, (begin, end), first, to, committed)
    ids = [TaskId(s.number, p) for s in topology.subtopologies for p in range(tasks[s.number])]
    starts: dict[TaskId, Mapping[str, tuple[int, CommitMetadata]]] = {}
    for task in ids:
        topics = [
            topology.source(n).topic_name(application_id) for n in topology.subtopologies[task.subtopology].sources
        ]
        starts[task] = {t: _start(TopicPartition(t, task.partition), ranges, begins, known) for t in topics}
    bases: dict[tuple[TaskId, str], Manifest] = {}
    if savepoint is not None and saved_in is not None:
        bases = _bases(topology, ids, savepoint, saved_in)
    return ReplayPlan(
        topology=topology,
        application_id=application_id,
        started_from=savepoint.name if savepoint is not None else START if isinstance(from_, str) else OFFSETS,
        tasks=tuple(ids),
        counts=counts,
        ranges=ranges,
        starts=starts,
        ends=committed,
        bases=bases,
        recomputed=recompute,
        cautions=(
            *_cautions(cluster, {tp.topic for tp in ranges}),
            *(() if isinstance(from_, str) or not topology.stores else (_EMPTY,)),
        ),
        savepoint=savepoint,
        until=until,
    )


def _inputs(topology: Topology, application_id: str, tasks: Mapping[int, int], recompute: bool) -> list[TopicPartition]:
    """The partitions that are read; with ``recompute`` without those of repartition topics."""
    return [
        TopicPartition(topology.source(n).topic_name(application_id), p)
        for sub in topology.subtopologies
        for n in sub.sources
        for p in range(tasks[sub.number])
        if not (recompute and topology.source(n).internal)
    ]


def _end_savepoint(
    application_id: str, to: To, repository: str | None
) -> tuple[Savepoint | None, SavepointRepository | None]:
    if not isinstance(to, str) or to in ("committed", "end"):
        return None, None
    if not to.startswith(SAVEPOINT):
        raise SettingsError(
            f"a replay cannot end at {to!r}: give committed, end, {SAVEPOINT}latest or {SAVEPOINT}NAME, or offsets"
        )
    return _savepoint(application_id, to, repository)


def _savepoint(
    application_id: str, from_: str | Mapping[TopicPartition, int], repository: str | None
) -> tuple[Savepoint | None, SavepointRepository | None]:
    if from_ == START or not isinstance(from_, str):
        return None, None
    if not from_.startswith(SAVEPOINT):
        raise SettingsError(
            f"a replay cannot begin at {from_!r}: the stores there are not known. Begin at the application's first offset "
            f"({START}) or at a savepoint ({SAVEPOINT}latest, or its name), which penstock compact makes"
        )
    if repository is None:
        raise SettingsError("a replay from a savepoint needs the repository that holds it (--repository)")
    saved_in = SavepointRepository(repository)
    return saved_in.load(application_id, from_.removeprefix(SAVEPOINT) or "latest"), saved_in


def _refuse_in_flight(topology: Topology, application_id: str) -> None:
    """A savepoint holds the stores and not what stood in repartition topics, which only the topics themselves hold."""
    internal = sorted(
        topology.source(n).topic_name(application_id)
        for sub in topology.subtopologies
        for n in sub.sources
        if topology.source(n).internal
    )
    if internal:
        raise SettingsError(
            f"a replay that begins at a savepoint cannot recompute {', '.join(internal)}: what stood there unread when the "
            "savepoint was made comes from records before it, and would be missing. Leave --recompute out, so that the "
            f"topics are read, or begin at the application's first offset (--from {START})"
        )


def _layout(
    topology: Topology, application_id: str, cluster: Cluster, recompute: bool
) -> tuple[dict[str, int], dict[int, int]]:
    """Partition counts of all topics that are read or written, and the number of tasks of each sub-topology."""
    external = {
        topology.source(n).topic
        for sub in topology.subtopologies
        for n in sub.sources
        if not topology.source(n).internal
    }
    internal = {
        topology.source(n).topic_name(application_id)
        for sub in topology.subtopologies
        for n in sub.sources
        if topology.source(n).internal
    }
    read = cluster.require_counts(external if recompute else external | internal)
    written = cluster.partition_counts(
        topic
        for sub in topology.subtopologies
        for n in sub.sinks
        for topic in sink_topics(topology.sink(n), application_id)
    )
    layout = layout_of(topology, application_id, read)
    counts = {**layout.topics, **written, **read}
    for topic, count in layout.topics.items():
        if not recompute and read[topic] != count:
            raise IncompatibleError(
                f"{topic} has {read[topic]} partitions where the topology makes {count}; replay with the topology that ran"
            )
    return counts, dict(enumerate(layout.tasks))


def _first(committed: CommittedInput | None, there: tuple[int, int]) -> int:
    """Where the application began to read an input partition: what its commits say, or where it would begin now if it
    has committed nothing. Commits of before that was noted say nothing: then the partition must be there from its
    begin."""
    if committed is None:
        return there[0]
    return committed.metadata.first or 0


def _range(
    tp: TopicPartition,
    there: tuple[int, int],
    start: int,
    to: To,
    committed: Mapping[TopicPartition, CommittedInput],
) -> tuple[int, int]:
    first, last = there
    if start < first:
        raise IncompatibleError(
            f"{tp.topic} partition {tp.partition} begins at offset {first}, and the replay would begin at {start}: records "
            f"are gone, so the answer could not be the same. Begin at a savepoint from {first} on ({SAVEPOINT}latest), and "
            "keep the topic longer (retention.ms)"
        )
    if to == "end":
        stop = last
    elif isinstance(to, str):
        stop = committed[tp].offset if tp in committed else start
    else:
        stop = to.get(tp, start)
    if stop > last:
        raise IncompatibleError(
            f"{tp.topic} partition {tp.partition} ends at offset {last}, before {stop}, where the replay would end: it has "
            "lost records, or was created again"
        )
    if stop < start:
        raise SettingsError(
            f"the replay of {tp.topic} partition {tp.partition} would begin at {start} and end at {stop}; choose a later "
            "end or an older savepoint"
        )
    return start, stop


def _start(
    tp: TopicPartition,
    ranges: Mapping[TopicPartition, tuple[int, int]],
    begins: Mapping[TopicPartition, CommittedInput],
    known: Mapping[TopicPartition, CommittedInput],
) -> tuple[int, CommitMetadata]:
    if tp in begins:
        return begins[tp].offset, begins[tp].metadata
    began_ms = known[tp].metadata.began_ms if tp in known else NO_TIME
    return (ranges[tp][0] if tp in ranges else 0), CommitMetadata(began_ms=began_ms)


def _bases(
    topology: Topology, tasks: Iterable[TaskId], savepoint: Savepoint, saved_in: SavepointRepository
) -> dict[tuple[TaskId, str], Manifest]:
    out: dict[tuple[TaskId, str], Manifest] = {}
    for task in tasks:
        for spec in topology.subtopologies[task.subtopology].stores:
            of = StorePartition(savepoint.application_id, spec.name, task.partition)
            manifest = saved_in.manifest(savepoint, of)
            if manifest.segment_ms != spec.segment_ms:
                raise IncompatibleError(
                    f"savepoint {savepoint.name} holds {of} in segments of {manifest.segment_ms} ms, and this topology "
                    f"makes {spec.segment_ms} ms: its grace, gap or window was changed. Replay with the topology that ran, "
                    f"or begin at {START}"
                )
            out[task, spec.name] = manifest
    return out


def _cautions(cluster: Cluster, read: Iterable[str]) -> Iterable[str]:
    for topic in sorted(read):
        if "compact" in cluster.topic_config(topic).get("cleanup.policy", "delete"):
            yield (
                f"{topic} is compacted: where the broker has removed older records of a key, what the application made of "
                "them cannot be computed again"
            )


# -- the journal -------------------------------------------------------------------------------------------------


def journal_bounds(plan: ReplayPlan, task: TaskId) -> JournalBounds:
    """The part of the task's journal that belongs to the replay."""
    start = plan.starts[task]
    ended = [plan.ends[tp] for t in start if (tp := TopicPartition(t, task.partition)) in plan.ends]
    return JournalBounds(
        task=task,
        starts={t: offset for t, (offset, _) in start.items()},
        stops={t: plan.ranges[TopicPartition(t, task.partition)][1] for t in start},
        began_ms=max((m.wall_ms for _, m in start.values()), default=-1),
        ended_ms=max((c.metadata.wall_ms for c in ended), default=None),
    )


def recompute_levels(topology: Topology) -> list[list[Subtopology]]:
    """Sub-topologies so that each comes after those that write its repartition topics. Raises ``TopologyError`` for a
    loop through topics."""
    writers: dict[int, set[int]] = {s.number: set() for s in topology.subtopologies}
    for sub in topology.subtopologies:
        for name in sub.sources:
            source = topology.source(name)
            if source.internal:
                for other in topology.subtopologies:
                    if any(topology.sink(n).internal and topology.sink(n).topic == source.topic for n in other.sinks):
                        writers[sub.number].add(other.number)
    levels: list[list[Subtopology]] = []
    done: set[int] = set()
    while len(done) < len(writers):
        ready = [s for s in topology.subtopologies if s.number not in done and writers[s.number] <= done]
        if not ready:
            raise TopologyError("the topology feeds a repartition topic back to itself; replay without recomputing")
        levels.append(ready)
        done |= {s.number for s in ready}
    return levels


# -- snapshots of the stores at the replay's end -----------------------------------------------------------------


def snapshot_targets(plan: ReplayPlan, cluster: Cluster, now_ms: int) -> dict[tuple[TaskId, str], CompactTarget]:
    """The stores whose contents at the replay's end belong to a known changelog offset: those of tasks that end at
    their committed positions."""
    out: dict[tuple[TaskId, str], CompactTarget] = {}
    if plan.recomputed:
        return out
    for sub in plan.topology.subtopologies:
        partitions = [t.partition for t in plan.tasks if t.subtopology == sub.number]
        for spec in sub.stores:
            topic = changelog_topic(plan.application_id, spec)
            if not (spec.changelog or spec.source_topic) or topic not in cluster.partition_counts([topic]):
                continue
            facts = cluster.changelog_facts(topic, partitions)
            for p in partitions:
                ends = {tp: plan.ends[tp] for t in plan.topics(sub) if (tp := TopicPartition(t, p)) in plan.ends}
                if spec.source_topic is not None:
                    own = ends.get(TopicPartition(topic, p))
                    end = None if own is None else own.offset
                else:
                    end = max((c.metadata.changelogs.get(spec.name, -1) for c in ends.values()), default=-1)
                    end = None if end < 0 else end
                if end is None:
                    continue
                out[TaskId(sub.number, p), spec.name] = CompactTarget(
                    place=0,
                    application_id=plan.application_id,
                    form=StoreForm.of(spec),
                    partition=p,
                    facts=facts[p],
                    start=0,
                    end=end,
                    base=None,
                    created_ms=now_ms,
                    input_offsets=tuple(sorted((tp.topic, tp.partition, c.offset) for tp, c in ends.items())),
                    stream_time_ms=max(c.metadata.stream_time_ms for c in ends.values()),
                )
    return out
