"""Texts that hardly repeat are left where they stand in their records: the same columns, and the same answers of topologies,
as when they are decoded, with nulls, escapes, other alphabets, objects around them and records that cannot be read."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from penstock.state.log import Record
from penstock.state.native import compiled
from penstock.streams.task.error_policies import Policies
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.columnar.encoded_columns import EncodedColumn
from penstock.topologies.columnar.json_columns import JsonProjection
from penstock.topologies.columnar.object_columns import TextParts
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.expressions.functions import coalesce, col, count, key, left, right, struct, value
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operator_api.columns import BytesColumn, CodedColumn, StructColumn
from tests.properties.following import left_behind

pytestmark = pytest.mark.skipif(compiled() is None, reason="texts are left in place by the compiled part")


class Inner(msgspec.Struct, frozen=True):
    """An object within a record."""

    name: str
    note: str | None = None


class Given(msgspec.Struct, frozen=True):
    """A record. ``kind`` has a default, so it is always decoded."""

    id: int
    text: str
    maybe: str | None = None
    kind: str = "usual"
    inner: Inner | None = None


def random_text(rng: random.Random) -> str:
    letters = "".join(rng.choices("abcdefgh", k=rng.randint(0, 12)))
    escaped = rng.choice(('"', "\\", "\n", "\x01")) if rng.random() < 0.03 else ""
    return letters + rng.choice(("", "", "", "", "é", "日本", "\x7f", "\U0001f600")) + escaped


def random_given(rng: random.Random, at: int, *, repeats: bool) -> bytes | None:
    text = rng.choice(("one", "two")) if repeats else random_text(rng)
    kind = rng.random()
    if kind < 0.01:
        return rng.choice((None, b"", b"{}", b'{"id":1,"text":"\xff"}', b'{"id":1,"text":7}'))
    inner = None if rng.random() < 0.2 else Inner(random_text(rng), None if rng.random() < 0.5 else random_text(rng))
    made = Given(at, text, None if rng.random() < 0.3 else random_text(rng), rng.choice(("usual", "other")), inner)
    data = msgspec.json.encode(made)
    return data.replace(b":", b": ") if rng.random() < 0.05 and b'"' not in text.encode() else data


@pytest.fixture
def in_place(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of the columns of texts that were left in place."""
    lengths: list[int] = []
    plain = TextParts.column

    def watched(self: TextParts, records: BytesColumn) -> EncodedColumn:
        lengths.append(len(self.ends) // 2)
        return plain(self, records)

    monkeypatch.setattr(TextParts, "column", watched)
    return lengths


@pytest.mark.parametrize("seed", range(6))
def test_columns_are_what_the_decoder_reads(seed: int, in_place: list[int]) -> None:
    rng = random.Random(seed)
    decode = msgspec.json.Decoder(Given).decode
    projection = JsonProjection(Given, ["text", "maybe", "kind", ("inner", "name"), ("inner", "note")], decode)
    for batch in range(45):
        rows = rng.choice((0, 1, 70, 70, 300))
        records = [random_given(rng, at, repeats=batch > 20) for at in range(rows)]
        column = BytesColumn.of([b"before", *records])
        read = projection.read(column.slice(1, rows + 1))
        wrong = {row for row, _ in read.failed}
        for row, data in enumerate(records):
            try:
                decoded = None if data is None else decode(data)
                assert row not in wrong
            except (msgspec.DecodeError, UnicodeDecodeError):
                assert row in wrong
                continue
            for name in ("text", "maybe", "kind"):
                assert read.columns[name].to_list()[row] == (None if decoded is None else getattr(decoded, name))
        inner = read.columns["inner"]
        good = [row for row in range(rows) if row not in wrong]
        objects = [None if data is None or row in wrong else decode(data).inner for row, data in enumerate(records)]
        for name in ("name", "note"):
            expected = [None if objects[row] is None else getattr(objects[row], name) for row in good]
            assert isinstance(inner, StructColumn)
            codes = inner.fields[name]
            assert isinstance(codes, CodedColumn)
            assert [codes.to_list()[row] for row in good] == expected
            assert [codes.values[code] for row, code in enumerate(codes.codes.tolist()) if row in set(good)] == expected
    assert len(in_place) > 20


def selected(builder: StreamsBuilder) -> None:
    stream = builder.stream("in", key=str, value=Given)
    fields = (col("id"), col("text"), col("maybe"), col("kind"))
    stream.select(*fields, k=key(), both=coalesce(col("maybe"), col("text"))).to("out")


def filtered(builder: StreamsBuilder) -> None:
    stream = builder.stream("in", key=str, value=Given)
    stream.filter_values((col("text") > "c") & col("maybe").is_not_null()).select_key(col("text")).to("out")


def within(builder: StreamsBuilder) -> None:
    inner = builder.stream("in", key=str, value=Given).map_values(col("inner")).filter_values(value().is_not_null())
    inner.map_values(struct(name=col("name"), note=col("note")), value=Inner).to("out")


def counted(builder: StreamsBuilder) -> None:
    grouped = builder.stream("in", key=str, value=Given).group_by(col("text"))
    grouped.agg(n=count(), most=col("maybe").max(), few=col("kind").count_distinct()).to("out")


def deduplicated(builder: StreamsBuilder) -> None:
    stream = builder.stream("in", key=str, value=Given)
    stream.with_columns(text=col("text").upper()).select(col("text"), n=col("text").length()).to("out")


def joined_by_text(builder: StreamsBuilder) -> None:
    stream = builder.stream("in", key=str, value=Given).select_key(col("text"))
    table = stream.group_by_key().agg(n=count())
    stream.join(table, struct(id=left("id"), n=right("n"), maybe=left("maybe"))).to("out")


PROGRAMS: tuple[Callable[[StreamsBuilder], None], ...] = (
    selected,
    filtered,
    within,
    counted,
    deduplicated,
    joined_by_text,
)


def outcome(program: Callable[[StreamsBuilder], None], seed: int, *, columns: bool) -> dict[str, Any]:
    rng = random.Random(seed)
    builder = StreamsBuilder("p")
    program(builder)
    topology: Topology = builder.build()
    options = TaskOptions(batch_max_records=128, policies=Policies(processing="skip", deserialization="skip"))
    with TopologyTestDriver(topology, options=options, auto_commit=False, columns=columns) as driver:
        for part in range(5):
            records = [
                Record(b"k%d" % rng.randrange(5), random_given(rng, at, repeats=part == 3), at, ()) for at in range(400)
            ]
            driver.pipe_raw({"in": records})
            driver.commit()
        driver.restart()
        return left_behind(driver)


@pytest.mark.parametrize("program", PROGRAMS)
def test_topologies_answer_as_on_rows(program: Callable[[StreamsBuilder], None], in_place: list[int]) -> None:
    for seed in range(3):
        before = len(in_place)
        rows = outcome(program, seed, columns=False)
        assert len(in_place) == before, "rows are decoded whole"
        assert outcome(program, seed, columns=True) == rows, seed
        assert len(in_place) > before
        assert rows["written"]
