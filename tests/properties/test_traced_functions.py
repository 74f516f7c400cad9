"""Random plain functions: with input in columns, every result, error, counter and dead letter is what rows give."""

from __future__ import annotations

import math
import random
import struct
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from penstock.state.log import Record
from penstock.streams.task.error_policies import Policies
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.dsl.kstream import KStream
from penstock.topologies.expressions import functions as f
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operators.columnar import mapping
from penstock.topologies.operators.columnar import stateless as columnar
from tests.properties.traced_programs import (
    FLOATS,
    INTS,
    Inner,
    Kept,
    Made,
    Noted,
    Row,
    Writer,
    define,
    random_records,
)

LETTERS = "letters"
POLICIES = Policies(deserialization="dead_letter", processing="dead_letter", dead_letter_topic=LETTERS)
VALUES = {"int": int, "float": float, "str": str, "dict": dict, "Made": Made, "Kept": Kept, "Inner": Inner}
FLAT = ("a", "b", "x", "y", "s", "t", "p", "m", "z", "u", "q")


def random_step(rng: random.Random, writer: Writer, stream: KStream) -> tuple[KStream, str, bool]:
    """The stream behind a random function, the function's text, and whether values may not have the declared type."""
    kind = rng.choice(
        ("filter", "filter_not", "filter_values", "branch", "select_key", "map_values", "map_values", "with_key", "map")
    )
    parameters = "v" if kind in ("filter_values", "map_values") else "k, v"
    gives = {"select_key": rng.choice(("str", "int", "float", "Made", "dict")), "map": "pair"}.get(kind, "test")
    if kind in ("map_values", "with_key"):
        gives = rng.choice(tuple(VALUES))
    text = writer.function(parameters, gives)
    fn = define(text)
    match kind:
        case "filter" | "filter_not" | "filter_values":
            return getattr(stream, kind)(fn), text, False
        case "branch":
            other = writer.function("k, v", "test")
            return stream.branch(fn, define(other), default=True)[rng.randint(0, 2)], text + other, False
        case "select_key":
            return stream.select_key(fn, key=VALUES[gives]), text, False
        case "map":
            made = Kept if "Kept(" in text else Made if "Made(" in text else None
            return stream.map(fn, key=str, value=made), text, True
        case "with_key":
            return stream.map_values_with_key(fn, value=VALUES[gives]), text, True
    return stream.map_values(fn, value=VALUES[gives]), text, True


def random_topology(rng: random.Random, seen: list[Any]) -> tuple[Topology, str, str]:
    form = rng.choice(("Row", "Row", "Noted", "dicts", "hostile", "int", "float"))
    plain = {"int": int, "float": float}.get(form)
    builder = StreamsBuilder(value=plain or (Noted if form == "Noted" else Row))
    stream = builder.stream("in", key=rng.choice((str, str, bytes)))
    if form == "dicts":
        stream = stream.select(**{n: f.col(n) for n in FLAT})
    elif form == "hostile":  # inf and nan, which JSON does not have
        fields = {n: f.col(n) for n in FLAT} | {"x": f.col("x") * 1e300, "y": f.col("y") * 1e300 - f.col("x") * 1e300}
        stream = stream.select(**fields)
    writer = Writer(rng, items=form in ("dicts", "hostile"), plain=None if plain is None else form)
    texts = []
    for _ in range(rng.choice((1, 1, 2))):
        stream, text, ended = random_step(rng, writer, stream)
        texts.append(text)
        if ended:
            break
    if rng.random() < 0.6:
        stream.foreach(lambda k, v: seen.append((repr(k), repr(v))))
    if rng.random() < 0.6:
        stream.to("out")
    if rng.random() < 0.3:
        stream.map_values(lambda v: 1, value=int).to("ones")
    return builder.build(), "\n".join(texts), form


def plain_records(rng: random.Random, form: str) -> list[Record]:
    """Numbers, which may be inf and nan here."""
    hostile = (*FLOATS, math.inf, -math.inf, math.nan)
    ints = [i for i in INTS if i.bit_length() < 64]
    made = [
        struct.pack(">d", rng.choice(hostile)) if form == "float" else struct.pack(">q", rng.choice(ints))
        for _ in range(30)
    ]
    rows = [b"x" if rng.random() < 0.02 else row for row in made]
    return [Record(b"k", None if rng.random() < 0.05 else row, i) for i, row in enumerate(rows)]


def answers(topology: Topology, seen: list[Any], records: Any, batch: int, *, columns: bool) -> Any:
    seen.clear()
    options = TaskOptions(policies=POLICIES, batch_max_records=batch, columns="auto" if columns else "off")
    driver = TopologyTestDriver(topology, options=options, columns=columns)
    driver.pipe_raw({"in": records})
    topics = {t: driver.read_raw(t) for t in ("out", "ones", LETTERS)}
    return topics, +driver.dropped_records, list(seen)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often traced functions were asked for columns, and how often they gave them."""
    counts: Counter[str] = Counter()
    guarded = columnar.guarded

    def counted(fn: Any, step: columnar.ColumnarStep) -> columnar.ColumnarStep:
        made = guarded(fn, step)
        make: Callable[[Any], Any] = made.make

        def counting(batch: Any) -> Any:
            found = make(batch)
            counts["asked"] += 1
            counts["given"] += found is not None
            return found

        return columnar.ColumnarStep(counting, made.failing)

    monkeypatch.setattr(columnar, "guarded", counted)
    monkeypatch.setattr(mapping, "guarded", counted)
    return counts


@pytest.mark.parametrize("block", range(8))
def test_a_function_gives_in_columns_what_it_gives_by_row(block: int, steps: Counter[str]) -> None:
    for seed in range(block, 400, 8):
        rng = random.Random(seed)
        seen: list[Any] = []
        topology, text, form = random_topology(rng, seen)
        records = plain_records(rng, form) if form in ("int", "float") else random_records(rng)
        expected = answers(topology, seen, records, 1, columns=False)
        for batch in (1, 7, 10_000):
            found = answers(topology, seen, records, batch, columns=True)
            assert found == expected, f"seed {seed}, batch {batch}\n{text}"
    assert steps["given"] > 50, steps


def random_table(rng: random.Random) -> tuple[Topology, str]:
    """A table whose changes come in columns, and random functions of its rows."""
    builder = StreamsBuilder(value=Row)
    stream = builder.stream("in", key=str)
    names = {"a": "max", "s": "max", "t": "min", "m": "max", "u": "max"}
    parts = {n: getattr(f.col(n), how)() for n, how in names.items()}
    table = stream.group_by_key().agg(b=f.count(), **parts, emission=rng.choice(("per_commit", "every_update")))
    fields = {n: f.col(n) for n in ("b", *names)} | {"p": f.col("a") > 1, "q": f.col("m") > 1}
    fields |= {"x": f.col("a") * 0.5, "y": f.col("b") / 3, "z": f.col("m") * 1.5}
    table = table.map_values(f.struct(**fields))
    writer = Writer(rng, items=True)
    texts = []
    for _ in range(rng.randint(0, 2)):
        texts.append(writer.function("k, v", "test"))
        table = rng.choice((table.filter, table.filter_not))(define(texts[-1]))
    gives = rng.choice(("int", "dict", "Made"))
    texts.append(writer.function("v", gives))
    table.map_values(define(texts[-1]), value=VALUES[gives]).to_stream().to("out")
    texts.append(writer.function("k, v", "str"))
    table.to_stream(define(texts[-1]), key=str).map_values(lambda v: 1, value=int).to("ones")
    return builder.build(), "\n".join(texts)


@pytest.mark.parametrize("block", range(4))
def test_a_function_of_a_tables_rows_does_too(block: int, steps: Counter[str]) -> None:
    for seed in range(block, 60, 4):
        rng = random.Random(seed)
        topology, text = random_table(rng)
        records = random_records(rng, plain=0.8)
        for batch in (7, 10_000):
            expected = answers(topology, [], records, batch, columns=False)
            found = answers(topology, [], records, batch, columns=True)
            assert found == expected, f"seed {seed}, batch {batch}\n{text}"
    assert steps["given"] > 20, steps
