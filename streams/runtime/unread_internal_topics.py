"""Records between the sub-topologies of an application that its present topology would lose or misread.

What an internal topic holds follows from the topology: whether an aggregation combines (``combine=``, the emission mode),
splits heavy keys, which windows its partial aggregates are of, which serdes write. A change of it leaves what was written
before and not read yet, in two places:

* in a topic that the topology reads no longer (combining and splitting have topics of their own): looked for when a worker
  starts, by ``check_unread_internal_topics``;
* in a topic that it reads in another form: each commit notes the form of what its position lies in
  (``CommitMetadata.form``), and ``refuse_other_form`` compares it when a task starts.

Both refuse where a record is left, and say how to go on. To read both forms, every aggregation would need both topics as
inputs for good, and a journal of their order with them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from penstock.state.errors import IncompatibleError, RetriableError
from penstock.state.log import TopicPartition
from penstock.streams.ports.log import LogAdmin, LogConsumer
from penstock.streams.task.commit_metadata import CommitMetadata
from penstock.streams.task.task_watermarks import mark_of
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operator_api.internal_names import INTERNAL_SUFFIXES
from penstock.topologies.operators.records.source_sink import SourceSpec

POLLS_MAX: Final = 300
"""The number of polls without an answer."""
_POLL_RECORDS: Final = 1_000
_POLL_S: Final = 0.2


def check_unread_internal_topics(
    topology: Topology,
    application_id: str,
    admin: LogAdmin,
    open_consumer: Callable[[], LogConsumer],
    other_groups: Sequence[str] = (),
) -> None:
    """Raises ``IncompatibleError`` where an internal topic of this application that the topology does not read holds
    records that the application has not read. ``open_consumer``: one of the application's group, which does not join;
    ``other_groups``: the application's other groups."""
    read = topology.source_topics(application_id)
    prefix = f"{application_id}-"
    left = {t: n for t, n in admin.topics(prefix).items() if t.endswith(INTERNAL_SUFFIXES) and t not in read}
    if not left:
        return
    places = [TopicPartition(t, p) for t, count in left.items() for p in range(count)]
    consumer = open_consumer()
    try:
        committed = consumer.committed(places)
    finally:
        consumer.close()
    ours = {tp.topic for tp, at in committed.items() if at is not None}
    if ours != set(left):
        # the topics of application a-b begin with a- too
        others = tuple(f"{group}-" for group in admin.groups(prefix) if group not in other_groups)
        ours |= {t for t in left if not t.startswith(others)}
    starts = {tp: 0 if at is None else at.offset for tp, at in committed.items() if tp.topic in ours}
    found = first_unread(open_consumer, starts)
    if found is not None:
        tp, offset = found
        raise IncompatibleError(
            f"topic {tp.topic}, partition {tp.partition}, holds records from offset {offset} on that {application_id} has "
            "written and not read, and this topology does not read it: combine=, the emission, split() or an operator's "
            f"name was changed while they were on their way. {_way_out(tp.topic)}"
        )


def refuse_other_form(
    source: SourceSpec, tp: TopicPartition, start: tuple[int, CommitMetadata], open_consumer: Callable[[], LogConsumer]
) -> None:
    """Raises ``IncompatibleError`` where the records of an internal topic from ``start`` on have another form than the
    topology reads. ``open_consumer``: any that may read."""
    offset, noted = start
    if not source.internal or noted.form in ("", source.form):
        return
    found = first_unread(open_consumer, {tp: offset})
    if found is not None:
        raise IncompatibleError(
            f"topic {tp.topic}, partition {tp.partition}, holds records from offset {found[1]} on that were written for "
            "other windows or serdes than this topology reads there, so they would be misread. "
            f"{_way_out(tp.topic)}"
        )


def _way_out(topic: str) -> str:
    return (
        "Run the application as it was, with its inputs quiet for longer than commit_interval_ms, until it has read them; "
        f"or, if they may be lost, stop its workers and delete the topic: penstock topics delete {topic}"
    )


def first_unread(
    open_consumer: Callable[[], LogConsumer], starts: Mapping[TopicPartition, int]
) -> tuple[TopicPartition, int] | None:
    """Some record of data at or behind these positions; ``None`` where there are only watermarks and control records.
    Raises ``RetriableError`` when the log does not answer."""
    consumer = open_consumer()
    try:
        ends: dict[TopicPartition, int] = {}
        begins: dict[TopicPartition, int] = {}
        for tp, start in starts.items():
            first, end = consumer.watermarks(tp)
            if max(start, first) < end:
                begins[tp], ends[tp] = max(start, first), end
        if ends:
            consumer.assign_at(begins)
        unanswered = 0
        while ends:
            if unanswered == POLLS_MAX:
                tp = next(iter(ends))
                raise RetriableError(f"{tp.topic} [{tp.partition}] could not be read; see whether the brokers are up")
            fetched = consumer.poll(_POLL_RECORDS, _POLL_S)
            unanswered = 0 if fetched.chunks else unanswered + 1
            for chunk in fetched.chunks:
                headers = chunk.headers or [()] * len(chunk)
                for offset, own in zip(chunk.offsets, headers, strict=True):
                    if mark_of(own) is None:
                        return TopicPartition(chunk.topic, chunk.partition), int(offset)
                if chunk.offsets[-1] + 1 >= ends.get(TopicPartition(chunk.topic, chunk.partition), 0):
                    ends.pop(TopicPartition(chunk.topic, chunk.partition), None)
            for tp, end in fetched.ends.items():
                if end >= ends.get(tp, 0):
                    ends.pop(tp, None)
    finally:
        consumer.close()
    return None
