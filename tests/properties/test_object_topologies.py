"""Topologies over records that hold objects: with input in columns, every output, changelog, counter and dead letter is what
rows give, at every batch size, with and without the compiled part."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest

import penstock as ps
from penstock.state import native
from penstock.state.log import Record
from penstock.streams.task.error_policies import Policies
from penstock.streams.task.task_options import TaskOptions
from penstock.topologies.columnar import encoded_columns
from penstock.topologies.columnar.encoded_columns import decoded
from penstock.topologies.dsl.kstream import KStream
from penstock.topologies.expressions import functions as f
from penstock.topologies.expressions.functions import col
from penstock.topologies.operator_api.batch import Batch
from penstock.topologies.operators.columnar.source import Decoder
from tests.properties.object_records import Event, Leaf, Middle, Whole, Written, record_of

LETTERS = "letters"
POLICIES = Policies(deserialization="dead_letter", processing="dead_letter", dead_letter_topic=LETTERS)
Stream = KStream[Any, Any]


def joined(s: Stream) -> None:
    leaves = s.filter_values(col("kind") > 0).map_values(col("leaf")).select_key(col("i"), key=int)
    others = s.filter_values(col("middle").is_not_null()).map_values(col("middle")).select_key(col("n"), key=int)
    both = f.struct(leaf=f.left(), n=f.right("n"), s=f.left("s"))
    leaves.join(others, both, within="20ms", grace=0).to("out")


def branched(s: Stream) -> None:
    found = s.branch(col("leaf.b"), (col("middle.leaf.f") > 0) | col("middle").is_null())
    found[0].map_values(col("leaf")).to("out")
    found[1].select(col("kind"), leaf=col("middle.leaf")).to("also")


TOPOLOGIES: dict[str, tuple[type, Callable[[Stream], Any]]] = {
    "objects of one kind": (
        Event,
        lambda s: (
            s.filter_values(col("kind") == 1)
            .map_values(col("leaf"))
            .select(col("s"), col("i"), twice=col("f") * 2)
            .to("out")
        ),
    ),
    "objects as they are": (Event, lambda s: s.filter_values(col("kind") < 3).map_values(col("leaf")).to("out")),
    "objects in objects": (
        Event,
        lambda s: s.map_values(col("middle")).map_values(col("leaf")).select(col("s"), col("b")).to("out"),
    ),
    "objects in objects at once": (
        Event,
        lambda s: s.map_values(col("middle.leaf")).filter_values(col("i") >= 0).to("out"),
    ),
    "conditions on fields of fields": (
        Event,
        lambda s: s.filter_values((col("middle.leaf.i") > 1) | col("leaf.b") | (col("leaf.s") == "view")).to("out"),
    ),
    "whether objects are there": (
        Event,
        lambda s: (
            s.filter_values(col("leaf").is_not_null() & col("middle.leaf").is_null())
            .select(col("kind"), n=col("middle.n"), strict=col("strict").is_null())
            .to("out")
        ),
    ),
    "objects in made records": (
        Event,
        lambda s: (
            s.select(col("kind"), leaf=col("leaf"), s=col("middle.leaf.s"))
            .filter_values((col("leaf.i") < 3) | col("leaf").is_null())
            .to("out")
        ),
    ),
    "expressions over several objects": (
        Event,
        lambda s: s.select(
            text=f.when(col("leaf.s") == "view").then(col("leaf.s").upper()).otherwise(col("middle.leaf.s")),
            number=f.coalesce(col("leaf.i"), col("middle.leaf.i"), col("kind")),
            fails=12 // col("middle.other.i"),
            s=col("s"),
        ).to("out"),
    ),
    "keys from objects": (
        Event,
        lambda s: (
            s.filter_values(col("kind") != 2)
            .map_values(col("strict"))
            .group_by(col("leaf.s"), key=str)
            .agg(n=f.count(), most=col("leaf.i").max())
            .to_stream()
            .to("out", value="json")
        ),
    ),
    "keys of several fields": (
        Event,
        lambda s: (
            s.filter_values(col("kind") != 2)
            .map_values(col("leaf"))
            .group_by(f.struct(s=col("s"), i=10 // col("i"), f=col("f")))
            .agg(n=f.count())
            .to_stream()
            .to("out", value="json")
        ),
    ),
    "decimals": (
        Event,
        lambda s: (
            s.select(col("kind"), price=col("leaf.i") * Decimal("1.10")).filter_values(col("price") > 1).to("out")
        ),
    ),
    "functions of objects": (
        Event,
        lambda s: (
            s.filter_values(col("kind") == 1)
            .map_values(col("leaf"))
            .map_values(lambda leaf: [leaf.s, 1 // leaf.i], value=list)
            .to("out")
        ),
    ),
    "functions of all objects": (
        Event,
        lambda s: s.map_values(col("middle")).map_values(lambda m: m and [m.n], value=list).to("out"),
    ),
    "traced functions of all objects": (
        Event,
        lambda s: s.map_values(col("middle")).map_values(lambda m: None if m is None else m.n, value=dict).to("out"),
    ),
    "objects that are always there": (
        Whole,
        lambda s: (
            s.filter_values(col("middle.leaf.i") + col("leaf.i") > 1)
            .map_values(col("middle"))
            .select(col("n"), leaf=col("leaf"), i=col("other.i"))
            .to("out")
        ),
    ),
    "dataclasses": (
        Written,
        lambda s: (
            s.filter_values(col("kind") == 7).select(col("leaf.s"), inner=col("inner"), i=col("inner.leaf.i")).to("out")
        ),
    ),
    "a dataclass with added fields": (
        Event,
        lambda s: s.with_columns(i=col("leaf.i"), middle=col("middle.n")).to("out"),
    ),
    "branches": (Event, branched),
    "joined": (Event, joined),
}


@pytest.fixture(params=["auto", "off"])
def choice(request: pytest.FixtureRequest) -> Iterator[native.Choice]:
    """With the compiled part, where it is there, and without."""
    native.choose(request.param)
    yield request.param
    native.choose("auto")


def topology_of(name: str) -> ps.Topology:
    tp, made = TOPOLOGIES[name]
    builder = ps.StreamsBuilder(key=str, value=tp)
    made(builder.stream("in"))
    return builder.build()


def input_of(rng: random.Random, tp: type, count: int) -> list[Record]:
    hostility = rng.choice((0, 0, 0.003))
    return [
        Record(
            rng.choice((b"a", b"b", b"c", None, b"\xff" if hostility else b"d")),
            None if rng.random() < 0.05 else record_of(rng, tp, hostility),
            rng.randrange(50),
        )
        for _ in range(count)
    ]


def answers(topology: ps.Topology, records: list[Record], batch: int, *, columns: bool) -> Any:
    options = TaskOptions(policies=POLICIES, batch_max_records=batch)
    with ps.TopologyTestDriver(topology, options=options, columns=columns) as driver:
        driver.pipe_raw({"in": records})
        outputs = [driver.read_raw(topic) for topic in ("out", "also", LETTERS)]
        return outputs, driver.changelogs, +driver.dropped_records


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_columns_and_rows_give_the_same(choice: native.Choice, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    topology = topology_of(name)
    taken = 0
    read = Decoder.read

    def counted(self: Decoder, batch: Any) -> Batch | None:
        nonlocal taken
        taken += len(batch)
        return read(self, batch)

    monkeypatch.setattr(Decoder, "read", counted)
    rng = random.Random(name)
    written = 0
    for _ in range(6):
        records = input_of(rng, TOPOLOGIES[name][0], rng.choice((70, 150, 300)))
        expected = answers(topology, records, 1, columns=False)
        assert not taken
        for batch in (70, 10_000):
            assert answers(topology, records, batch, columns=True) == expected, batch
        assert taken
        taken = 0
        written += len(expected[0][0])
    assert written


def test_objects_are_joined_as_they_were_read(choice: native.Choice) -> None:
    """Without a repartition topic between the source and the join."""
    builder = ps.StreamsBuilder(key=str, value=Event)
    one, other = (builder.stream(topic).map_values(col("leaf")) for topic in ("in", "other"))
    both = f.struct(a=f.left("i"), b=f.right())
    one.join(other, both, condition=f.left("s") == f.right("s"), within="5ms", grace=0, name="pairs").to("out")
    topology = builder.build()
    assert "pairs (StreamStreamJoin): columns" in topology.describe(plan=True)
    rng = random.Random("joined")
    options = [TaskOptions(policies=POLICIES, batch_max_records=n) for n in (1, 100, 10_000)]
    for _ in range(4):
        records = {topic: input_of(rng, Event, 200) for topic in ("in", "other")}
        found = []
        for n, option in enumerate(options):
            with ps.TopologyTestDriver(topology, options=option, columns=n > 0) as driver:
                driver.pipe_raw(records)
                found.append(
                    ([driver.read_raw(t) for t in ("out", LETTERS)], driver.changelogs, +driver.dropped_records)
                )
        assert found[0][0][0]
        assert found[1] == found[0]
        assert found[2] == found[0]


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_the_plan_says_that_the_source_decodes_fields(name: str) -> None:
    plan = topology_of(name).describe(plan=True)
    if name == "functions of all objects":
        assert "in (Source): rows: the next operator needs whole values" in plan
    else:
        assert "in (Source): columns; decodes" in plan


@pytest.mark.parametrize("name", ["objects of one kind", "objects in objects", "decimals"])
def test_no_record_and_no_object_is_decoded(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that goes by rows after all would give the same."""
    if native.compiled() is None:
        pytest.skip("without the compiled part every record is decoded")
    asked = 0

    def counted(raw: Any, serde: Any) -> Any:
        nonlocal asked
        asked += 1
        return decoded(raw, serde)

    monkeypatch.setattr(encoded_columns, "decoded", counted)
    leaf, strict = b'{"s":"x","i":1,"f":0.5}', b'{"i":1,"leaf":{"s":"y","i":2}}'
    middle = b'{"le af":' + leaf + b',"ne":3}'
    parts = [(b"leaf", leaf), (b"middle", middle), (b"strict", strict)]
    data = [b'{"kind":1,"' + part + b'":' + text + b"}" for part, text in parts] * 40
    options = TaskOptions(policies=POLICIES)
    with ps.TopologyTestDriver(topology_of(name), options=options, columns=True) as driver:
        driver.pipe_raw({"in": [Record(b"k", text, 0) for text in data]})
        assert driver.read_raw("out")
    assert not asked


def test_the_plan_names_fields_of_fields() -> None:
    builder = ps.StreamsBuilder(key=str, value=Event)
    leaves = builder.stream("in").filter_values(col("kind") == 1).map_values(col("middle.leaf"), name="leaves")
    leaves.select(col("s"), name="texts").to("out")
    plan = builder.build().describe(plan=True)
    assert "in (Source): columns; decodes the key, the field kind, the field middle.leaf.s\n" in plan
    assert "leaves (MapValues): columns\n" in plan
    assert "texts (MapValues): columns\n" in plan


def test_types_are_those_of_the_objects() -> None:
    records = [Record(b"k", b'{"kind":1,"leaf":{"s":"x","i":1},"middle":{"ne":1}}', 0)] * 100
    seen: list[Any] = []
    builder = ps.StreamsBuilder(key=str, value=Event)
    events = builder.stream("in").filter_values(col("kind") == 1)
    for name in ("leaf", "middle"):
        events.map_values(col(name)).foreach(lambda key, value: seen.append(value))
    with ps.TopologyTestDriver(builder.build(), columns=True) as driver:
        driver.pipe_raw({"in": records})
    assert set(map(type, seen)) == {Leaf, Middle}
    assert len(seen) == 200
