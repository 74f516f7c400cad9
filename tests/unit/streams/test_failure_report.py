"""What a failed record says: the user's lines, the operator's, the record, and whose fault it is."""

from __future__ import annotations

import inspect
import json
from typing import Any

import msgspec
import pytest

from penstock.state.errors import IncompatibleError, ProcessingError
from penstock.state.log import Record, TaskId, TopicPartition
from penstock.state.stores.store import StoreWrites
from penstock.streams.task.error_policies import ErrorPolicy, Policies
from penstock.streams.task.failure_report import SHOWN_BYTES, Failure, Origin, letter_headers, shortened, stop_message
from penstock.streams.task.task import TaskOptions
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.graph.source_lines import FRAMES_MAX, raised_at


def price_of(order: Any) -> int:
    return order["price"]["amount"]  # type: ignore[no-any-return]  # of JSON


def enriched(order: Any) -> Any:
    return {"price": price_of(order)}


def line_of(function: Any, text: str) -> str:
    """``FILE:LINE`` of the first line of a function that holds a text."""
    lines, first = inspect.getsourcelines(function)
    return f"{__file__}:{first + next(i for i, line in enumerate(lines) if text in line)}"


def orders() -> StreamsBuilder:
    builder = StreamsBuilder(key=str, value="json")
    builder.stream("orders").map_values(enriched, name="enrich").to("out")
    return builder


def options(policy: ErrorPolicy) -> TaskOptions:
    return TaskOptions(policies=Policies(deserialization=policy, processing=policy, dead_letter_topic="letters"))


def test_the_error_points_at_the_users_lines_and_no_others() -> None:
    with pytest.raises(ProcessingError) as caught:
        TopologyTestDriver(orders()).pipe_raw({"orders": [Record(b"o-1", b'{"price":7}')]})
    text = str(caught.value)
    raised = [line.removeprefix("  raised at ") for line in text.splitlines() if line.startswith("  raised at ")]
    own = [line for line in raised if "test_the_error_points" not in line]
    assert own == [
        f"{line_of(enriched, 'price_of(order)')} in enriched",
        f"{line_of(price_of, 'return')} in price_of",
    ]
    assert len(raised) == len(own), "the lines of who drives the task are not the user's function"
    assert f"  operator enrich is declared at {line_of(orders, 'map_values')}" in text.splitlines()
    assert "  record: key 'o-1', value '{\"price\":7}'" in text.splitlines()
    assert text.count("skip") == 1
    assert "[penstock.policies]" in text


def test_a_dead_letter_has_the_same_lines() -> None:
    with TopologyTestDriver(orders(), options=options("dead_letter")) as driver:
        driver.pipe_raw({"orders": [Record(b"o-1", b'{"price":7}'), Record(b"o-2", b"{")]})
        first, second = (dict(letter.headers) for letter in driver.read_raw("letters"))
    assert (first["penstock.traceback"] or b"").decode().splitlines()[
        -1
    ] == f"{line_of(price_of, 'return')} in price_of"
    assert (first["penstock.declared"] or b"").decode() == line_of(orders, "map_values")
    assert "penstock.traceback" not in second, "no function of the user's was called"
    assert (second["penstock.declared"] or b"").decode() == line_of(orders, "stream")


def test_an_operator_of_a_hand_made_graph_has_its_line_too() -> None:
    topology = orders().build()
    builder = StreamsBuilder()
    for name, spec in topology.operators.items():
        builder.add_operator(name, spec)
    for stream in topology.streams:
        builder.add_stream(stream.name, str(stream.out), *map(str, stream.ins))
    made = builder.build()
    assert made == topology
    assert set(made.declared) == set(topology.operators)
    here = line_of(test_an_operator_of_a_hand_made_graph_has_its_line_too, "add_operator(name")
    assert set(made.declared.values()) == {here}


def test_a_recursion_shows_its_innermost_frames() -> None:
    def deeper(n: int) -> int:
        return 1 // n if n == 0 else deeper(n - 1)

    with pytest.raises(ZeroDivisionError) as caught:
        deeper(100)
    found = raised_at(caught.value)
    assert len(found) == FRAMES_MAX
    assert found[-1].function.endswith("deeper")


def test_the_frames_of_libraries_are_left_out() -> None:
    with pytest.raises(json.JSONDecodeError) as caught:
        json.loads("{")
    assert [line.file for line in raised_at(caught.value)] == [__file__]


def test_what_no_policy_can_skip_does_not_advise_a_policy() -> None:
    error = ValueError("half done")
    stopped = stop_message(
        TaskId(0, 0), Failure("processing", "ticks", "ValueError: half done", error, False), None, None
    )
    assert "no policy skips it" in stopped
    assert "[penstock.policies]" not in stopped


def test_values_are_shortened() -> None:
    assert shortened(None) == "null"
    assert shortened(b"\xff") == "b'\\xff'"
    assert shortened(b"a" * SHOWN_BYTES) == repr("a" * SHOWN_BYTES)
    assert shortened(b"a" * 5000) == f"{'a' * SHOWN_BYTES!r}… (5000 bytes)"


def test_an_error_that_is_no_text_of_utf_8_still_makes_a_letter() -> None:
    origin = Origin(TopicPartition("in", 0), 4, b"k", b"v", 0, ())
    headers = dict(letter_headers(Failure("processing", "op", "KeyError: '\ud800'"), origin, None))
    assert headers["penstock.error"] == b"KeyError: '\\ud800'"


class Visit(msgspec.Struct):
    user: str


class LongerVisit(msgspec.Struct):
    user: str
    pages: int


def kept(value: type, seen: Any) -> StreamsBuilder:
    builder = StreamsBuilder(key=str, value=str)
    grouped = builder.stream("in").group_by_key()
    grouped.aggregate(lambda: seen, lambda k, v, state: state, value=value, name="visits").to_stream().to(
        "out", value=value
    )
    return builder


@pytest.mark.parametrize("policy", ["fail", "skip", "dead_letter"])
def test_state_that_no_longer_decodes_is_the_stores_fault(policy: ErrorPolicy) -> None:
    driver = TopologyTestDriver(kept(Visit, Visit("u")))
    driver.pipe("in", "k", "x")
    (task,) = driver.tasks.values()
    stored = list(task.backend.range("visits", None, None))
    changed = TopologyTestDriver(kept(LongerVisit, LongerVisit("u", 1)), options=options(policy))
    changed.pipe("in", "other", "x")
    (task,) = changed.tasks.values()
    task.backend.commit([StoreWrites("visits", stored, task.backend.position("visits") or b"")])
    task.stores["visits"].discard()
    with pytest.raises(IncompatibleError, match="store visits holds under key b'k'") as caught:
        changed.pipe("in", "k", "x")
    assert "LongerVisit" in str(caught.value)
    assert "pages" in str(caught.value)
    assert "not the record's" in str(caught.value)
