"""The plan of a verification, made before the replay, and its result.

The range is what the application has committed. Which topics can be compared, and how strictly, depends on the
guarantee, on the savepoint that the replay begins at, and on whether the application goes on meanwhile.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Literal

from penstock.state.log import TaskId, TopicPartition
from penstock.streams.batch.cluster import Cluster
from penstock.streams.batch.compact_executor import CompactTarget
from penstock.streams.batch.output_topics import written_topics
from penstock.streams.batch.replay_plan import ReplayPlan, snapshot_targets

Mode = Literal["sequence", "key sequence", "bag", "last value", "loss"]
InputRecord = tuple[str, int, int]


@dataclasses.dataclass(frozen=True)
class Slack:
    """Rows that only one side may have without a difference. ``stream_before``: the stream's, before the range, if
    its first output offset is known only roughly. ``batch_before``: the batch's, if the topic has lost its first
    records. ``stream_after``: the stream's, if the application has continued."""

    stream_before: bool = False
    batch_before: bool = False
    stream_after: bool = False

    @property
    def at_begin(self) -> bool:
        """Whether the two sides may begin at different rows, so that places count from the end."""
        return self.stream_before or self.batch_before

    @property
    def floats(self) -> bool:
        """Whether the sides have neither end in common: then rows have no comparable place and can only be counted."""
        return self.at_begin and self.stream_after


@dataclasses.dataclass(frozen=True)
class Difference:
    """The first difference of a comparison: its place, the rows on both sides (``None``: none), and the input record
    (topic, partition, offset) after which they differ, if it was found."""

    partition: int | None
    key: bytes | None
    stream: bytes | None
    batch: bytes | None
    input: InputRecord | None


@dataclasses.dataclass(frozen=True)
class Comparison:
    """One topic or store. ``differences`` counts rows. ``allowed``: rows that differ only because work was repeated, as
    at-least-once permits. By ``key sequence`` only keys that one task writes are compared: the order of the others is not
    known, and they are counted (``bag``)."""

    kind: Literal["topic", "store"]
    name: str
    mode: Mode
    stream_rows: int
    batch_rows: int
    differences: int
    first: Difference | None
    allowed: int = 0

    @property
    def idle(self) -> bool:
        """Whether it has compared nothing, since several tasks write each key."""
        return self.mode == "key sequence" and not (self.stream_rows or self.batch_rows)


@dataclasses.dataclass(frozen=True)
class VerifyResult:
    """``cautions``: what was not compared and why, and what limits the comparison. ``until``: the savepoint at which the
    range ended; ``table``: where the differing rows are."""

    comparisons: tuple[Comparison, ...]
    records: int
    cautions: tuple[str, ...]
    seconds: float
    started_from: str = ""
    until: str | None = None
    table: str | None = None

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return all(not c.differences for c in self.comparisons)


@dataclasses.dataclass(frozen=True)
class ComparedTopic:
    """One written topic. ``per_commit``: only its last records per key can be compared. ``loss``: duplicates are possible,
    so only what is missing counts."""

    per_commit: bool
    slack: Slack
    loss: bool = False


@dataclasses.dataclass(frozen=True)
class Sample:
    """One of ``of`` partitions: those whose number leaves ``which`` when it is divided by ``of``. Keys are spread over
    partitions by a hash, so it is a sample of keys."""

    of: int = 1
    which: int = 0

    def __contains__(self, partition: int) -> bool:
        return partition % self.of == self.which


EVERYTHING = Sample()


@dataclasses.dataclass(frozen=True)
class VerifyPlan:
    """The topics and stores to compare. ``outputs``: the range of each written partition. ``shortened``: the stores whose
    changelog no longer begins at offset 0. ``loss``: duplicates are possible. ``sample``: only these partitions."""

    topics: Mapping[str, ComparedTopic]
    outputs: Mapping[TopicPartition, tuple[int, int]]
    stores: Mapping[tuple[TaskId, str], CompactTarget]
    shortened: tuple[str, ...]
    cautions: tuple[str, ...]
    loss: bool = False
    sample: Sample = EVERYTHING


def plan_verification(
    plan: ReplayPlan, cluster: Cluster, exactly_once: bool, now_ms: int, sample: Sample = EVERYTHING
) -> VerifyPlan:
    """Decide what to compare, and how strictly."""
    cautions: list[str] = []
    topics: dict[str, bool] = {}
    if not exactly_once:
        cautions.append(
            "at least once: records may have been done twice, so only what is missing counts; give --guarantee "
            "exactly_once (exactly_once=True) if that is what the workers run with"
        )
    if plan.savepoint is not None and not plan.savepoint.outputs:
        cautions.append(
            f"savepoint {plan.savepoint.name} does not say how far the outputs had come, so they are not compared; "
            "penstock compact makes one that does"
        )
    else:
        topics = written_topics(plan.topology, plan.application_id)
    written = _output_ranges(plan, cluster, topics)
    stores = {
        place: target
        for place, target in snapshot_targets(plan, cluster, now_ms).items()
        if place[0].partition in sample
    }
    # If the range ends at a savepoint, its snapshots are compared, which are complete.
    shortened = sorted({name for (_, name), t in stores.items() if t.facts.begin_offset > 0 and plan.until is None})
    for name in shortened:
        cautions.append(
            f"the changelog of {name} no longer begins at offset 0, so rows that only the batch has are not counted"
        )
    running = _goes_on(plan, cluster)
    compared: dict[str, ComparedTopic] = {}
    for topic, per_commit in sorted(topics.items()):
        slack = _slack(plan, topic, written, running)
        why = _incomparable_loss(topic, slack) if not exactly_once else _incomparable(topic, per_commit, slack)
        if why is not None:
            cautions.append(why)
            continue
        if slack.batch_before:
            cautions.append(f"{topic} no longer holds the first records of the range, so those are not compared")
        if slack.stream_before:
            cautions.append(
                f"{topic} was being written when the savepoint was made, so records that only the stream has are not counted"
            )
        compared[topic] = ComparedTopic(per_commit, slack, loss=not exactly_once)
    outputs = {tp: (begin, end) for tp, (_, begin, end) in written.items() if tp.topic in compared}
    return VerifyPlan(compared, outputs, stores, tuple(shortened), tuple(cautions), not exactly_once, sample)


def _goes_on(plan: ReplayPlan, cluster: Cluster) -> bool:
    """Whether the outputs may hold more than the range produced. Call it after the outputs' ends are read: if nothing was
    committed in between, the outputs are those of the range."""
    if plan.until is not None:
        return not plan.until.outputs_exact
    now = cluster.committed(list(plan.ranges))
    return any(now.get(tp) is None or now[tp].offset != c.offset for tp, c in plan.ends.items())


def _output_ranges(
    plan: ReplayPlan, cluster: Cluster, topics: Iterable[str]
) -> dict[TopicPartition, tuple[int, int, int]]:
    """For every written partition: where the range's outputs begin, where those begin that are still kept, and the end."""
    existing = cluster.partition_counts(topics)
    ends = cluster.ends(TopicPartition(t, p) for t, n in existing.items() for p in range(n))
    starts = plan.savepoint.output_offsets() if plan.savepoint is not None else {}
    stops = plan.until.output_offsets() if plan.until is not None and plan.until.outputs_exact else {}
    out: dict[TopicPartition, tuple[int, int, int]] = {}
    for tp, (begin, end) in ends.items():
        start, stop = starts.get(tp, 0), min(end, stops.get(tp, end))
        out[tp] = (start, min(max(start, begin), stop), stop)
    return out


def _slack(
    plan: ReplayPlan, topic: str, outputs: Mapping[TopicPartition, tuple[int, int, int]], running: bool
) -> Slack:
    return Slack(
        stream_before=plan.savepoint is not None and not plan.savepoint.outputs_exact,
        batch_before=any(begin > start for tp, (start, begin, _) in outputs.items() if tp.topic == topic),
        stream_after=running,
    )


def _incomparable_loss(topic: str, slack: Slack) -> str | None:
    """Why a topic cannot be searched for missing records; ``None`` if it can."""
    if slack.batch_before:
        return (
            f"{topic} no longer holds the first records of the range, so missing records cannot be found; keep it "
            "longer (retention.ms)"
        )
    return None


def _incomparable(topic: str, per_commit: bool, slack: Slack) -> str | None:
    """Why a topic cannot be compared; ``None`` if it can."""
    if slack.stream_after and per_commit:
        return f"the application is running on, so {topic} (emitted per commit) is not compared; stop it first"
    if slack.stream_after and slack.batch_before:
        return (
            f"the application is running on, and {topic} no longer holds the first records of the range, so it is not "
            "compared; stop the application, or keep the topic longer (retention.ms)"
        )
    return None
