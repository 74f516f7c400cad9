"""What operators are planned to run on, what sources decode, and how it is told."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from penstock.state.log import Record
from penstock.state.serdes.serde import Serde, typed_json
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.columnar.encoded_columns import ParsedColumn
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.dsl.kstream import KStream
from penstock.topologies.expressions import functions as f
from penstock.topologies.graph.lockstep_plan import Plan, plan_of
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operator_api.batch import Batch
from penstock.topologies.operator_api.operator import Emission, Operator, OperatorContext, OperatorSpec
from penstock.topologies.operator_api.required_columns import RequiredColumns
from penstock.topologies.windows import Windows, hopping, session, sliding, tumbling


class Order(msgspec.Struct, frozen=True):
    kind: str
    n: int
    price: float
    tags: list[str]


class Flat(msgspec.Struct, frozen=True):
    kind: str
    n: int
    price: float


@dataclasses.dataclass
class Watched:
    n: int

    def __post_init__(self) -> None:
        assert self.n != 13


@dataclasses.dataclass(frozen=True, kw_only=True)
class Look(OperatorSpec):
    """Keeps the column of values that it was given."""

    seen: list[Any]

    def open(self, ctx: OperatorContext) -> Operator:
        seen = self.seen

        class Looks(Operator):
            def process(self, port: int, batch: Batch) -> None:
                seen.append(batch.value_column)

        return Looks(ctx)


def built(make: Callable[[KStream], Any], value: Any = Flat, key: Any = str) -> Topology:
    builder = StreamsBuilder(value=value, key=key)
    make(builder.stream("in"))
    return builder.build()


def planned(topology: Topology) -> Plan:
    return plan_of(topology, topology.subtopologies[0])


def reasons(topology: Topology) -> dict[str, str | None]:
    plan = planned(topology)
    return {name: way.rows for name, (way, *_) in zip(plan.names, plan.input_modes, strict=True)}


def test_a_source_decodes_what_anybody_reads() -> None:
    def make(stream: KStream) -> None:
        large = stream.filter(f.col("price") > 5)
        large.select(twice=f.col("n") * 2).to("doubled")
        large.map_values(f.key()).to("keys", value=str)

    plan = planned(built(make))
    assert plan.needed(0) == RequiredColumns(key=True, fields=frozenset(("price", "n")))
    assert all(way.rows is None for ways in plan.input_modes[:3] for way in ways)
    assert plan.needed(1) is None


@pytest.mark.parametrize(
    ("make", "operator", "reason"),
    [
        (
            lambda s: s.filter(lambda k, v: v.tags, name="x"),
            "x",
            "it is given a Python function; its record has no field tags",
        ),
        (lambda s: s.filter(f.header("h") == b"", name="x"), "x", "its expression reads headers"),
        (lambda s: s.select_key(f.value(), key=Flat, name="x"), "x", "its expression takes the value as a whole"),
        (lambda s: s.peek(print, name="x"), "x", "it is given a Python function"),
        (lambda s: s.map_values(lambda v: v, name="x"), "in", "the next operator needs whole values"),
        (lambda s: s.select(f.col("n"), value=Watched, name="x"), "x", "Watched has a __post_init__"),
    ],
)
def test_reasons_for_rows(make: Callable[[KStream], Any], operator: str, reason: str) -> None:
    assert reasons(built(make))[operator] == reason


@pytest.mark.parametrize("emission", ["every_update", "per_commit", "on_close"])
def test_windows_that_are_counted_in_columns(emission: Emission) -> None:
    def reason(windows: Windows) -> str | None:
        return reasons(built(lambda s: s.group_by_key().windowed_by(windows).count(name="counts", emission=emission)))[
            "counts"
        ]

    assert reason(tumbling(10, grace=0, offset=3)) is None
    assert reason(hopping(10, 5, grace=0)) is None
    for others in (hopping(10, 5, grace=0, before_epoch=True), sliding(10, grace=0)):
        assert reason(others) == "its windows are neither tumbling nor hopping ones"
    every_update = "it emits every update of sessions, which its records merge"
    assert reason(session(10, grace=0)) == (every_update if emission == "every_update" else None)


@pytest.mark.parametrize("emission", ["per_commit", "on_close"])
def test_sessions_in_columns(emission: Emission) -> None:
    def reason(windows: Windows, aggregate: Callable[[Any], Any], **options: Any) -> str | None:
        return reasons(built(lambda s: aggregate(s.group_by_key().windowed_by(windows, **options))))["x"]

    def summed(windowed: Any) -> Any:
        return windowed.agg(total=f.col("n").sum(), emission=emission, name="x")

    assert reason(session(10, grace=0), summed) is None
    assert reason(session(lambda k, v: 5, grace=0), summed, retention=10) == "a function gives its sessions' gap"
    assert (
        reason(session(10, grace=0), lambda s: s.reduce(lambda a, b: a, emission=emission, name="x"))
        == "it is given a Python function"
    )


def test_reasons_that_lie_in_the_serde() -> None:
    def make(stream: KStream) -> None:
        stream.filter(f.col("n") > 1)

    assert reasons(built(make, dict))["in"] == "its values have no declared type"
    assert (reasons(built(make, Order))["in"] or "").startswith(
        "fields of json:Order cannot be read apart: its field tags"
    )
    plain = typed_json(Flat)
    shifted: Serde[Flat] = dataclasses.replace(
        plain, name="shifted", deserialize=lambda data: plain.deserialize(data[1:])
    )
    assert reasons(built(make, shifted))["in"] == "serde shifted decodes whole values only"
    assert reasons(built(make, Flat))["in"] is None


def test_operators_in_lockstep_say_with_whom() -> None:
    def make(stream: KStream) -> None:
        many, few = stream.branch(f.col("n") > 1, f.col("n") > 0, name="split")
        many.to("out", name="first")
        few.to("out", name="second")

    topology = built(make)
    assert reasons(topology)["split"] == "runs record by record with first, second"
    assert planned(topology).needed(0) is not None


def test_the_plan_as_text() -> None:
    topology = built(lambda s: s.filter(f.col("kind") == "view", name="views").peek(print, name="show"))
    assert topology.describe(plan=True) == (
        "topology topology\n\n"
        "sub-topology 0\n"
        "  in (Source): columns; decodes the key, the field kind, the value of the records that are left\n"
        "  views (Filter): columns\n"
        "  show (Peek): rows: it is given a Python function\n"
    )


def test_behind_lists_are_rows() -> None:
    def make(s: KStream) -> None:
        made = s.map(lambda k, v: (k, [v][0]), name="made")
        made.filter(f.col("n") > 1, name="few").to("out", name="written")
        s.map_values(lambda v: v, name="values").group_by_key().count(name="counts")

    assert reasons(built(make)) == {
        "in": "the next operator needs whole values",
        "made": "it is given a Python function; it has a part that has no expression: [v]",
        "few": "values come as lists from made",
        "written": "records come as lists from few",
        "values": "it is given a Python function; it uses value() as a whole",
        "counts": None,
    }


def test_fields_that_nobody_decodes_apart_are_read_of_rows() -> None:
    topology = built(lambda s: s.filter(f.col("n") > 1).peek(print).filter(f.col("kind") == "a", name="behind"))
    assert reasons(topology)["behind"] == "values come without columns of kind from in-peek"


@pytest.mark.parametrize("columns", ["auto", "off"])
def test_columns_can_be_turned_off(columns: Any) -> None:
    seen: list[Any] = []
    builder = StreamsBuilder(value=Flat)
    stream = builder.stream("in").filter(f.col("n") >= 0)
    builder.add_operator("look", Look(seen=seen))
    builder.add_stream("behind", stream.out, "look")
    driver = TopologyTestDriver(builder.build(), columns=True, options=TaskOptions(columns=columns))
    record = msgspec.json.encode(Flat("view", 1, 2.0))
    driver.pipe_raw({"in": [Record(b"k", record, 1)] * 100})
    assert len(seen) == 1
    assert isinstance(seen[0], ParsedColumn) == (columns == "auto")


def test_functions_of_batches_get_plain_ones() -> None:
    seen: list[type] = []

    def doubled(batch: Batch) -> Batch:
        seen.append(type(batch))
        return dataclasses.replace(batch, values=[v.n * 2 for v in batch.values])

    builder = StreamsBuilder(value=Flat)
    builder.stream("in").filter(f.col("n") >= 0).map_batch(doubled, value=int).to("out")
    driver = TopologyTestDriver(builder.build(), columns=True)
    driver.pipe_raw({"in": [Record(b"k", msgspec.json.encode(Flat("view", n, 2.0)), 1) for n in range(50)]})
    assert [r.value for r in driver.read("out")] == [2 * n for n in range(50)]
    assert seen == [Batch]
