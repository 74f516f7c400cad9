"""Windows of policies: how they are written, what is refused, and what a few of them give."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.state.errors import TopologyError
from penstock.state.log import Record
from penstock.streams.task.error_policies import Policies
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies import windows as w
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.windows import policies


def results(windows: w.EvictingWindows, values: list[Any], **options: Any) -> list[list[Any]]:
    """What is emitted of values at 0, 1, 2… of one key."""
    builder = StreamsBuilder("t", value=dict)
    grouped = builder.stream("in").group_by_key().windowed_by(windows)
    grouped.aggregate(list, lambda key, value, acc: [*acc, value], value=list).to("out")
    with TopologyTestDriver(builder, **options) as driver:
        driver.pipe_all("in", [Record("k", v, ts) for ts, v in enumerate(values)])
        return [r.value for r in driver.read("out")]


def test_windows_of_counts() -> None:
    assert results(w.count_tumbling(2), [1, 2, 3, 4, 5]) == [[1, 2], [3, 4]]
    assert results(w.count_sliding(2), [1, 2, 3]) == [[1], [1, 2], [2, 3]]
    assert results(w.count_sliding(3, every=2), [1, 2, 3, 4]) == [[1, 2], [2, 3, 4]]


def test_a_new_window_when_a_value_has_moved() -> None:
    prices = [{"p": 10}, {"p": 12}, {"p": 13}, {"p": 9}]
    assert results(w.delta_tumbling("p", 2), prices) == [[{"p": 10}, {"p": 12}], [{"p": 13}]]
    near = w.evicting(policies.delta(lambda v: v["p"], 2), trigger=policies.count(1))
    assert [[v["p"] for v in some] for some in results(near, prices)] == [[10], [10, 12], [12, 13], [9]]


def test_a_record_closes_the_window() -> None:
    assert results(w.punctuated_by(lambda v: v == "."), ["a", ".", "b", "c", "."]) == [["a", "."], ["b", "c", "."]]
    before = w.punctuated_by(lambda v: v == "<", inclusive=False)
    assert results(before, ["<", "a", "<", "b"]) == [["<", "a"]]


def test_time_evicts_and_triggers() -> None:
    assert results(w.evicting(policies.time(3)), [0, 1, 2, 3, 4, 5, 6]) == [[0, 1, 2], [3, 4, 5]]
    assert results(w.evicting(policies.count(2), trigger=policies.time(3)), list(range(7))) == [[1, 2], [4, 5]]


def test_records_that_measure_nothing_follow_the_policy() -> None:
    skipping = TaskOptions(policies=Policies(processing="skip"))
    windows = w.evicting(policies.delta("p", 1), trigger=policies.count(1))
    assert results(windows, [{"p": 1}, {"p": "x"}, {"q": 2}, {"p": 2}], options=skipping) == [
        [{"p": 1}],
        [{"p": 1}, {"p": 2}],
    ]


def test_windows_of_policies_describe_themselves() -> None:
    windows = w.evicting(policies.delta("p", 1), trigger=policies.time("5s"), time="processing")
    assert windows.describe() == "evicting(delta(p, 1), trigger=time(5000 ms), time=processing)"
    assert w.count_tumbling(3).describe() == "evicting(count(3))"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: policies.count(0), "at least 1 record, not 0"),
        (lambda: policies.time(0), "at least 1 ms"),
        (lambda: policies.delta("p", -1), "distance of 0 or more"),
        (lambda: policies.delta(5, 1), "a field's name or a function"),
        (lambda: policies.punctuation("p"), "needs a function"),
        (lambda: w.evicting(10), "10 is not a window policy"),
    ],
)
def test_what_is_no_policy_is_refused(make: Any, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        make()


def test_what_windows_of_policies_cannot_do_is_refused() -> None:
    grouped = StreamsBuilder("t").stream("in").group_by_key()
    with pytest.raises(TopologyError, match="none is late"):
        grouped.windowed_by(w.count_tumbling(3)).count(late=True)
    with pytest.raises(TopologyError, match="cannot be cogrouped"):
        grouped.cogroup(max).windowed_by(w.count_tumbling(3)).aggregate(int, value=int)


def test_results_are_facts_and_no_changes_of_a_table() -> None:
    table = StreamsBuilder("t").stream("in").group_by_key().windowed_by(w.count_tumbling(3)).count(name="n")
    with pytest.raises(TopologyError, match="facts, not the changes of a table"):
        table.request_olds()


def test_keys_that_fall_silent_leave_no_state() -> None:
    builder = StreamsBuilder("t", value=int)
    windows = w.evicting(policies.time(10), trigger=policies.count(1))
    builder.stream("in").group_by_key().windowed_by(windows).count(name="n").to("out")
    with TopologyTestDriver(builder) as driver:
        driver.pipe_all("in", [Record(f"k{i}", 1, i) for i in range(500)])
        for name in ("n", "n-timers"):
            held = [key for task in driver.tasks.values() for key, _ in task.backend.range(name, None, None)]
            assert 10 <= len(held) <= 11
