"""Sessions and sliding windows: what the DSL makes of them, and records that fail."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.state.errors import TopologyError
from penstock.state.log import Record, Windowed
from penstock.state.serdes.serde import Serde
from penstock.streams.task.error_policies import Policies
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.aggregators.numeric import count, mean
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.dsl.kgrouped_stream import KGroupedStream
from penstock.topologies.windows import Windows, session, sliding


def grouped(windows: Windows, **options: Any) -> tuple[StreamsBuilder, KGroupedStream]:
    """A stream of strings in windows."""
    builder = StreamsBuilder("t", key=str, value=str)
    return builder, builder.stream("in").group_by_key().windowed_by(windows, **options)


def rows(driver: TopologyTestDriver) -> list[tuple[str, int, int, Any]]:
    """What was written: key, window, value."""
    return [(*r.key, r.value) for r in driver.read("out")]


def test_sessions_need_a_merger() -> None:
    _, windowed = grouped(session(5, grace=0))
    with pytest.raises(TopologyError, match=r"in-aggregate.*merger"):
        windowed.aggregate(list, lambda k, v, a: [*a, v], value=list)


def test_gaps_of_records_own_need_a_retention_and_keep_to_it() -> None:
    _, windowed = grouped(session(lambda k, v: len(v), grace=0))
    with pytest.raises(TopologyError, match="retention="):
        windowed.count()
    builder, windowed = grouped(session(lambda k, v: int(v), grace=0), retention=10)
    windowed.count(name="n").to("out")
    with pytest.raises(Exception, match=r"operator n: ValueError: the gap function gave 11 ms, .* 10 ms"):
        TopologyTestDriver(builder).pipe("in", "a", "11", 5)


def test_sessions_that_hold_nothing_are_refused() -> None:
    _, windowed = grouped(session(0, grace=0, bounds="gap"))
    with pytest.raises(TopologyError, match="hold nothing"):
        windowed.count()


def test_describe_names_windows_and_what_closes_them() -> None:
    builder, windowed = grouped(session(5, grace=3))
    windowed.count(name="n").to("out")
    assert "(SessionAggregate) store=n emission=every_update window=session(gap=5 ms, grace=3 ms" in (
        builder.build().describe()
    )
    builder, windowed = grouped(sliding(5, grace=3))
    windowed.count(name="n", emission="on_close").to("out")
    text = builder.build().describe()
    assert "(SlidingAggregate) store=n emission=on_close window=sliding(difference=5 ms, grace=3 ms)" in text
    assert "n-closing (key_value)" in text


@pytest.mark.parametrize("size", [1, 100])
def test_several_ready_aggregates_over_sessions(size: int) -> None:
    builder, windowed = grouped(session(5, grace=0))
    windowed.agg(n=count(), length=mean(len)).to("out")
    driver = TopologyTestDriver(builder, options=TaskOptions(batch_max_records=size))
    driver.pipe_all("in", [Record("a", "xx", 0), Record("a", "xxxx", 8), Record("a", "xxx", 4)])
    assert rows(driver) == [
        ("a", 0, 0, {"n": 1, "length": 2.0}),
        ("a", 8, 8, {"n": 1, "length": 4.0}),
        ("a", 0, 0, None),
        ("a", 8, 8, None),
        ("a", 0, 8, {"n": 3, "length": 3.0}),
    ]


def test_cogrouped_streams_share_their_sessions() -> None:
    builder = StreamsBuilder("t", key=str, value=str)
    searches, clicks = (builder.stream(t).group_by_key() for t in ("searches", "clicks"))
    both = searches.cogroup(lambda k, v, a: [*a, f"search {v}"]).cogroup(clicks, lambda k, v, a: [*a, f"click {v}"])
    both.windowed_by(session(5, grace=0)).aggregate(list, value=list, merger=lambda k, a, b: a + b).to("out")
    driver = TopologyTestDriver(builder)
    driver.pipe("searches", "a", "x", 0)
    driver.pipe("clicks", "a", "y", 9)
    driver.pipe("searches", "a", "z", 4)
    assert rows(driver)[-1] == ("a", 0, 9, ["search x", "click y", "search z"])


def refuses(limit: int) -> Serde[list[str]]:
    """A serde that cannot write long lists."""

    def write(value: list[str]) -> bytes:
        if len(value) > limit:
            raise ValueError("too long")
        return ",".join(value).encode()

    return Serde("short", write, lambda data: data.decode().split(","))


@pytest.mark.parametrize("windows", [session(5, grace=50), sliding(5, grace=50)])
def test_a_record_that_fails_changes_nothing(windows: Windows) -> None:
    """In its function, or when the second of its windows cannot be written; time does not go on either."""
    builder, windowed = grouped(windows)

    def added(key: str, value: str, aggregate: list[str]) -> list[str]:
        if value == "bad":
            raise RuntimeError(value)
        return [*aggregate, value]

    windowed.aggregate(list, added, merger=lambda k, a, b: a + b, value=refuses(3), name="w").to("out")
    options = TaskOptions(policies=Policies(processing="skip"))
    failing, clean = TopologyTestDriver(builder, options=options), TopologyTestDriver(builder, options=options)
    good = [("p", 10), ("q", 12), ("r", 14), ("s", 40)]
    for value, ts in good:
        clean.pipe("in", "a", value, ts)
        failing.pipe("in", "a", value, ts)
        failing.pipe("in", "a", "bad", ts + 1)
        if value == "r":
            failing.pipe("in", "a", "fourth", 13)  # three are there
            failing.pipe("in", "a", "bad", 1000)
    assert rows(failing) == rows(clean)
    assert list(failing.store("w").all()) == list(clean.store("w").all())


def test_early_records_share_the_first_window() -> None:
    """There are no windows before 1970: [0, difference] is the left window of all records up to its end."""
    builder, windowed = grouped(sliding(10, grace=100))
    windowed.reduce(lambda a, b: a + b).to("out")
    driver = TopologyTestDriver(builder)
    driver.pipe_all("in", [Record("a", v, t) for v, t in (("p", 3), ("q", 0), ("r", 7), ("s", 12))])
    last = {(start, end): v for _, start, end, v in rows(driver)}
    assert last == {(0, 10): "pqr", (1, 11): "pr", (2, 12): "prs", (4, 14): "rs", (8, 18): "s"}


def test_a_session_is_found_again_by_readers() -> None:
    builder, windowed = grouped(session(5, grace=0))
    windowed.count(name="n").to("out")
    driver = TopologyTestDriver(builder)
    driver.pipe_all("in", [Record("a", "x", 3), Record("a", "x", 5), Record("b", "x", 4)])
    store = driver.store("n")
    assert list(store.fetch("a")) == [(Windowed("a", 3, 5), 2)]
    assert store.get(Windowed("b", 4, 4)) == 1
