"""Records that cannot be processed: the error that stops the task, skipping, and dead letters."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from penstock.state.errors import ProcessingError, SettingsError, StateCorruptedError
from penstock.state.log import Headers, Record
from penstock.streams.task.error_policies import ErrorPolicy, Policies
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.operator_api.batch import Batch
from penstock.topologies.operators.processors.processor import Processor


def options(policy: ErrorPolicy, **more: Any) -> TaskOptions:
    return TaskOptions(
        policies=Policies(deserialization=policy, processing=policy, dead_letter_topic="letters", **more)
    )


def inverse(value: int) -> int:
    return 100 // value


def inverting() -> StreamsBuilder:
    builder = StreamsBuilder(key=str, value=int)
    builder.stream("in").map_values(inverse, name="invert").to("out")
    return builder


def record(n: int, ts: int = 0, headers: Headers = ()) -> Record:
    return Record(b"k", n.to_bytes(8, "big"), ts, headers)


def test_fail_names_topic_partition_offset_operator_and_cause() -> None:
    driver = TopologyTestDriver(inverting(), partitions=2)
    with pytest.raises(ProcessingError) as caught:
        driver.pipe_raw({"in": [record(5), record(4), record(0), record(2)]}, partition=1)
    for part in ("topic in", "partition 1", "offset 2", "operator invert", "ZeroDivisionError"):
        assert part in str(caught.value)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert driver.tasks[next(t for t in driver.tasks if t.partition == 1)].uncommitted_records == 0


def test_fail_names_the_offset_of_bytes_that_cannot_be_decoded() -> None:
    driver = TopologyTestDriver(inverting())
    with pytest.raises(
        ProcessingError, match=r"offset 1, operator in: SerdeError: serde int cannot read the value b'x'"
    ):
        driver.pipe_raw({"in": [record(5), Record(b"k", b"x")]})


@pytest.mark.parametrize("batch", [1, 2, 10_000])
def test_skip_counts_and_goes_on(batch: int) -> None:
    given = TaskOptions(policies=options("skip").policies, batch_max_records=batch)
    with TopologyTestDriver(inverting(), options=given) as driver:
        driver.pipe_raw({"in": [record(0), record(5), Record(b"\xff", b"x"), record(0), record(2)]})
        assert [r.value for r in driver.read("out")] == [20, 50]
        (task,) = driver.tasks.values()
        assert task.failures.counts == {"processing_skip": 2, "deserialization_skip": 1}
        assert driver.read_raw("letters") == []


@pytest.mark.parametrize("batch", [1, 2, 10_000])
def test_dead_letters_carry_the_original_bytes_in_input_order(batch: int) -> None:
    given = TaskOptions(policies=options("dead_letter").policies, batch_max_records=batch)
    with TopologyTestDriver(inverting(), options=given) as driver:
        bad = Record(None, b"x", 7, (("mine", b"1"), ("null", None)))
        driver.pipe_raw({"in": [record(0, 5), record(5, 6), bad, record(0, 3, (("h", b"2"),))]})
        letters = driver.read_raw("letters")
        assert [r[:3] for r in letters] == [record(0, 5)[:3], bad[:3], record(0, 3)[:3]]
        headers = [dict(r.headers) for r in letters]
        assert [h["penstock.offset"] for h in headers] == [b"0", b"2", b"3"]
        assert [h["penstock.operator"] for h in headers] == [b"invert", b"in", b"invert"]
        assert letters[1].headers[:2] == bad.headers
        assert headers[0]["penstock.topic"] == b"in"
        assert headers[0]["penstock.partition"] == b"0"
        with pytest.raises(ZeroDivisionError) as caught:  # its words differ between releases of Python
            inverse(0)
        assert headers[0]["penstock.error"] == f"ZeroDivisionError: {caught.value}".encode()
        assert [r.value for r in driver.read("out")] == [20]


def test_what_a_record_wrote_before_it_failed_does_not_leave() -> None:
    class Half(Processor):
        def process(self, record: Record, ctx: Any) -> None:
            ctx.forward(record.key, record.value)
            inverse(record.value)

    builder = StreamsBuilder(key=str, value=int)
    builder.stream("in").process(Half).to("out")
    with TopologyTestDriver(builder, options=options("skip")) as driver:
        driver.pipe_raw({"in": [record(1), record(0), record(3)]})
        assert [r.value for r in driver.read("out")] == [1, 3]


def test_faults_that_are_not_the_records_are_never_skipped() -> None:
    def broken(value: int) -> int:
        raise StateCorruptedError("the disk lost a block; restore")

    builder = StreamsBuilder(key=str, value=int)
    builder.stream("in").map_values(broken).to("out")
    with pytest.raises(StateCorruptedError, match="lost a block"):
        TopologyTestDriver(builder, options=options("skip")).pipe("in", "k", 1)


@pytest.mark.parametrize("policy", get_args(ErrorPolicy))
def test_a_batch_processor_that_raises_stops_the_task_under_every_policy(policy: ErrorPolicy) -> None:
    class Raises(Processor):
        def process_batch(self, batch: Batch, ctx: Any) -> None:
            raise ValueError("half done")

    builder = StreamsBuilder(key=str, value=int)
    builder.stream("in").process(Raises, name="raises").to("out")
    with pytest.raises(ProcessingError, match="offset 0, operator raises: ValueError: half done"):
        TopologyTestDriver(builder, options=options(policy)).pipe("in", "k", 1)


def test_a_timer_that_raises_names_the_record_that_made_it_due() -> None:
    class Ticks(Processor):
        timers = ("stream_time",)

        def init(self, ctx: Any) -> None:
            ctx.schedule(10, self.tick)

        def tick(self, now_ms: int) -> None:
            raise ValueError("tick")

        def process(self, record: Record, ctx: Any) -> None:
            pass

    builder = StreamsBuilder(key=str, value=int)
    builder.stream("in").process(Ticks, name="ticks").to("out")
    driver = TopologyTestDriver(builder, options=options("skip"))
    with pytest.raises(ProcessingError, match="offset 1, operator ticks: ValueError: tick"):
        driver.pipe_raw({"in": [record(1, 5), record(1, 15), record(1, 16)]})


def test_skip_holds_for_what_a_commit_emits() -> None:
    builder = StreamsBuilder(key=str, value=int, emission="per_commit")
    counts = builder.stream("in").group_by_key().count(name="counts")
    counts.to_stream().map_values(lambda n: inverse(n - 2), name="after").to("out")
    with TopologyTestDriver(builder, options=options("skip"), auto_commit=False) as driver:
        driver.pipe_raw({"in": [record(1), Record(b"two", record(1).value), record(1), Record(b"3", record(1).value)]})
        driver.commit()
        assert [(r.key, r.value) for r in driver.read("out")] == [("two", -100), ("3", -100)]
    with (
        pytest.raises(ProcessingError, match="the commit emitted, operator after: ZeroDivisionError"),
        TopologyTestDriver(builder, auto_commit=False) as driver,
    ):
        driver.pipe_raw({"in": [record(1), record(1)]})


def test_a_dead_letter_of_what_a_commit_emitted_has_no_original() -> None:
    builder = StreamsBuilder(key=str, value=int, emission="per_commit")
    builder.stream("in").group_by_key().count().to_stream().map_values(lambda n: inverse(n - 1), name="after").to("out")
    with TopologyTestDriver(builder, options=options("dead_letter")) as driver:
        driver.pipe("in", "k", 1, 50)
        (letter,) = driver.read_raw("letters")
        assert letter[:3] == (None, None, 50)
        named = ["penstock.error", "penstock.operator", "penstock.declared", "penstock.traceback"]
        assert [name for name, _ in letter.headers] == named


@pytest.mark.parametrize("batch", [1, 10_000])
def test_refused_timestamps_meet_the_policy_at_their_place(batch: int) -> None:
    given = TaskOptions(
        policies=Policies(timestamp="dead_letter", dead_letter_topic="letters"), batch_max_records=batch
    )
    builder = StreamsBuilder(key=str, value=int)
    builder.stream("in").to("out")
    with TopologyTestDriver(builder, options=given) as driver:
        driver.pipe_raw({"in": [record(1, 5), record(2, -1), record(3, 6), record(4, 7_200_000)]})
        assert [r.value for r in driver.read("out")] == [1, 3]
        assert [dict(r.headers)["penstock.offset"] for r in driver.read_raw("letters")] == [b"1", b"3"]
    with pytest.raises(ProcessingError, match="offset 1, operator in: timestamp -1 ms is negative"):
        TopologyTestDriver(builder).pipe_raw({"in": [record(1, 5), record(2, -1)]})


def test_a_key_that_the_store_cannot_write_meets_the_policy() -> None:
    builder = StreamsBuilder(key=str, value=int)

    def rekeyed(batch: Batch) -> Batch:
        return batch.replace(keys=[7 if v == 1 else k for k, v in zip(batch.keys, batch.values, strict=True)])

    builder.stream("in").map_batch(rekeyed, keeps_key=True).group_by_key().count(name="counts").to("out")
    with TopologyTestDriver(builder, options=options("skip")) as driver:
        driver.pipe_raw({"in": [record(1), record(2), record(1), record(3)]})
        assert [(r.key, r.value) for r in driver.read("out")] == [("k", 1), ("k", 2)]
    with pytest.raises(ProcessingError, match=r"offset 1, operator counts: .*cannot write the key 7"):
        TopologyTestDriver(builder).pipe_raw({"in": [record(2), record(1)]})


def test_policies_are_checked() -> None:
    wrongs: tuple[dict[str, Any], ...] = (
        {"processing": "ignore"},
        {"deserialization": "clamp"},
        {"timestamp": "dead_letter"},
        {"future_timestamp_max_ms": -1},
        {"max_record_bytes": 0},
    )
    for wrong in wrongs:
        with pytest.raises(SettingsError):
            Policies(**wrong)
