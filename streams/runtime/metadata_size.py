"""Check before the first commit that the metadata of every commit will fit: one that is too large would stop a worker
in the middle of its work, and again after each start. Pure.

The metadata of a position grows with the operators, stores and upstream tasks of its sub-topology. Their names and
numbers are known when a worker starts; the values are not, so every time and offset is assumed to be as long, and as
different from the others, as possible.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator

from penstock.state.errors import TopologyError
from penstock.state.recovery.changelog import journal_topic
from penstock.streams.runtime.topic_setup import TopicLayout, needs_journal
from penstock.streams.task import commit_metadata
from penstock.streams.task.commit_metadata import CommitMetadata, ReadUpTo
from penstock.topologies.graph.topology import Subtopology, Topology
from penstock.topologies.operator_api.operator import OperatorSpec

_TIME_BASE_MS = 1_700_000_000_000
_SPREAD_MS = 10_000_000_000
"""Four months between the times of one task."""
_LAG_MS = 10_000_000
"""Hours between the watermarks of the tasks before it."""
_OFFSETS = 100_000_000_000
_EPOCHS = 10_000
OWNER_CHARS = 40
"""The length of a worker's name: the id of its folder and its slot."""


def check_metadata_size(topology: Topology, application_id: str, layout: TopicLayout) -> None:
    """Raises ``TopologyError`` if the metadata of some commit could be larger than brokers accept."""
    for sub in topology.subtopologies:
        worst = worst_metadata(topology, sub, application_id, layout)
        for name in sub.sources:
            worst.form = topology.source(name).form
            size_bytes = len(commit_metadata.packed(worst))
            if size_bytes > commit_metadata.LIMIT_CHARS:
                raise TopologyError(
                    f"what is committed with each position of sub-topology {sub.number} can take {size_bytes} bytes, and "
                    f"brokers keep {commit_metadata.LIMIT_CHARS} (offset.metadata.max.bytes): it has {len(worst.operators)} "
                    f"operators with a time of their own, {len(worst.changelogs)} stores and {_writers(worst)} tasks before "
                    "it. Shorten their names, split the topology with repartition(), or ask for fewer partitions upstream"
                )


def worst_metadata(topology: Topology, sub: Subtopology, application_id: str, layout: TopicLayout) -> CommitMetadata:
    """The largest metadata that a task of this sub-topology may have to commit."""
    numbers = _numbers()
    sources = [topology.source(n) for n in sub.sources]
    worst = CommitMetadata(
        version=commit_metadata.VERSION,
        stream_time_ms=_time(numbers),
        partition_time_ms=_time(numbers),
        wall_ms=_time(numbers),
        operators={n: _time(numbers) for n in sub.operators if _keeps_time(topology.operators[n])},
        changelogs={s.name: _OFFSETS + next(numbers) % _OFFSETS for s in sub.stores if s.changelog},
        journal=_OFFSETS if needs_journal(topology, sub) and journal_topic(application_id, sub.number) else None,
        caught_up=[s.topic_name(application_id) for s in sources if s.bootstrap],
        first=_OFFSETS,
        epochs={s.name: _EPOCHS + next(numbers) % _EPOCHS for s in sub.stores if s.changelog},
        topic_id=base64.urlsafe_b64encode(hashlib.sha256(b"topic").digest()[:16]).decode().rstrip("="),
        read_up_to=ReadUpTo(_OFFSETS + next(numbers) % _OFFSETS, _EPOCHS + next(numbers) % _EPOCHS),
        began_ms=_time(numbers),
        owner=hashlib.sha256(b"owner").hexdigest()[:OWNER_CHARS],
    )
    for source in sources:
        writers = [
            task
            for other, tasks in zip(topology.subtopologies, layout.tasks, strict=True)
            if source.internal and any(topology.sink(n).topic == source.topic for n in other.sinks)
            for task in range(tasks)
        ]
        if source.watermark is not None or (source.carries_watermarks and writers):
            ahead = [next(numbers) % _LAG_MS for _ in writers]
            worst.watermarks[source.topic_name(application_id)] = [
                _time(numbers), False, False, _time(numbers), len(writers), [len(writers), ahead, []]
            ]  # fmt: skip
    if worst.watermarks:
        sent = [topology.sink(n).topic_name(application_id) for n in sub.sinks if topology.sink(n).internal]
        worst.watermarks[""] = [_time(numbers), *([topic, _time(numbers), _LAG_MS] for topic in sent)]
    return worst


def _keeps_time(spec: OperatorSpec) -> bool:
    return spec.timed or spec.uses_wall_time or any(store.kind != "key_value" for store in spec.stores)


def _writers(worst: CommitMetadata) -> int:
    return sum(saved[4] for topic, saved in worst.watermarks.items() if topic)


def _time(numbers: Iterator[int]) -> int:
    return _TIME_BASE_MS + next(numbers) % _SPREAD_MS


def _numbers() -> Iterator[int]:
    """As irregular as real times, and the same at each start."""
    state = b""
    while True:
        state = hashlib.sha256(state).digest()
        yield int.from_bytes(state[:8], "big")
