"""What the DSL makes of a function that it is given: how many arguments, pairs, and ``async`` ones."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any

import pytest

import penstock as ps
from penstock.state.errors import TopologyError
from penstock.streams.task.error_policies import Policies
from penstock.streams.task.task_options import TaskOptions


def through(make: Callable[[Any], Any], *, source: str = "stream", options: TaskOptions | None = None) -> list[Any]:
    """What ``make(stream)`` gives for one record."""
    builder = ps.StreamsBuilder("functions", value=str)
    make(getattr(builder, source)("in")).to("out")
    with ps.TopologyTestDriver(builder.build(), options=options) as driver:
        driver.pipe("in", "k", "v", 1)
        return [(r.key, r.value) for r in driver.read("out")]


def with_key(key: str, value: str) -> str:
    return key + value


@pytest.mark.parametrize("source", ["stream", "table"])
def test_map_values_gives_the_key_to_a_function_of_two(source: str) -> None:
    class Upper:
        def __call__(self, value: str, times: int = 2) -> str:
            return value * times

    for fn, expected in ((with_key, "kv"), (lambda k, v: f"{k}={v}", "k=v"), (Upper(), "vv"), (str.upper, "V")):
        assert through(lambda s, fn=fn: s.map_values(fn), source=source) == [("k", expected)]
    assert through(lambda s: s.map_values(functools.partial(with_key, "x")), source=source) == [("k", "xv")]


@pytest.mark.parametrize("result", [{"a": 1, "b": 2}, "ab", {"a", "b"}, ("a",), ["a", "b", "c"], None, 7])
def test_map_refuses_what_is_no_pair(result: Any) -> None:
    skipping = TaskOptions(policies=Policies(processing="skip"))
    assert through(lambda s: s.map(lambda k, v: result), options=skipping) == []
    assert through(lambda s: s.flat_map(lambda k, v: [result]), options=skipping) == []
    assert through(lambda s: s.map(lambda k, v: ["x", "y"])) == [("x", "y")]


async def awaited(*values: Any) -> str:
    await asyncio.sleep(0)
    return "-".join(values)


class Asks:
    """An object with an ``async`` call."""

    async def __call__(self, key: str, value: str) -> str:
        return await awaited(key, value)


@pytest.mark.parametrize("fn", [awaited, functools.partial(awaited, "x"), Asks()])
@pytest.mark.parametrize(
    "use",
    [
        lambda s, fn: s.map(fn),
        lambda s, fn: s.select_key(fn),
        lambda s, fn: s.to_table().map_values(fn),
        lambda s, fn: s.select_key(ps.awaiting(fn)),
        lambda s, fn: s.group_by(fn),
        lambda s, fn: s.group_by_key().reduce(fn),
        lambda s, fn: s.group_by_key().aggregate(str, fn, value=str),
        lambda s, fn: s.join(s.merge(), fn, within=1, grace=0),
        lambda s, fn: s.branch(fn),
        lambda s, fn: s.lookup(lambda k, v: v, fn, answer=str),
    ],
)
def test_an_async_function_that_nothing_awaits_is_refused(fn: Any, use: Callable[[Any, Any], Any]) -> None:
    stream = ps.StreamsBuilder("functions", value=str).stream("in")
    with pytest.raises(TopologyError, match=r"is async, and nothing awaits it here; .*lookup"):
        use(stream, fn)


@pytest.mark.parametrize("fn", [awaited, Asks(), lambda k, v: f"{k}-{v}"])
def test_a_lookup_awaits_its_answer_in_the_test_driver(fn: Any) -> None:
    assert through(lambda s: s.lookup(fn, answer=str)) == [("k", "k-v")]


def test_an_async_question_that_fails_is_the_records_error() -> None:
    async def fails(key: str, value: str) -> str:
        raise ValueError("no such thing")

    skipping = TaskOptions(policies=Policies(processing="skip"))
    assert through(lambda s: s.lookup(fails, answer=str), options=skipping) == []


def test_panes_are_a_stream_already() -> None:
    grouped = ps.StreamsBuilder("panes", value=str).stream("in").group_by_key().windowed_by(ps.tumbling(10, grace=0))
    panes = grouped.triggered(ps.triggers.after_watermark()).aggregate(str, lambda k, v, t: t + v, value=str)
    for stream in (panes, panes.filter(lambda k, v: True)):
        with pytest.raises(AttributeError, match=r"this is a stream already; leave to_stream\(\) out"):
            stream.to_stream()  # type: ignore[attr-defined]  # that it is missing is the test
        assert not hasattr(stream, "to_stream")


def test_async_conditions_and_processors_are_refused() -> None:
    class Waits(ps.Processor):
        async def process(self, record: Any) -> None:  # type: ignore[override]  # that it is async is the test
            self.ctx.forward(record)

    stream = ps.StreamsBuilder("functions", value=str).stream("in")
    with pytest.raises(TopologyError, match="has an async process"):
        stream.process(Waits)
    with pytest.raises(TopologyError, match="its condition is async"):
        ps.pattern("a").where(awaited)


@pytest.mark.parametrize(
    ("declare", "said"),
    [
        (
            lambda s: s.filter(lambda v: True),
            r"'in-filter' calls its function with \(key, value\), which <lambda>\(v\)",
        ),
        (
            lambda s: s.filter_not(lambda: True),
            r"\(key, value\), which <lambda>\(\) does not take; give it 2 arguments",
        ),
        (
            lambda s: s.filter_values(lambda k, v: True),
            r"with \(value\), .*\(k, v\) does not take; give it 1 argument$",
        ),
        (lambda s: s.map_values(lambda: 1), r"with \(value\)"),
        (lambda s: s.map(lambda v: v), r"with \(key, value\)"),
        (lambda s: s.branch(lambda v: True), r"with \(key, value\)"),
        (lambda s: s.map_batch(lambda: 1), r"with \(batch\)"),
        (lambda s: s.group_by(lambda v: v), r"with \(key, value\)"),
        (lambda s: s.group_by_key().reduce(lambda a: a), r"with \(aggregate, value\)"),
        (
            lambda s: s.group_by_key().aggregate(lambda k: 0, lambda k, v, a: a, value=int),
            r"with \(\), .* no arguments$",
        ),
        (lambda s: s.group_by_key().aggregate(int, lambda v, a: a, value=int), r"with \(key, value, aggregate\)"),
        (lambda s: s.join(s.to_table(), lambda v: v), r"with \(left, right\)"),
    ],
)
def test_a_function_that_cannot_take_its_arguments_is_refused_at_its_operator(declare: Any, said: str) -> None:
    with pytest.raises(TopologyError, match=said):
        declare(ps.StreamsBuilder("arity", value=dict).stream("in"))


def test_functions_without_a_signature_and_with_more_optional_arguments_are_taken() -> None:
    stream = ps.StreamsBuilder("arity", value=dict).stream("in")
    stream.map_values(dict).map_values(len).map_values(str.upper).map(lambda *row: row)
    stream.filter(lambda key, value, extra=1: True).group_by_key().aggregate(dict, lambda *row: row[2], value=dict)
    stream.group_by_key().reduce(max)
