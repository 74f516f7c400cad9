"""JSON that is passed on, or put together, without making what it says: the bytes are those of the encoders."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import orjson
import pytest

from penstock.state import native
from penstock.state.log import Record, TaskId
from penstock.state.rocksdb.rocksdb_backend import RocksDBBackend
from penstock.state.rocksdb.tuning import RocksDBOptions
from penstock.state.serdes.serde import JSON, STRING, serde_of, typed_json
from penstock.state.stores.memory_backend import MemoryBackend
from penstock.state.stores.store import StateBackend, StoreSpec, StoreWrites
from penstock.state.stores.store_view import KeyValueStoreView
from penstock.streams.task.error_policies import Policies
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.columnar.encoded_columns import WrittenColumn
from penstock.topologies.columnar.json_writing import DictOf, InstanceOf, encoder_of, written_json
from penstock.topologies.columnar.kernels import Coder
from penstock.topologies.columnar.record_shapes import written_form
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.expressions import functions as f
from penstock.topologies.expressions.functions import col, left, right, struct
from penstock.topologies.operator_api.columns import BytesColumn, CodedColumn, Column, NumberColumn, StructColumn
from penstock.topologies.operators.columnar import row_fields
from penstock.topologies.operators.columnar.row_fields import RowFields
from penstock.topologies.operators.columnar.row_texts import RowTexts, WrittenTexts, row_texts, written_texts
from tests.properties.json_records import INTERESTING, INTS, TEXTS, batch, integer, text

THERE = hasattr(native.compiled(), "JsonForm")
"""Whether the compiled part is; without it no rows are passed on."""
BATCHES = (1, 7, 10_000)


class Profile(msgspec.Struct, frozen=True):
    s: str
    i: int
    b: bool = True
    x: str | None = None


class Renamed(msgspec.Struct, frozen=True, rename={"s": "ess", "i": "ä"}, kw_only=True):
    i: int | None = 3
    s: str


class Sparse(msgspec.Struct, frozen=True, omit_defaults=True):
    s: str = "view"
    i: int = 0


class Measured(msgspec.Struct, frozen=True):
    s: str
    f: float


class Tally(msgspec.Struct, frozen=True):
    n: int
    b: bool


class Mutable(msgspec.Struct):
    s: str
    i: int
    b: bool = True
    x: str | None = None


class Click(msgspec.Struct, frozen=True):
    page: str
    n: int


def some_json(rng: random.Random, tp: Any) -> list[bytes | None]:
    """Records, some as the encoder of the type writes them, some nearly so, some not at all."""
    out = batch(rng)
    names = [f.encode_name for f in msgspec.structs.fields(tp)]
    for _ in range(30):
        values = [
            rng.choice(
                (orjson.dumps(text(rng).encode(errors="ignore").decode()), b"%d" % integer(rng), b"true", b"null")
            )
            if rng.random() < 0.4
            else rng.choice((b'"view"', b"12", b"false", rng.choice(INTERESTING).encode("utf-8", "surrogatepass")))
            for _ in names
        ]
        pairs = [orjson.dumps(n) + b":" + v for n, v in zip(names, values, strict=True)]
        out.append(b"{" + rng.choice((b",", b",", b",", b", ")).join(pairs) + rng.choice((b"}", b"}", b"}", b"} ")))
        fitting = [
            orjson.dumps({"s": rng.choice(TEXTS), "i": rng.choice(INTS[:8]), "b": True, "x": None}[f.name])
            for f in msgspec.structs.fields(tp)
        ]
        out.append(b"{" + b",".join(orjson.dumps(n) + b":" + v for n, v in zip(names, fitting, strict=True)) + b"}")
    return out


@pytest.mark.parametrize("tp", [Profile, Renamed])
def test_what_has_the_form_is_what_the_encoder_writes(tp: Any) -> None:
    module, parts = native.compiled(), written_form(tp)
    assert parts is not None
    if not THERE or module is None:
        assert row_texts(serde_of(tp)) is None
        return
    form = module.JsonForm([tuple(part) for part in parts])
    decode, fitting = msgspec.json.Decoder(tp).decode, 0
    for seed in range(80):
        records = some_json(random.Random(seed), tp)
        others = form.others(*BytesColumn.of(records).raw())
        flags = bytes(len(records)) if others is None else others
        for data, other in zip(records, flags, strict=True):
            if not other and data is not None:
                assert msgspec.json.encode(decode(data)) == data
                fitting += 1
    assert fitting > 300


class Nested(msgspec.Struct, frozen=True):
    first: Profile
    of: Renamed | None = None


def test_objects_within_have_the_form_of_their_type() -> None:
    module, parts = native.compiled(), written_form(Nested)
    assert parts is not None
    if not THERE or module is None:
        return
    form, decode, fitting = module.JsonForm(parts), msgspec.json.Decoder(Nested).decode, 0
    for seed in range(60):
        rng = random.Random(seed)
        firsts, others = some_json(rng, Profile), some_json(rng, Renamed)
        pairs = zip(rng.sample(firsts, len(firsts)), rng.sample(others, len(others)), strict=False)
        records = [b'{"first":%s,"of":%s}' % (a or b"null", b or b"null") for a, b in pairs]
        rows = BytesColumn.of(list(records))
        unlike = form.others(*rows.raw())
        for data, other in zip(records, bytes(len(records)) if unlike is None else unlike, strict=True):
            if not other:
                assert msgspec.json.encode(decode(data)) == data
                fitting += 1
    assert fitting > 100


@pytest.mark.skipif(not THERE, reason="texts of columns need the compiled part")
def test_the_texts_of_records_that_are_built_of_columns() -> None:
    """They are those of the records; of instances of another class there are none, nor of what may not be of the type."""
    written = written_texts(serde_of(Profile))
    assert written is not None
    numbers, flags = NumberColumn(np.array([1, -5])), NumberColumn(np.array([True, False]))
    texts = CodedColumn.of(["é", 'q"'])
    names = ["b", "x", "s", "i"]
    nulls = np.array([False, True])

    def built(tp: type, **fields: Column) -> StructColumn:
        known = {"b": flags, "x": texts, "s": texts, "i": numbers} | fields
        return StructColumn(known, InstanceOf(names, tp))

    whole = built(Profile)
    found = written.of_column(whole)
    assert found is not None
    assert found.to_list() == list(map(msgspec.json.encode, whole.to_list()))
    assert written.sure(whole)
    for name, some in (("s", ["a", "\ud800"]), ("s", ["a", None]), ("s", [1]), ("i", [7, 1 << 63]), ("i", [7, True])):
        assert not written.sure(built(Profile, **{name: CodedColumn.of(some)})), some
    assert written.of_column(built(Mutable)) is None
    null = built(Profile, x=CodedColumn.of([None, "a"]))
    assert written.of_column(null) is not None
    assert written.of_column(built(Profile, i=NumberColumn(numbers.array, nulls))) is None
    assert written.of_column(built(Profile, s=CodedColumn.of(["a", "\ud800"]))) is None
    assert written.of_column(StructColumn(whole.fields, whole.build, nulls)) is None
    assert written.of_column(CodedColumn.of([1, 2])) is None
    tallies = written_texts(serde_of(Tally))
    assert tallies is not None
    build = InstanceOf(["n", "b"], Tally)
    assert tallies.sure(StructColumn({"n": numbers, "b": flags}, build))
    assert not tallies.sure(StructColumn({"n": NumberColumn(numbers.array, nulls), "b": flags}, build))
    assert not tallies.sure(StructColumn({"n": NumberColumn(np.array([0.5, 1.0])), "b": flags}, build))
    assert not tallies.sure(StructColumn({"n": numbers, "b": flags}, build, nulls))


def test_types_that_can_be_written_in_other_ways_have_no_form() -> None:
    mutable = msgspec.defstruct("Mutable", [("s", str)])
    for tp in (Sparse, Measured, mutable, dict):
        assert row_texts(serde_of(tp)) is None
    assert row_texts(STRING) is None
    assert (row_texts(typed_json(Profile)) is not None) == THERE


def stored(kind: str, path: Path) -> tuple[KeyValueStoreView, StateBackend]:
    spec = StoreSpec("rows", "key_value", STRING, serde_of(Profile))
    small = RocksDBOptions(entries_bytes=1 << 20)
    backend: StateBackend = MemoryBackend([spec]) if kind == "memory" else RocksDBBackend(path, [spec], small)
    return KeyValueStoreView(spec, backend), backend


@pytest.mark.parametrize("kind", ["memory", "rocksdb"])
def test_rows_are_what_the_store_gives(kind: str, tmp_path: Path) -> None:
    for seed in range(8):
        rng = random.Random(seed)
        state, backend = stored(kind, tmp_path / str(seed))
        texts = row_texts(state.spec.value_serde)
        if texts is None:
            assert not THERE
            return
        keys = [b"%d" % i * rng.randrange(1, 4) for i in range(rng.choice((5, 400, 12_000)))]
        for step in range(8):
            puts = [(k, written_row(rng)) for k in rng.sample(keys, len(keys) // 2)]
            backend.commit([StoreWrites("rows", puts, b"p%d" % step)])
            state.discard()
            if rng.random() < 0.4:
                backend.flush()
            for key in rng.sample(keys, 3):
                state.put(key, rng.choice((None, Profile(rng.choice(TEXTS), 1))), 5)
            if rng.random() < 0.3:
                state.entries.clear()
                state.dirty.clear()
            check_rows(texts, state, rng.choices([*keys, b"", b"none"], k=rng.choice((1, 500))))
        backend.close()


def written_row(rng: random.Random) -> bytes | None:
    if rng.random() < 0.1:
        return None
    row = {"s": rng.choice(TEXTS), "i": rng.randrange(1000), "b": rng.random() < 0.5, "x": rng.choice((None, "y"))}
    names = list(row) if rng.random() < 0.9 else ["s", "i"]
    dumps = orjson.dumps if rng.random() < 0.9 else msgspec.json.encode
    raw = dumps({name: row[name] for name in names})
    return b"\x00" * 8 + (raw if rng.random() < 0.9 else raw.replace(b":", b" : "))


def check_rows(texts: RowTexts, state: KeyValueStoreView, keys: list[bytes]) -> None:
    column = BytesColumn.of([b"before", *keys]).slice(1, len(keys) + 1)
    rows = texts.of(column, state)
    assert rows is not None
    assert state.entries.keys() <= state.dirty.keys(), "nothing is decoded"
    state.load(keys)
    expected = [None if state.entries[k] is None else state.entries[k][0] for k in keys]
    assert rows.to_list() == expected
    assert rows.raw.to_list() == [None if row is None else msgspec.json.encode(row) for row in expected]
    places = np.arange(len(keys))[::2]
    assert rows.take(places).to_list() == expected[::2]
    assert isinstance(rows.slice(0, 1), WrittenColumn)


def test_a_row_that_cannot_be_read_is_left_to_its_readers(tmp_path: Path) -> None:
    state, backend = stored("memory", tmp_path)
    texts = row_texts(state.spec.value_serde)
    if texts is None:
        assert not THERE
        return
    backend.commit([StoreWrites("rows", [(b"a", bytes(8) + b'{"s":1}')], b"p")])
    assert texts.of(BytesColumn.of([b"a"]), state) is None
    assert texts.of(BytesColumn.of([b"b"]), state) is not None


def enriched(rng: random.Random) -> StreamsBuilder:
    builder = StreamsBuilder("p", key=str, value=Click)
    table = builder.table("table", value=Profile, name="rows")
    stream = builder.stream("in")
    join = stream.join if rng.random() < 0.5 else stream.left_join
    joined = join(table, struct(page=left("page"), row=right(), n=left("n") * 2, again=right()))
    if rng.random() < 0.3:
        joined = joined.filter(lambda key, value: value["row"] is None or value["row"].b)
    joined.to("out")
    return builder


def read(rng: random.Random) -> StreamsBuilder:
    """Joins that read fields of rows, some of which fail for some rows."""
    builder = StreamsBuilder("p", key=str, value=Click)
    table = builder.table("table", value=Profile, name="rows")
    stream = builder.stream("in")
    join = stream.join if rng.random() < 0.7 else stream.left_join
    i, s, x = right("i"), right("s"), right("x")
    parts = {"s": s, "i": i, "x": x, "both": i * 2 + i, "b": right("b") & (i > 3), "long": s.length(), "over": 7 // i}
    parts |= {"known": x.is_not_null(), "one": f.coalesce(x, s), "row": right()}
    chosen = {name: parts[name] for name in rng.sample(sorted(parts), rng.randint(1, 3))}
    if rng.random() < 0.3:
        join(table, rng.choice((i, i + 1, 7 // i)), value="json").to("out")
    elif rng.random() < 0.3:
        join(table, rng.choice((s, f.coalesce(x, s))), value=str).to("out")
    else:
        join(table, struct(page=left("page"), n=left("n") * 2, **chosen)).to("out")
    return builder


def outcome(
    seed: int,
    most: int,
    path: Path | None,
    *,
    columns: bool,
    build: Callable[[random.Random], StreamsBuilder] = enriched,
) -> Any:
    rng = random.Random(seed)
    topology = build(rng).build()

    def opened(task: TaskId, stores: Any) -> StateBackend:
        return MemoryBackend(stores) if path is None else RocksDBBackend(path / str(task), stores)

    policies = Policies(processing="dead_letter", dead_letter_topic="letters")
    options = TaskOptions(batch_max_records=most, policies=policies)
    with TopologyTestDriver(
        topology, options=options, auto_commit=False, columns=columns, open_backend=opened
    ) as driver:
        for step in range(rng.randrange(1, 5)):
            rows = [Record(key(rng), tabled(rng), 10 * step + i) for i in range(rng.choice((0, 30)))]
            if rng.random() < 0.3:
                large = b'{"s":"large","i":%d}' % rng.choice((0, 2**63 - 1, -(2**63), 2**63, 2**64, 2**70))
                rows.append(Record(key(rng), large, 10 * step))
            start = 10 * step + rng.choice((0, 15, 100))
            clicks = [
                Record(key(rng), orjson.dumps({"page": rng.choice(TEXTS), "n": rng.randrange(9)}), start + i // 9)
                for i in range(rng.choice((70, 200)))
            ]
            driver.pipe_raw({"table": rows, "in": clicks})
            if rng.random() < 0.7:
                driver.commit()
        driver.commit()
        return driver.read_raw("out"), driver.read_raw("letters"), +driver.dropped_records


def key(rng: random.Random) -> bytes | None:
    return None if rng.random() < 0.002 else b"%d" % rng.randrange(40)


def tabled(rng: random.Random) -> bytes | None:
    found = written_row(rng)
    return None if found is None else found[8:]


@pytest.mark.parametrize("stored_on_disk", [False, True])
def test_joined_rows_are_those_of_the_row_path(stored_on_disk: bool, tmp_path: Path, passed: list[int]) -> None:
    for seed in range(6 if stored_on_disk else 12):
        expected = outcome(seed, 1, None, columns=False)
        for most in BATCHES:
            path = tmp_path / f"{seed}-{most}" if stored_on_disk else None
            assert outcome(seed, most, path, columns=True) == expected, (seed, most)
    assert sum(passed) > 1000 or not THERE, "no rows were passed on"


@pytest.mark.parametrize("stored_on_disk", [False, True])
def test_fields_of_rows_are_those_of_the_row_path(
    stored_on_disk: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_fields, "_REPEATED", 10_000)  # the records here share a few rows
    seen: Counter[bool] = Counter()
    columns_of = RowFields.columns

    def counted(self: RowFields, *args: Any) -> Any:
        found = columns_of(self, *args)
        seen[found is not None] += 1
        return found

    monkeypatch.setattr(RowFields, "columns", counted)
    for seed in range(8 if stored_on_disk else 50):
        expected = outcome(seed, 1, None, columns=False, build=read)
        for most in BATCHES:
            path = tmp_path / f"{seed}-{most}" if stored_on_disk else None
            assert outcome(seed, most, path, columns=True, build=read) == expected, (seed, most)
    assert (seen[True] > 100 and seen[False]) or not THERE, "no fields were read"


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many rows were passed on, at each time."""
    seen: list[int] = []
    of = RowTexts.of

    def counted(self: RowTexts, *args: Any) -> Any:
        found = of(self, *args)
        seen.append(0 if found is None else len(found))
        return found

    monkeypatch.setattr(RowTexts, "of", counted)
    yield seen


def kept(rng: random.Random, tp: Any) -> StreamsBuilder:
    """Records that are filtered, looked at, and written as they are, to a topic of the user's and to one of our own."""
    builder = StreamsBuilder("p", key=str, value=tp)
    stream = builder.stream("in")
    for _ in range(rng.randrange(3)):
        stream = rng.choice(
            (
                lambda s: s.filter_values(col("s") == "view"),
                lambda s: s.filter_not(col("i") > 5),
                lambda s: s.filter(lambda key, value: value is None or value.b),
                lambda s: s.select_key(col("s")),
                lambda s: s.repartition(),
                lambda s: s.peek(changed),
            )
        )(stream)
    stream.to("out")
    return builder


def changed(key: str | None, value: Any) -> None:
    """Changes the record where it can be changed: what is written then is not what was read."""
    if type(value) is Mutable:
        value.i = 77


def written(seed: int, tp: Any, most: int, *, columns: bool) -> Any:
    rng = random.Random(seed)
    topology = kept(rng, tp).build()
    policies = Policies(deserialization="dead_letter", processing="dead_letter", dead_letter_topic="letters")
    options = TaskOptions(policies=policies, batch_max_records=most)
    with TopologyTestDriver(topology, options=options, auto_commit=False, columns=columns) as driver:
        for step in range(rng.randrange(1, 4)):
            values = some_json(rng, Profile)
            driver.pipe_raw({"in": [Record(key(rng), value, 10 * step + i) for i, value in enumerate(values)]})
            driver.commit()
        return driver.read_raw("out"), driver.read_raw("letters"), +driver.dropped_records


@pytest.mark.parametrize("tp", [Profile, Mutable, Sparse])
def test_records_passed_on_are_those_of_the_row_path(tp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    same: list[int] = []
    of = WrittenTexts.of

    def counted(self: WrittenTexts, texts: BytesColumn) -> BytesColumn | None:
        found = of(self, texts)
        if found is not None:
            pairs = zip(found.to_list(), texts.to_list(), strict=True)
            same.append(sum(a is not None and a == b for a, b in pairs))
        return found

    monkeypatch.setattr(WrittenTexts, "of", counted)
    for seed in range(16):
        expected = written(seed, tp, 1, columns=False)
        for most in BATCHES:
            assert written(seed, tp, most, columns=True) == expected, (seed, most)
    if tp is Profile and THERE:
        assert sum(same) > 1000, "no records were passed on"
    else:
        assert not same, "records were passed on that the encoder may write otherwise"


MAKE: list[Callable[[random.Random, int], Column]] = [
    lambda rng, n: NumberColumn(np.array([rng.choice(INTS[:6]) for _ in range(n)], np.int64)),
    lambda rng, n: NumberColumn(np.array([-(2**63), 2**63 - 1, *range(n)][:n], np.int64), nulls(rng, n)),
    lambda rng, n: NumberColumn(np.array([rng.choice((1.5, -0.0, 1e300)) for _ in range(n)])),
    lambda rng, n: NumberColumn(np.array([rng.random() < 0.5 for _ in range(n)]), nulls(rng, n)),
    lambda rng, n: CodedColumn(codes(rng, n, 3), ["view", "click", ""]),
    lambda rng, n: CodedColumn(codes(rng, n, len(TEXTS)), list(TEXTS)),
    lambda rng, n: CodedColumn(codes(rng, n, 4), ["a", None, 2**70, Profile("é", 3)]),
    lambda rng, n: CodedColumn(codes(rng, n, 40), [str(i) for i in range(40)]),
    lambda rng, n: StructColumn({"a": MAKE[rng.randrange(8)](rng, n)}, DictOf(["a"]), nulls(rng, n)),
    lambda rng, n: WrittenColumn(
        BytesColumn.of([rng.choice((None, msgspec.json.encode(Profile("q", 1)))) for _ in range(n)]),
        serde_of(Profile),
        Coder(),
    ),
]


def nulls(rng: random.Random, n: int) -> Any:
    return None if rng.random() < 0.5 else np.array([rng.random() < 0.3 for _ in range(n)])


def codes(rng: random.Random, n: int, count: int) -> Any:
    return np.array([rng.randrange(count) for _ in range(n)], np.int32)


@pytest.mark.parametrize("choice", ["auto", "off"])
def test_columns_as_json_are_what_the_encoder_writes(choice: native.Choice) -> None:
    native.choose(choice)
    try:
        for seed in range(300):
            rng = random.Random(seed)
            n = rng.randrange(1, 30)
            names = rng.sample(["a", "50%", 'q"', "é", "", "\n"], rng.randrange(1, 6))
            fields = {name: rng.choice(MAKE)(rng, n) for name in names}
            column = StructColumn(fields, DictOf(names), nulls(rng, n))
            found = written_json(column, msgspec.json.encode)
            assert found is not None
            listed = found.to_list() if isinstance(found, Column) else found
            assert listed == [None if row is None else msgspec.json.encode(row) for row in column.to_list()]
    finally:
        native.choose("auto")


def test_an_encoder_that_sorts_is_not_written_by_field() -> None:
    plain, sorting = msgspec.json.Encoder(), msgspec.json.Encoder(order="sorted")
    assert encoder_of(serde_of(dict)) is not None
    assert encoder_of(msgspec_serde(plain)) == plain.encode
    assert encoder_of(msgspec_serde(sorting)) is None


def msgspec_serde(encoder: msgspec.json.Encoder) -> Any:
    return type(JSON)("own", encoder.encode, msgspec.json.decode)
