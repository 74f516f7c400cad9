"""Stream: an application runs as a query of Spark Structured Streaming, where Spark is the only cluster that there is.

Spark gives the triggers, the query and the executors. At a trigger its source says how far the inputs go, and that is a
micro-batch: level by level of sub-topologies, each partition with something to read is a piece, which an executor works off
with the very loop of a worker. Repartition topics are written and read within the micro-batch, so its answer is whole.

**Why it is exactly-once.** What is done is what Kafka has committed; nothing else is asked. Each commit of a piece is
one Kafka transaction of outputs, changelogs, journal and input positions, under the transactional id of the
partition; a piece opens that id first and reads the committed positions then. So of any two attempts on one
partition, whatever started the second one (a retry, speculation, a new driver, a worker), the later one goes on
exactly where the other's commits end, and the brokers refuse the earlier one from then on, also if it wakes up after
hours. Stores are written after the commit, with the position that they reflect: a store on an executor is never
ahead, and what it lacks is in its changelog.

**Why not Spark's checkpoint.** It cannot be committed together with the outputs, so a second account of the positions
would contradict the first after a crash, and it means nothing to workers. Spark asks for a checkpoint folder; it gets
one that is new at each start, and removed. A driver that was killed is started again: its first micro-batch finds out
where the application stands. A driver that was frozen asks before each level whether it still keeps others away, and
ends if not.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.state.errors import EnvironmentFault, RetriableError
from penstock.state.log import TopicPartition
from penstock.streams.batch.cluster import open_cluster
from penstock.streams.batch.handover.bootstrap_plan import outputs_of
from penstock.streams.batch.handover.worker_exclusion import kept_away
from penstock.streams.batch.places import absolute
from penstock.streams.batch.shipping import TopologyRef
from penstock.streams.runtime.topic_setup import TopicLayout
from penstock.streams.spark.failures import translate, translated
from penstock.streams.spark.frames.application import Application
from penstock.streams.spark.handover.catch_up import save
from penstock.streams.spark.handover.job import Handover, tasks_of
from penstock.streams.spark.progress import Say
from penstock.streams.spark.report.record import note_pieces, phase
from penstock.streams.spark.session import SparkSettings, spark_session
from penstock.streams.spark.streaming.anchors import Anchors
from penstock.streams.spark.streaming.batch_runner import BatchRunner, Done
from penstock.streams.spark.streaming.inputs_source import InputsRequest, read_inputs, stops_of
from penstock.streams.spark.streaming.output_hook import ForeachBatch, OutputHook
from penstock.streams.worker.settings import WorkerSettings
from penstock.topologies.windows.durations import Duration, duration_ms

EVERY = "10s"
ATTEMPTS, FIRST_PAUSE_S = 5, 1.0
"""How often a micro-batch is begun before a passing failure ends the query; the pause in between doubles."""
LOOK_S = 0.5
LINE_MAX = 400


@dataclasses.dataclass(frozen=True)
class Streamed:
    """``micro_batches``: those that had something to do. ``records``: input records that they processed. ``savepoint``: its
    name; ``no_savepoint``: why there is none."""

    micro_batches: int
    records: int
    savepoint: str | None
    no_savepoint: str | None
    seconds: float


def stream(
    topology: TopologyRef,
    settings: WorkerSettings,
    *,
    available_now: bool = False,
    every: Duration = EVERY,
    foreach_batch: ForeachBatch | None = None,
    repository: str | None = None,
    stop: threading.Event | None = None,
    progress: Say | None = None,
    session: SparkSettings | None = None,
) -> Streamed:
    """Run the application in Spark's executors, exactly-once, until ``stop`` is set; with ``available_now`` up to the
    inputs' ends now. ``settings``: of its workers, none of which may run; executors keep stores in its ``state_dir``.
    ``every``: from trigger to trigger. ``foreach_batch``: called in this process after each micro-batch that wrote outputs.
    ``repository``: stores are restored from snapshots there, and in the end it gets a savepoint, from which workers go on.

    Raises ``SettingsError`` while workers hold the tasks, or for another guarantee than exactly_once; what ends a worker;
    ``EnvironmentFault`` when Spark fails again and again; what ``foreach_batch`` raises. Whatever ended it, it is started
    again, or workers are: they go on from what is committed.
    """
    began_s = time.monotonic()
    # Executors and workers of this machine have the same folder then.
    settings = dataclasses.replace(settings, state_dir=absolute(settings.state_dir) or settings.state_dir)
    handover = Handover(topology, settings, repository=repository or settings.snapshots)
    trigger_ms = duration_ms(every)
    layout = handover.prepare()
    with spark_session(session) as spark:
        what = tasks_of(handover.application_id)
        with phase(what), _opened(spark, handover, layout, foreach_batch, progress) as running:
            running.run(None if available_now else trigger_ms, stop or threading.Event())
        savepoint, why_not = save(handover)
    return Streamed(running.count, running.records, savepoint, why_not, time.monotonic() - began_s)


@contextmanager
def _opened(
    spark: SparkSession, handover: Handover, layout: TopicLayout, function: ForeachBatch | None, say: Say | None
) -> Iterator[_Running]:
    with ExitStack() as opened:
        hold = opened.enter_context(kept_away(handover.settings, handover.inputs(layout)))
        cluster = opened.enter_context(open_cluster(handover.connection, handover.application_id))
        hook = None
        if function is not None:
            policies = handover.settings.policies
            topics = outputs_of(handover.topology(), handover.application_id, policies.dead_letter_topic)
            application = Application(
                handover.topology_ref, handover.application_id, handover.connection, handover.repository
            )
            hook = opened.enter_context(OutputHook(function, application, cluster.require_counts(topics), cluster))
        anchors = Anchors(spark.sparkContext, max(layout.tasks))
        opened.callback(anchors.close)
        batches = BatchRunner(handover, layout, cluster, anchors, hold, say)
        inputs: dict[str, int] = {}
        for tp in handover.external_inputs(layout):
            inputs[tp.topic] = max(inputs.get(tp.topic, 0), tp.partition + 1)
        request = InputsRequest(handover.connection, handover.application_id, inputs, batches.clocked)
        yield _Running(spark, request, batches, hook, say)


class _Running:
    """The query, while it runs."""

    def __init__(
        self,
        spark: SparkSession,
        request: InputsRequest,
        batches: BatchRunner,
        hook: OutputHook | None,
        say: Say | None,
    ) -> None:
        self.count = 0
        self.records = 0
        self._spark = spark
        self._request = request
        self._batches = batches
        self._hook = hook
        self._say: Say = say or (lambda line: None)
        self._error: BaseException | None = None
        self._working = threading.Lock()
        self._ending = threading.Event()

    def run(self, trigger_ms: int | None, stop: threading.Event) -> None:
        """Run the query; ``trigger_ms`` is ``None``: until it has no more to do. A micro-batch that has begun when ``stop``
        is set is brought to its end."""
        with TemporaryDirectory(prefix="penstock-checkpoint-") as folder:
            query = self._start(trigger_ms, folder)
            try:
                with suppress(PySparkException, Py4JError):  # looked at below
                    while query.isActive and not (stop.is_set() or self._ending.is_set()):
                        query.awaitTermination(LOOK_S)  # type: ignore[arg-type]  # PySpark takes fractions
            finally:
                self._ending.set()
                with self._working:
                    pass  # no other micro-batch begins from here on
                with suppress(PySparkException, Py4JError):
                    query.stop()
                note_pieces(self._batches.worked.values())
            if self._error is not None:
                raise self._error
            with translated("the query", "ended"):
                failed = query.exception()
            if failed is not None:
                raise translate(str(failed), "the query", "ended")

    def _start(self, trigger_ms: int | None, folder: str) -> StreamingQuery:
        writer = (
            read_inputs(self._spark, self._request)
            .writeStream.queryName(self._request.application_id)
            .foreachBatch(self._on_batch)
            .option("checkpointLocation", Path(folder).as_uri())
        )
        if trigger_ms is None:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{trigger_ms} milliseconds").start()

    def _on_batch(self, frame: DataFrame, number: int) -> None:
        """Called by Spark, in a thread of its own."""
        with self._working:
            if self._ending.is_set():
                return
            try:
                done = self._attempted(lambda: self._batches.run(_stops(frame)))
                if done.pieces:
                    self.count += 1
                    self.records += done.records
                    self._say(f"micro-batch {number}: {done.records:,} records in {done.seconds:.1f} s")
                if self._hook is not None:
                    self._hook.call(self._spark, number)
                if done.shutdown:
                    self._ending.set()
            except BaseException as exc:
                self._error = exc
                raise

    def _attempted(self, work: Callable[[], Done]) -> Done:
        """Begin again after a passing failure: what was committed before it is not done twice."""
        for left in reversed(range(ATTEMPTS)):
            try:
                return work()
            except (RetriableError, EnvironmentFault) as exc:
                pause_s = FIRST_PAUSE_S * 2 ** (ATTEMPTS - 1 - left)
                if not left or self._ending.wait(pause_s):
                    raise
                self._say(f"{_first_line(exc)} … It goes on from what is committed")
        raise AssertionError("unreachable")


def _stops(frame: DataFrame) -> dict[TopicPartition, int]:
    with translated("the micro-batch", "did not begin"):
        return stops_of(frame)


def _first_line(exc: BaseException) -> str:
    return str(exc).partition("\n")[0][:LINE_MAX]
