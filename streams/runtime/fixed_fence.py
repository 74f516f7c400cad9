"""How the brokers refuse a worker with fixed partitions that is no longer the owner.

Such a worker is in no group that could have generations. So each of its partitions has a transactional id,
``<application.id>-p<partition>``, whose epoch is the generation: the last worker to open it is the owner, and commits
of earlier ones are refused. Under exactly-once that id is the producer's own. Under the other guarantees only the
positions are committed in transactions (``FencedPositions``), which costs a few requests per commit.

A worker of the application's group opens those ids too when it gets partitions that were once run fixed
(``FixedFence``), so that a fixed worker that was frozen or cut off meanwhile is refused. Such partitions have a mark:
a position committed in the group of the fixed workers. The other way round, a group worker is refused by its
generation. A fixed worker looks for members of the group only after it has opened its ids: a worker that joins later
opens them again.

A mark may also say that nobody is to run the application: it goes on under another id (``moving_to``, then ``moved_to``), or
its state is being made (``made_from``, ``UNFINISHED``). A worker reads the marks after it has joined its group, and a job
looks for members after it has set them. So of the two at least one sees the other, and a worker that was frozen meanwhile,
and joins again, is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress

from penstock.state.errors import PenstockError, RetriableError, SettingsError
from penstock.state.log import TopicPartition
from penstock.streams.ports.log import (
    AbortableError,
    LogConsumer,
    LogProducer,
    OffsetAndMetadata,
    ProducerRetiredError,
    UnknownOutcomeError,
)

RUN_FIXED = "run fixed"
FENCED = "fenced"
BOOTSTRAPPED = "bootstrapped"
UNFINISHED = "initial state unfinished"
"""The values of a mark: fixed workers have run the partition; since then the group has fenced them; only jobs that build
its initial state have run it, without its outputs; such a job has perhaps written the state of some partitions, and not of
all."""


Marks = Mapping[TopicPartition, OffsetAndMetadata | None]
"""The marks of partitions, as the group of fixed workers has them committed."""
_MOVING, _MOVED, _MADE = "moving to ", "moved to ", "made from "


def moving_to(application_id: str) -> str:
    """The mark of an application that is to go on under this other id. Workers that joined before may still run."""
    return _MOVING + application_id


def moved_to(application_id: str) -> str:
    """The mark of an application that goes on under this other id: nobody has run it since the mark before."""
    return _MOVED + application_id


def made_from(application_id: str) -> str:
    """The mark of an application whose state is being made from that of another."""
    return _MADE + application_id


def refuse_moved(marks: Marks, known: Collection[str] = ()) -> None:
    """Raises ``SettingsError`` where a mark says that nobody is to run the application. ``known``: the marks that the caller
    sets itself."""
    for mark in marks.values():
        text = "" if mark is None or mark.metadata in known else mark.metadata
        if text.startswith((_MOVING, _MOVED)):
            other = text.removeprefix(_MOVING).removeprefix(_MOVED)
            raise SettingsError(
                f"the application goes on as {other}: penstock rescale has taken its state there, so what it did here would "
                f"be done twice. If that command did not end, repeat it; then start the workers of {other}"
            )
        if text.startswith(_MADE):
            raise SettingsError(
                f"the application's state is being made from that of {text.removeprefix(_MADE)}, and is not whole: wait for "
                "the command penstock rescale, or repeat it"
            )
        if text == UNFINISHED:
            raise SettingsError(
                "the job that writes the application's initial state has not ended, so some tasks have their state and "
                "others none; run it again with the same frames, or give up: penstock reset"
            )


def fixed_id(application_id: str, partition: int) -> str:
    """The transactional id of a fixed partition."""
    return f"{application_id}-p{partition}"


class FencedPositions:
    """Commits positions of one fixed partition, until another worker opens its id."""

    def __init__(self, open_producer: Callable[[], LogProducer], group: str, timeout_s: float) -> None:
        self._open_producer = open_producer
        self._group = group
        self._timeout_s = timeout_s
        self._producer: LogProducer | None = None

    def open(self) -> None:
        """Become the owner; waits for the former owner's commit to end."""
        if self._producer is None:
            producer = self._open_producer()
            try:
                producer.init_transactions(self._timeout_s * 3)
            except BaseException:
                producer.close()
                raise
            self._producer = producer

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Raises ``TaskMigratedError`` when another worker is the owner, ``RetriableError`` when nothing was committed,
        ``ProducerRetiredError`` when that is not known: see who the owner is before this is opened again."""
        if self._producer is None:
            raise ProducerRetiredError("the producer that commits the positions of these fixed partitions was retired")
        try:
            self._producer.begin()
            self._producer.send_offsets(offsets, self._group, self._timeout_s)
        except RetriableError:
            self._abort()
            raise
        except AbortableError as exc:
            self.close()
            raise ProducerRetiredError(f"{exc}; the positions were not committed") from exc
        try:
            self._producer.commit(self._timeout_s)
        except (AbortableError, RetriableError, UnknownOutcomeError) as exc:
            self.close()
            raise ProducerRetiredError(f"{exc}; it is unknown whether the positions were committed") from exc

    def _abort(self) -> None:
        assert self._producer is not None
        try:
            self._producer.abort(self._timeout_s)
        except PenstockError:
            self.close()

    def close(self) -> None:
        """Close the producer; its open transaction ends by its timeout."""
        if self._producer is not None:
            self._producer.close()
        self._producer = None


def mark_fixed(consumer: LogConsumer, partitions: Sequence[TopicPartition], mark: str = RUN_FIXED) -> None:
    """Note that these are run fixed, or ``BOOTSTRAPPED``. ``consumer``: of the group of fixed workers."""
    consumer.commit({tp: OffsetAndMetadata(0, mark) for tp in partitions})


def maybe_run_fixed(marks: Marks) -> set[TopicPartition]:
    """The partitions that a worker with fixed partitions, or a job, may still run: they have a mark, and the group has not
    fenced them since."""
    return {tp for tp, mark in marks.items() if mark is not None and mark.metadata != FENCED}


def numbers_of(partitions: Iterable[TopicPartition]) -> set[int]:
    """Their partition numbers: topics share the ids."""
    return {tp.partition for tp in partitions}


def fence_fixed(partitions: Iterable[int], open_producer: Callable[[int], LogProducer], timeout_s: float) -> None:
    """End the transactions that workers with these fixed partitions have left open, and refuse what they send later.
    ``open_producer`` creates a producer with the id of a fixed partition."""
    for partition in sorted(partitions):
        _opened(open_producer, partition, timeout_s).close()


def _opened(open_producer: Callable[[int], LogProducer], partition: int, timeout_s: float) -> LogProducer:
    producer = open_producer(partition)
    try:
        producer.init_transactions(timeout_s)
    except BaseException:
        producer.close()
        raise
    return producer


class FixedFence:
    """For a worker of the group: refuses commits of workers that ran its partitions fixed, and notes that it has done so.

    A job may set a mark of its own while this worker is frozen between two of these steps; the note must not replace it.
    So this worker opens the ids, then looks for jobs, then reads the marks again, and writes the note in transactions of
    the ids. A job joins the group of fixed workers, then opens the ids that have a mark, then sets its own. If it opened
    them after this worker, the note is refused. If it opened them before, this worker sees the job or its mark.

    ``partitions``: all inputs of the application; ``group``: that of fixed workers, in which ``open_consumer`` creates a
    consumer; ``open_producer``: see ``fence_fixed``; ``look`` raises if the group has members."""

    def __init__(
        self,
        partitions: Sequence[TopicPartition],
        group: str,
        open_consumer: Callable[[], LogConsumer],
        open_producer: Callable[[int], LogProducer],
        look: Callable[[], None],
        timeout_s: float,
    ) -> None:
        self._partitions = partitions
        self._group = group
        self._open_consumer = open_consumer
        self._open_producer = open_producer
        self._look = look
        self._timeout_s = timeout_s
        self._marked: set[TopicPartition] = set()

    def on_joined(self, given: Sequence[TopicPartition], afresh: bool) -> None:
        """These partitions were assigned, and their positions are not read yet. ``afresh``: this worker was not a
        member before. While the group has members no fixed worker starts, so marks are checked only then. Raises
        ``SettingsError`` as ``look`` and ``refuse_moved`` do."""
        if afresh:
            self._look()
            self._marked = self._read_marked()
        mine = numbers_of(given)
        due = {tp for tp in self._marked if tp.partition in mine}
        if not due:
            return
        producers: dict[int, LogProducer] = {}
        try:
            for partition in sorted(numbers_of(due)):
                producers[partition] = _opened(self._open_producer, partition, self._timeout_s)
            self._look()
            still = self._read_marked()
            for partition, producer in producers.items():
                self._note(producer, [tp for tp in sorted(due & still) if tp.partition == partition])
        finally:
            for producer in producers.values():
                producer.close()
        self._marked -= due

    def _note(self, producer: LogProducer, fenced: Sequence[TopicPartition]) -> None:
        """If it is not written, the next one to join fences them again."""
        if not fenced:
            return
        with suppress(PenstockError):
            producer.begin()
            producer.send_offsets({tp: OffsetAndMetadata(0, FENCED) for tp in fenced}, self._group, self._timeout_s)
            producer.commit(self._timeout_s)

    def _read_marked(self) -> set[TopicPartition]:
        consumer = self._open_consumer()
        try:
            marks = consumer.committed(self._partitions)
        finally:
            consumer.close()
        refuse_moved(marks)
        return maybe_run_fixed(marks)
