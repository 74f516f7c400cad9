"""The plan of a compaction, made before anything is read, and the result that it publishes.

``at="committed"`` stops every store at the application's committed positions: the snapshots then name their input
offsets, and together they are a savepoint, from which a replay can start. ``at="end"`` goes to the changelogs' ends. An
earlier snapshot that is still good is built upon, so that only the tail is read.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from penstock.state.errors import IncompatibleError, SettingsError
from penstock.state.log import TopicPartition
from penstock.state.recovery.changelog import changelog_topic, expires
from penstock.state.recovery.restore_decision import ChangelogFacts, why_not
from penstock.state.snapshots.manifest import Manifest, StorePartition
from penstock.state.snapshots.repository import SnapshotRepository, new_attempt, open_repository
from penstock.state.stores.store import StoreSpec
from penstock.streams.batch.cluster import Cluster, CommittedInput, now_ms
from penstock.streams.batch.compact_executor import CompactTarget, StoreForm
from penstock.streams.batch.output_topics import written_topics
from penstock.streams.batch.savepoint import (
    SavedInput,
    SavedOutput,
    SavedStore,
    Savepoint,
    SavepointRepository,
)
from penstock.streams.task import commit_metadata
from penstock.topologies.graph.topology import Subtopology, Topology

At = Literal["committed", "end"]
KEEP_SAVEPOINTS = 3
_QUIET_ATTEMPTS = 10
_QUIET_EVERY_S = 0.2
_MARKERS_WAIT_S = 30.0
_MARKERS_TURN_S = 0.05
_FRESH_PERCENT = 45
"""A snapshot of the same offset is kept while it is younger than this part of ``delete.retention.ms``. After that it
is written again, so that its age, by which deletions are judged, starts from zero."""


@dataclasses.dataclass(frozen=True)
class CompactedStore:
    """One store partition: its newest snapshot, and how it was made. ``read_from``: the changelog offset at which
    reading began; ``None`` if the existing snapshot was kept."""

    manifest: Manifest
    read_from: int | None


@dataclasses.dataclass(frozen=True)
class CompactResult:
    """The result of a compaction. ``savepoint``: its name; ``None`` if the snapshots are not all at one commit, for
    which ``no_savepoint`` gives the reason. ``cautions``: what limits the snapshots."""

    stores: tuple[CompactedStore, ...]
    savepoint: str | None
    seconds: float
    cautions: tuple[str, ...] = ()
    no_savepoint: str | None = None


@dataclasses.dataclass(frozen=True)
class CompactPlan:
    """Stores to compact, decided before anything is read. ``fresh``: the snapshots to keep. ``no_savepoint``: why there
    is none."""

    targets: tuple[CompactTarget, ...]
    fresh: tuple[Manifest, ...]
    savepoint: Savepoint | None
    no_savepoint: str | None = None

    @property
    def cautions(self) -> tuple[str, ...]:
        """Limits of the snapshots, a sentence each."""
        return tuple(
            f"{t.facts.topic} partition {t.partition} begins at offset {t.start}: the snapshot of {t.form.name} holds what "
            "the topic's retention has left, as a restore from the topic would"
            for t in self.targets
            if t.base is None and t.start > 0
        )


def plan_compaction(
    topology: Topology,
    application_id: str,
    cluster: Cluster,
    repository: str,
    *,
    now_ms: int,
    stores: Sequence[str] | None = None,
    at: At = "committed",
    full: bool = False,
) -> CompactPlan:
    """Decide where each store partition's snapshot begins and ends. Errors as ``compact``."""
    wanted = _wanted(topology, stores)
    snapshots = open_repository(repository)
    targets: list[CompactTarget] = []
    fresh: list[Manifest] = []
    unknown: list[str] = []
    counts = cluster.require_counts(
        topic
        for sub in topology.subtopologies
        for topic in (
            *(changelog_topic(application_id, s) for s in sub.stores if s in wanted),
            *_input_topics(topology, sub, application_id),
        )
    )
    # Before the changelogs' ends are read, so that they cover what is committed.
    reached = _reached(topology, application_id, cluster, counts) if at == "committed" else CommitPoint({}, (), False)
    cluster_id = ""
    for sub in topology.subtopologies:
        specs = [s for s in sub.stores if s in wanted]
        topics = _input_topics(topology, sub, application_id)
        partitions = range(max(counts[t] for t in topics))
        committed = {tp: c for tp, c in reached.inputs.items() if tp.topic in topics}
        if at == "committed" and specs and not committed:
            raise SettingsError(
                f"the group {application_id} has no committed offsets for {', '.join(topics)}; check the application id, or "
                "compact to the changelogs' ends (--at end)"
            )
        for spec in specs:
            ends = {p: _committed_end(spec, p, committed) or 0 for p in partitions}
            facts = _covering(cluster, changelog_topic(application_id, spec), ends)
            for p in partitions:
                cluster_id = facts[p].cluster_id
                mine = {tp: c for tp, c in committed.items() if tp.partition == p}
                target, known = _target(application_id, spec, p, facts[p], mine, at, now_ms)
                if not known:
                    unknown.append(f"{spec.name} [{p}]")
                found = _on_base(target, snapshots, full, now_ms)
                if isinstance(found, Manifest):
                    fresh.append(found)
                else:
                    targets.append(dataclasses.replace(found, place=len(targets)))
    without = _without_savepoint(topology, wanted, stores, at, unknown)
    savepoint = _savepoint(application_id, cluster_id, reached, now_ms) if without is None else None
    return CompactPlan(tuple(targets), tuple(fresh), savepoint, without)


def _without_savepoint(
    topology: Topology, wanted: Sequence[StoreSpec], stores: Sequence[str] | None, at: At, unknown: Sequence[str]
) -> str | None:
    """Why the snapshots are not a savepoint; ``None`` if they are."""
    if at != "committed":
        return "the snapshots stand at the changelogs' ends, and a savepoint stands at a commit; use --at committed"
    if stores is not None:
        return "a savepoint holds all stores, and only some were asked for; leave --store out"
    unlogged = [s.name for s in topology.stores if s not in wanted]
    if unlogged:
        return f"{', '.join(unlogged)} has no changelog, so its offset is unknown; a replay begins at the start instead"
    if unknown:
        return (
            f"the committed positions do not say where the changelog of {', '.join(unknown[:5])} stood: its task has "
            "committed nothing yet, or another tool set the group's offsets; let the workers commit, and compact again"
        )
    return None


def _wanted(topology: Topology, names: Sequence[str] | None) -> list[StoreSpec]:
    logged = [s for s in topology.stores if s.changelog or s.source_topic is not None]
    if names is None:
        if not logged:
            raise SettingsError("the topology has no store with a changelog; there is nothing to compact")
        return logged
    known = {s.name: s for s in logged}
    unknown = [n for n in names if n not in known]
    if unknown:
        raise SettingsError(f"no store with a changelog is named {unknown}; there are: {', '.join(known) or 'none'}")
    return [known[n] for n in names]


def _input_topics(topology: Topology, sub: Subtopology, application_id: str) -> list[str]:
    return [topology.source(n).topic_name(application_id) for n in sub.sources]


def _committed_end(spec: StoreSpec, partition: int, committed: Mapping[TopicPartition, CommittedInput]) -> int | None:
    """Where the store's changelog stood at the commit; ``None`` if the commit does not say it."""
    if spec.source_topic is not None:
        own = committed.get(TopicPartition(spec.source_topic, partition))
        return None if own is None else own.offset
    mine = [c.metadata.changelogs for tp, c in committed.items() if tp.partition == partition]
    return max((noted[spec.name] for noted in mine if spec.name in noted), default=None)


def _covering(cluster: Cluster, topic: str, ends: Mapping[int, int]) -> dict[int, ChangelogFacts]:
    """A changelog's facts, when it is seen up to ``ends``, by partition: positions can be committed before the markers of
    their transaction are in the changelog. One that has lost records will not be, so without a transaction that is open
    nothing is waited for."""
    until_s = time.monotonic() + _MARKERS_WAIT_S
    while True:
        pending = cluster.open_transactions(cluster.ends(TopicPartition(topic, p) for p in ends))
        facts = cluster.changelog_facts(topic, sorted(ends))
        if not pending or all(facts[p].end_offset >= end for p, end in ends.items()) or time.monotonic() > until_s:
            return facts
        time.sleep(_MARKERS_TURN_S)


def _target(
    application_id: str,
    spec: StoreSpec,
    partition: int,
    facts: ChangelogFacts,
    committed: Mapping[TopicPartition, CommittedInput],
    at: At,
    now_ms: int,
) -> tuple[CompactTarget, bool]:
    """The store partition and its end offset, and whether that is exactly the commit."""
    end, known = facts.end_offset, False
    if at == "committed":
        stands = _committed_end(spec, partition, committed)
        known = stands is not None or facts.end_offset == 0
        end = facts.end_offset if stands is None else stands
        if spec.source_topic is None:
            facts = dataclasses.replace(facts, committed_end=stands)
    if end > facts.end_offset:
        raise IncompatibleError(
            f"{facts.topic} partition {partition} ends at {facts.end_offset}, before the committed position {end}: it has "
            "lost records, or was created again. Start the application under another id, or restore the topic"
        )
    offsets = tuple(sorted((tp.topic, tp.partition, c.offset) for tp, c in committed.items()))
    target = CompactTarget(
        place=0,
        application_id=application_id,
        form=StoreForm.of(spec),
        partition=partition,
        facts=facts,
        start=facts.begin_offset,
        end=end,
        base=None,
        created_ms=now_ms,
        input_offsets=offsets if known and offsets else None,
        stream_time_ms=max((c.metadata.stream_time_ms for c in committed.values()), default=-1),
    )
    return target, known


_ANEW = 2
"""A changelog whose entries expire is read from its begin once it has this many records, at most, for each entry of the
snapshot: then the new one has no closed windows, and to read it costs no more than to merge the old one."""


def _on_base(target: CompactTarget, snapshots: SnapshotRepository, full: bool, now_ms: int) -> CompactTarget | Manifest:
    """The target built on the newest valid snapshot; or that snapshot, if it is already what is wanted."""
    refused: list[str] = []
    if not full:
        for manifest in snapshots.find(target.of).manifests:
            if manifest.changelog_offset > target.end:
                continue
            wrong = why_not(manifest, target.facts, now_ms, target.form.spec().segment_ms)
            if wrong is not None:
                refused.append(f"the snapshot at offset {manifest.changelog_offset} is of no use: {wrong}")
                continue
            if _says_the_same(manifest, target, now_ms):
                return manifest
            if expires(target.form.spec()) and target.end - target.facts.begin_offset <= _ANEW * manifest.entries:
                # Workers delete from the changelog what has expired; the snapshot still has it.
                return target
            return dataclasses.replace(target, start=manifest.changelog_offset, base=manifest)
    facts = target.facts
    # A changelog with a retention drops what expired; any other one that does not begin at 0 has lost rows.
    if facts.begin_offset > 0 and not expires(target.form.spec()):
        said = "; ".join(refused) or "no snapshot exists to build on"
        raise IncompatibleError(
            f"{facts.topic} partition {target.partition} begins at offset {facts.begin_offset}, so it no longer holds the "
            f"whole store, and {said}. Set its cleanup.policy to compact, and let a worker that has the state rewrite it"
        )
    return target


def _says_the_same(manifest: Manifest, target: CompactTarget, now_ms: int) -> bool:
    """Whether the snapshot equals what the target would become, and is young enough to stay valid."""
    if manifest.changelog_offset != target.end:
        return False
    if target.input_offsets is not None and manifest.input_offsets != target.input_offsets:
        return False
    age_ms = now_ms - manifest.created_ms
    return not target.facts.compacted or age_ms * 100 < target.facts.delete_retention_ms * _FRESH_PERCENT


@dataclasses.dataclass(frozen=True)
class CommitPoint:
    """The application's committed positions, and the ends of its output topics. ``exact``: these ends cover all that
    was written up to that commit, and nothing else."""

    inputs: Mapping[TopicPartition, CommittedInput]
    outputs: tuple[SavedOutput, ...]
    exact: bool


def _reached(topology: Topology, application_id: str, cluster: Cluster, counts: Mapping[str, int]) -> CommitPoint:
    """Read the committed positions and the outputs' ends, if possible at a moment when nothing is being written."""
    asked = [
        TopicPartition(t, p)
        for sub in topology.subtopologies
        for t in _input_topics(topology, sub, application_id)
        for p in range(counts[t])
    ]
    written = cluster.partition_counts(written_topics(topology, application_id))
    outputs = [TopicPartition(t, p) for t, n in written.items() for p in range(n)]
    for attempt in range(_QUIET_ATTEMPTS):
        if attempt:
            time.sleep(_QUIET_EVERY_S)
        committed = cluster.committed(asked)
        ends = cluster.ends(outputs)
        # Without an open transaction all committed records are visible, and without another commit there are no
        # others.
        exact = not cluster.open_transactions(ends) and cluster.committed(asked) == committed
        if exact:
            break
    saved = tuple(SavedOutput(tp.topic, tp.partition, end) for tp, (_, end) in sorted(ends.items()))
    return CommitPoint(committed, saved, exact)


def _savepoint(application_id: str, cluster_id: str, reached: CommitPoint, now_ms: int) -> Savepoint:
    """The savepoint without its stores, which are known after they are written."""
    return Savepoint(
        application_id=application_id,
        cluster_id=cluster_id,
        name=new_attempt(now_ms),
        inputs=tuple(
            SavedInput(tp.topic, tp.partition, c.offset, commit_metadata.encode(c.metadata))
            for tp, c in sorted(reached.inputs.items())
        ),
        stores=(),
        outputs=reached.outputs,
        outputs_exact=reached.exact,
    )


def publish(
    repository: str,
    plan: CompactPlan,
    written: Mapping[int, Manifest],
    keep: int,
    keep_savepoints: int = KEEP_SAVEPOINTS,
) -> None:
    """Publish the snapshots, then the savepoint; then remove all but the ``keep`` newest snapshots and the
    ``keep_savepoints`` newest savepoints. A savepoint that stays, or is pinned, keeps its snapshots."""
    snapshots, savepoints = open_repository(repository), SavepointRepository(repository)
    for manifest in written.values():
        snapshots.publish(manifest)
    everything = [*written.values(), *plan.fresh]
    if plan.savepoint is not None:
        stores = tuple(SavedStore(m.store, m.partition, m.name) for m in _in_order(everything))
        savepoints.publish(msgspec.structs.replace(plan.savepoint, stores=stores))
    needed: set[str] = set()
    for application_id in {m.application_id for m in everything}:
        savepoints.prune(application_id, keep=keep_savepoints)
        needed |= savepoints.manifests(application_id)
    for manifest in everything:
        snapshots.prune(manifest.of, keep=keep, now_ms=now_ms(), live=[manifest.name, *needed])


def _in_order(manifests: Iterable[Manifest]) -> list[Manifest]:
    def of(manifest: Manifest) -> StorePartition:
        return manifest.of

    return sorted(manifests, key=of)
