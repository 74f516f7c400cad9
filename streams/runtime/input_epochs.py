"""Whether the inputs of a task are still those that it has read, by the epochs of their leaders.

Where the brokers allow an unclean election, a partition can lose its last records, and others take their offsets. A task
that has read the lost ones would never read these: its position is behind them. So each commit notes how far its inputs were
read and the epoch of the leader that the last of these records was written to. The epoch comes with the records; nobody is
asked. Once records of a later epoch come, the log is asked whether it still holds what was noted, before the commit sends
anything. If it does not, the commit is refused with ``IncompatibleError``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from penstock.state.errors import IncompatibleError
from penstock.state.log import TopicPartition
from penstock.streams.ports.log import LogConsumer
from penstock.streams.task.commit_metadata import ReadUpTo, decode
from penstock.streams.task.commit_work import CommitWork
from penstock.streams.task.task import Task


class InputEpochs:
    """See the module. ``open_reader``: a consumer that only reads."""

    def __init__(self, open_reader: Callable[[], LogConsumer]) -> None:
        self._open_reader = open_reader

    def compare(self, works: Iterable[tuple[Task, CommitWork]]) -> None:
        """In a commit, before it sends anything. Raises ``IncompatibleError`` for an input that has lost what was read up to
        the last commit. What of the works was not read since then is as the last commit noted it."""
        for task, work in works:
            for topic, position in work.positions.items():
                last = task.own_positions.known[topic]
                noted, read = decode(last.metadata).read_up_to, work.read_up_to.get(topic)
                if noted is None:
                    continue
                if read is not None and read.epoch > noted.epoch:
                    self._require(TopicPartition(topic, task.id.partition), noted)
                elif read is None and position == last.offset:
                    work.read_up_to[topic] = noted

    def _require(self, tp: TopicPartition, noted: ReadUpTo) -> None:
        reader = self._open_reader()
        try:
            if reader.watermarks(tp)[0] <= noted.offset and not reader.holds(tp, noted.offset, noted.epoch):
                raise IncompatibleError(
                    f"{tp.topic} [{tp.partition}] no longer holds the records before offset {noted.offset} that were read "
                    f"while its leader had epoch {noted.epoch}: a broker without them became the leader (an unclean "
                    "election), and others, which nobody has processed, may stand there now. Stop the application and reset "
                    "the group's positions; to build the stores from the topic as it is now, reset them to the beginning, "
                    "and delete its changelog topics and state folder"
                )
        finally:
            reader.close()
