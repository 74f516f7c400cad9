"""What the DSL refuses, where it is written, naming the operator and what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.state.errors import TopologyError
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.operators.processors.processor import Processor
from penstock.topologies.windows import tumbling

WINDOWS = tumbling("10s", grace="1m")


def keep(key: object, value: object) -> bool:
    """Any predicate."""
    return True


class Quiet(Processor):
    """Forwards nothing."""

    out_ports = ()


Use = Callable[[Any], Any]
"""Of the builder, whose types would refuse some of these before it is run."""

REFUSED: dict[str, tuple[Use, str]] = {
    "windowed table in a join": (
        lambda b: b.stream("in").join(b.stream("x").group_by_key().windowed_by(WINDOWS).count(), max),
        "'in-join' joins the windowed table 'x-count'.*join a table per key",
    ),
    "keys that never meet": (
        lambda b: b.stream("in", key=int).left_join(b.table("rows"), max),
        "'in-left-join': keys of 'in' are int, those of table 'rows' are string.*select_key",
    ),
    "two streams without a bound": (
        lambda b: b.stream("in").join(b.stream("x"), max),
        "'in-join' joins two streams without a bound.*give within=",
    ),
    "two streams without grace": (
        lambda b: b.stream("in").join(b.stream("x"), max, within="1m"),
        "'in-join' joins two streams and needs grace=",
    ),
    "an empty window between two streams": (
        lambda b: b.stream("in").join(b.stream("x"), max, before=-5, after=4, grace=0),
        "'in-join': the window from 5 to 4 ms is empty",
    ),
    "two streams whose keys never meet": (
        lambda b: b.stream("in", key=int).join(b.stream("x"), max, within=1, grace=0),
        "'in-join': keys of 'in' are int, those of 'x' are string.*select_key",
    ),
    "a table within a window": (
        lambda b: b.stream("in").join(b.table("rows"), max, within=1, grace=0),
        "'in-join' joins .* within a window of time, which needs two streams",
    ),
    "a time of results that there is not": (
        lambda b: b.stream("in").join(b.stream("x"), max, within=1, grace=0, result_time="earliest"),
        "'in-join': result_time='earliest' is unknown; use 'latest' or 'left' or 'right'",
    ),
    "a time of results with a table": (
        lambda b: b.stream("in").join(b.table("rows"), max, result_time="right"),
        "'in-join' joins .* needs two streams: .* result_time for a table",
    ),
    "merging other values": (
        lambda b: b.stream("in").merge(b.stream("x", value=str)),
        "'in-merge' .*different value serdes: 'in' has json, 'x' has string; map one",
    ),
    "merging other keys": (
        lambda b: b.stream("in").merge(b.stream("x", key=bytes)),
        "'in-merge' .*different key serdes",
    ),
    "merging with itself": (
        lambda b: (s := b.stream("in")).merge(s),
        "'in-merge' merges 'in' with itself",
    ),
    "another builder's stream": (
        lambda b: b.stream("in").merge(StreamsBuilder("other").stream("x")),
        "'in-merge' got 'x' of topology 'other'",
    ),
    "another builder's table": (
        lambda b: b.stream("in").join(StreamsBuilder("other").table("x"), max),
        "'in-join' got 'x' of topology 'other'.*same StreamsBuilder",
    ),
    "unknown emission": (
        lambda b: b.stream("in").group_by_key().count(emission="sometimes"),
        "'in-count': emission='sometimes' is unknown; use 'every_update' or 'per_commit'",
    ),
    "aggregates without a serde": (
        lambda b: b.stream("in").group_by_key().aggregate(list, max),
        r"'in-aggregate': the serde of its aggregates is unknown; name it",
    ),
    "an unknown serde": (
        lambda b: b.stream("in").map_values(str, value=complex),
        "the value of operator 'in-map-values': no serde for <class 'complex'>",
    ),
    "a serde that cannot even be looked up": (
        lambda b: b.stream("in", key={}),
        "the key of source 'in'",
    ),
    "no function": (
        lambda b: b.stream("in").filter("x > 1"),
        "'in-filter' needs a function, not 'x > 1'",
    ),
    "one topic twice": (
        lambda b: (b.stream("in"), b.table("in", name="again")),
        "topic 'in' is already read by 'in'",
    ),
    "one name twice": (
        lambda b: (b.stream("in"), b.stream("x", name="in")),
        "two operators are named 'in'",
    ),
    "no topic": (lambda b: b.stream(""), "no topic"),
    "nowhere to write": (lambda b: b.stream("in").to(""), "no topic"),
    "no windows": (
        lambda b: b.stream("in").group_by_key().windowed_by(10_000),
        "windowed_by on 'in': 10000 is not a window; use tumbling",
    ),
    "windows twice": (
        lambda b: b.stream("in").group_by_key().windowed_by(WINDOWS).windowed_by(WINDOWS),
        "windowed already",
    ),
    "too short a retention": (
        lambda b: b.stream("in").group_by_key().windowed_by(WINDOWS, retention="1m"),
        "retention 60000 ms .*at least size \\+ grace = 70000 ms",
    ),
    "no branches": (lambda b: b.stream("in").branch(), "'in-branch': branches none"),
    "a branch named default twice": (
        lambda b: b.stream("in").branch({"default": keep}, default=True),
        "'in-branch': branches default, default",
    ),
    "a branch with a name that is no port": (
        lambda b: b.stream("in").branch({"a.b": keep}),
        "'in-branch': branches a.b",
    ),
    "an undeclared port": (
        lambda b: b.stream("in").process(Quiet).port("late"),
        "'in-process' has no out port 'late'; it declares: none",
    ),
    "going on behind a processor without ports": (
        lambda b: b.stream("in").process(Quiet).to("out"),
        "'in-process' does not name an out port|does not name an out port of 'in-process'",
    ),
    "no partitions": (
        lambda b: b.stream("in").repartition(partitions=0),
        "partitions=0; it must be at least 1",
    ),
    "nothing read": (lambda b: b.build(), "reads no topic; start it with stream"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    """A ``TopologyError`` whose message leads to the place."""
    use, message = REFUSED[case]
    with pytest.raises(TopologyError, match=message):
        use(StreamsBuilder())


def test_defaults_are_checked_at_once() -> None:
    """Before anything is built on them."""
    never: Any = "never"
    with pytest.raises(TopologyError, match="topology 't': emission='never' is unknown"):
        StreamsBuilder("t", emission=never)
    with pytest.raises(TopologyError, match="default value serde of topology 't'"):
        StreamsBuilder("t", value=complex)


def test_tumbling_windows_need_a_grace() -> None:
    """No default exists that would not lose records or memory unasked."""
    with pytest.raises(TopologyError, match="tumbling needs a grace"):
        tumbling("10s")
