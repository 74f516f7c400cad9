"""Questions to the world outside: answers in order, journaled, and given again on replay without asking."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from typing import Any

import pytest

import penstock as ps
from penstock.state.errors import IncompatibleError, ProcessingError, TopologyError
from penstock.state.log import TaskId
from penstock.state.serdes.serde import JSON
from penstock.state.stores.memory_backend import MemoryBackend
from penstock.streams.ports.chunk import Chunk
from penstock.streams.task import journal
from penstock.streams.task.commit_metadata import CommitMetadata
from penstock.streams.task.external_calls import ExternalCalls, InlineCallExecutor
from penstock.streams.task.task import Task
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.worker.pooled_calls import PooledCallExecutor
from penstock.topologies.operator_api.operator import CallResult, ExternalCall


def topology(fn: Any) -> ps.Topology:
    """Asks about every record."""
    builder = ps.StreamsBuilder("asks", value=str)
    builder.stream("in").lookup(fn, lambda value, answer: [value, answer], answer=dict, value=list, name="ask").to(
        "out"
    )
    return builder.build()


def test_a_replay_gives_the_journaled_answers() -> None:
    """The world has changed meanwhile; the result has not."""
    asked: list[str] = []

    def first(key: str, value: str) -> Any:
        asked.append(value)
        return None if value == "c" else {"n": len(asked)}

    with ps.TopologyTestDriver(topology(first), options=TaskOptions(batch_max_records=2)) as driver:
        driver.pipe_all("in", [ps.Record("k", v, i) for i, v in enumerate("abcde")])
        out = [r.value for r in driver.read("out")]
        entries = [e for r in driver.changelogs["test-0-journal"] for e in journal.decode(r.value)]
    assert out == [["a", {"n": 1}], ["b", {"n": 2}], ["c", None], ["d", {"n": 4}], ["e", {"n": 5}]]

    def never(key: str, value: str) -> Any:
        raise AssertionError("asked on replay")

    def replayed(size: int, given: list[Any]) -> list[Any]:
        made = topology(never)
        sub = made.subtopologies[0]
        task = Task(
            TaskId(0, 0),
            "test",
            made,
            sub,
            MemoryBackend(sub.stores),
            {"in": (0, CommitMetadata())},
            TaskOptions(batch_max_records=size),
            {},
            answers=journal.answers_of(given),
        )
        task.add(Chunk("in", 0, list(range(5)), [b"k"] * 5, [v.encode() for v in "abcde"], list(range(5))), 5)
        task.feed.set_end("in", 5)
        while task.process():
            pass
        return [JSON.deserialize(v) for o in task.take_outputs() for v in o.values if v is not None]

    for size in (1, 3, 100):
        assert replayed(size, entries) == out
    with pytest.raises(IncompatibleError, match="no further answer for operator 'ask'"):
        replayed(100, entries[:1])


def test_a_failed_question_is_the_rows_error() -> None:
    """Under the policy; what follows is asked still."""

    def fails(key: str, value: str) -> Any:
        raise ConnectionError("nobody there")

    driver = ps.TopologyTestDriver(topology(fails))
    with pytest.raises(ProcessingError, match=r"operator ask: .*the call failed: ConnectionError: nobody there"):
        driver.pipe("in", "k", "v", 1)
    driver.release()


def test_a_replay_names_the_lines_that_raised_as_the_live_run_did() -> None:
    """Also journals that have none, as those before."""

    def fails(key: str, value: str) -> Any:
        raise ConnectionError("nobody there")

    noted: list[journal.Answers] = []
    call, rows = ExternalCall(fn=fails, serde=JSON), [("k", "v")]
    live = ExternalCalls(InlineCallExecutor(), dict, noted.append, None).ask("ask", call, rows)
    assert live[0].lines[-1].startswith(f"{__file__}:") and live[0].lines[-1].endswith("fails")
    before = journal.Answers({}, "ask", [b"\x02ConnectionError: nobody there"])
    replay = ExternalCalls(InlineCallExecutor(), dict, noted.append, [*noted, before])
    assert replay.ask("ask", call, rows) == live
    assert replay.ask("ask", call, rows) == [CallResult(None, "ConnectionError: nobody there")]


def test_many_answers_go_into_several_records() -> None:
    """None above the limit, all there, in order."""
    entries: list[journal.JournalEntry] = [
        journal.Cut({"in": 1}),
        journal.Answers({"in": 9}, "ask", [bytes([i]) * 50 for i in range(40)]),
    ]
    values = journal.encode_all(entries, 400)
    assert all(len(v) <= 400 for v in values)
    read = [e for v in values for e in journal.decode(v)]
    assert read[0] == entries[0]
    assert [v for e in journal.answers_of(read) for v in e.values] == entries[1].values  # type: ignore[union-attr]  # the answers


def question(fn: Any, **options: Any) -> ExternalCall:
    """A question answered in JSON."""
    return ExternalCall(fn=fn, serde=JSON, **options)


def test_coroutines_are_asked_at_a_time_and_answer_in_order() -> None:
    """No more than the limit at once; failures and time-outs are answers."""
    running: list[int] = []
    most: list[int] = []

    async def ask(n: int) -> int:
        running.append(n)
        most.append(len(running))
        await asyncio.sleep(0.02 if n % 2 else 0.001)
        running.remove(n)
        if n == 3:
            raise ValueError("three")
        if n == 4:
            await asyncio.sleep(300)
        return n * 10

    call_executor = PooledCallExecutor()
    try:
        answers = call_executor.ask(question(ask, concurrency=4, timeout_s=4), [(n,) for n in range(12)])
    finally:
        call_executor.close()
    assert [a.value for a in answers] == [0, 10, 20, None, None, *(n * 10 for n in range(5, 12))]
    assert answers[3].error == "ValueError: three"
    assert answers[4].error == "no answer within 4 s"
    assert 2 <= max(most) <= 4


def test_functions_are_asked_in_threads() -> None:
    """At the same time."""
    let_go = threading.Event()
    barrier = threading.Barrier(3, timeout=120)

    def ask(n: int) -> int:
        barrier.wait()
        return n

    call_executor = PooledCallExecutor()
    try:
        assert call_executor.ask(question(ask, concurrency=3), [(1,), (2,), (3,)]) == [
            CallResult(1),
            CallResult(2),
            CallResult(3),
        ]

        def slow(n: int) -> int:
            let_go.wait(300)
            return n

        assert (
            call_executor.ask(question(slow, concurrency=1, timeout_s=0.05), [(1,)])[0].error
            == "no answer within 0.05 s"
        )
    finally:
        let_go.set()
        call_executor.close()


def test_a_call_that_hangs_keeps_no_process_from_ending() -> None:
    text = """
import threading
from penstock.state.serdes.serde import JSON
from penstock.streams.worker.pooled_calls import PooledCallExecutor
from penstock.topologies.operator_api.operator import ExternalCall
call_executor = PooledCallExecutor()
hangs = threading.Event()
print(call_executor.ask(ExternalCall(fn=lambda n: hangs.wait(), serde=JSON, concurrency=2, timeout_s=0.1), [(1,)])[0].error)
call_executor.close()
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "no answer within 0.1 s\n"), done.stderr


class Draws(ps.Processor):
    """Draws for every record, two for some."""

    def process(self, record: ps.Record, ctx: ps.ProcessorContext) -> None:
        drawn: list[Any] = [ctx.draws.random(), ctx.draws.id()]
        if record.value == "b":
            drawn.append(ctx.draws.integer(10))
        ctx.forward(record.key, drawn)


def drawn(size: int, restart: bool) -> list[Any]:
    """What is drawn, at a batch size."""
    builder = ps.StreamsBuilder("draws", value=str)
    twice = builder.stream("in").flat_map_values(lambda v: [v, v])
    twice.process(Draws, value=list).to("out")
    with ps.TopologyTestDriver(builder.build(), options=TaskOptions(batch_max_records=size)) as driver:
        driver.pipe_all("in", [ps.Record("k", v, i) for i, v in enumerate("ab")])
        if restart:
            driver.restart()
        driver.pipe_all("in", [ps.Record("k", v, i) for i, v in enumerate("cd", 2)])
        return [r.value for r in driver.read("out")]


def test_draws_are_those_of_the_record() -> None:
    """Whatever the batches and restarts; different for different records and for their children."""
    expected = drawn(1, False)
    assert drawn(100, False) == expected
    assert drawn(3, True) == expected
    ids = [row[1] for row in expected]
    assert len(set(ids)) == 8
    assert all(0 <= row[0] < 1 for row in expected)


class Clock(ps.Processor):
    """Says what time it is."""

    reads_clock = True

    def process(self, record: ps.Record, ctx: ps.ProcessorContext) -> None:
        ctx.forward(record.key, ctx.wall_time_ms)


def test_processing_time_is_the_journaled_reading() -> None:
    """And only for who says that it is used."""
    builder = ps.StreamsBuilder("clock", value=str)
    builder.stream("in").process(Clock, value=int).to("out")
    with ps.TopologyTestDriver(builder.build()) as driver:
        driver.advance_wall_time(1_000)
        driver.pipe("in", "k", "v", 1)
        driver.advance_wall_time(500)
        driver.pipe("in", "k", "v", 2)
        assert [r.value for r in driver.read("out")] == [1_000, 1_500]


def test_questions_about_what_leaves_per_commit_are_refused() -> None:
    """A replay commits at other times, and would give the answers to other records; through a topic it would not."""

    def built(repartitioned: bool) -> ps.Topology:
        builder = ps.StreamsBuilder("asks", key=str, value=str)
        counts = builder.stream("in").group_by_key().count(emission="per_commit", name="counts").to_stream()
        counts = counts.repartition() if repartitioned else counts.filter(lambda k, v: True)
        counts.lookup(lambda k, v: {"n": v}, answer=dict, name="ask").to("out")
        return builder.build()

    with pytest.raises(TopologyError, match="'ask' makes external calls on what 'counts' emits per commit"):
        built(False)
    with ps.TopologyTestDriver(built(True)) as driver:
        driver.pipe("in", "k", "v")
        assert [r.value for r in driver.read("out")] == [{"n": 1}]


def test_a_call_that_hangs_fails_no_other() -> None:
    """Its thread is left behind; those that would have had it get new ones."""
    let_go = threading.Event()

    def hangs(key: str, value: str) -> Any:
        if value == "hangs":
            let_go.wait(300)
        return value

    question = ExternalCall(fn=hangs, serde=JSON, concurrency=1, timeout_s=3)
    call_executor = PooledCallExecutor()
    try:
        rows = [("k", v) for v in ("a", "hangs", "b", "hangs", "c")]
        late = CallResult(None, "no answer within 3 s")
        assert call_executor.ask(question, rows) == [CallResult("a"), late, CallResult("b"), late, CallResult("c")]
        assert call_executor.ask(question, rows[:1]) == [CallResult("a")]
    finally:
        let_go.set()
        call_executor.close()
