"""Random programs over keys and values of every plain serde, with the bytes that are hardest to hold apart: with input in
columns every output, changelog, row of state, counter and dead letter is what rows give, at every batch size."""

from __future__ import annotations

import random
import struct
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from penstock.state.log import Record
from penstock.state.serdes.serde import BYTES, FLOAT, INT, INT32, JSON, STRING, Serde
from penstock.streams.task.error_policies import Policies
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.dsl.kstream import KStream
from penstock.topologies.expressions import functions as f
from penstock.topologies.operator_api.batch import Batch
from penstock.topologies.operators.columnar.source import Decoder
from penstock.topologies.windows import Windows, hopping, tumbling

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")  # numpy would say what rows do not
LETTERS = "letters"
POLICIES = Policies(deserialization="dead_letter", processing="dead_letter", dead_letter_topic=LETTERS)
SERDES: tuple[Serde[Any], ...] = (BYTES, STRING, INT, INT32, FLOAT, JSON)
KINDS = {"bytes": "bytes", "string": "string", "int": "int64", "int32": "int64", "float": "float64"}


def double(bits: int) -> bytes:
    return struct.pack(">Q", bits)


PLAIN: dict[Serde[Any], tuple[bytes, ...]] = {
    BYTES: (b"", b"\x00", b"a", b"b", b"\xff", b"a" * 3_000),
    STRING: (b"", b"\x00", b"a", b"A", b"a b", "é".encode(), "e\u0301".encode(), "😀".encode(), b"1", b"x" * 3_000),
    INT: tuple(n.to_bytes(8, "big", signed=True) for n in (0, 1, -1, 2, 7, 2**53 + 1, 2**62, 2**63 - 1, -(2**63))),
    INT32: tuple(n.to_bytes(4, "big", signed=True) for n in (0, 1, -1, 5, 2**31 - 1, -(2**31))),
    FLOAT: (
        *(struct.pack(">d", x) for x in (0.0, -0.0, 1.0, -1.5, 0.1, 1e308, 5e-324, float("inf"), float("-inf"))),
        *(double(bits) for bits in (0x7FF8000000000000, 0xFFF8000000000000, 0x7FF8000000000001)),
    ),
    JSON: (
        *(b"1", b"true", b"1.0", b"0", b"-0.0", b"0.0", b"false", b"null", b'""', b'"1"', b'"a"', b'"\\u0061"'),
        *(b'{"a":1,"a":2}', b'{"b":1,"a":2}', b"[1]", b"[true]", b"[]", b" 1 ", b"18446744073709551615"),
        *(b"9223372036854775808", b"1e22", b"1e-400", b'"\\u0000"'),
    ),
}
DAMAGED = (b"\xff", b"\xed\xa0\x80", b"1e400", b"NaN", b"\x00" * 7, b"{", b'"\\ud800"', b"", b"18446744073709551616")
Change = Callable[[random.Random, KStream, Serde[Any], Serde[Any]], tuple[KStream, Serde[Any], Serde[Any]]]


def constant(rng: random.Random, serde: Serde[Any]) -> Any:
    """Something to compare with."""
    by_kind: dict[str, tuple[Any, ...]] = {
        "bytes": (b"a", b""),
        "string": ("a", "", "1"),
        "int64": (0, 1, -(2**63), 0.5),
        "float64": (0, 0.0, -0.0, 1.5, float("inf")),
    }
    return rng.choice(by_kind.get(KINDS.get(serde.name, ""), (1, 1.0, "a", "")))


def compared(rng: random.Random, e: Any, serde: Serde[Any]) -> Any:
    const = constant(rng, serde)
    ways: tuple[Callable[[], Any], ...] = (
        lambda: e == const,
        lambda: e != const,
        lambda: e.is_null(),
        lambda: e.is_in(const, constant(rng, serde)),
    )
    ordered: tuple[Callable[[], Any], ...] = (lambda: e < const, lambda: e >= const, lambda: e.between(const, const))
    return rng.choice(ways if serde is JSON else (*ways, *ordered))()


def some(rng: random.Random, key: Serde[Any], value: Serde[Any]) -> tuple[Any, Serde[Any]]:
    """The key or the value, as an expression."""
    return rng.choice(((f.key(), key), (f.value(), value)))


def filtered(rng: random.Random, s: KStream, key: Serde[Any], value: Serde[Any]) -> Any:
    condition = compared(rng, *some(rng, key, value))
    if rng.random() < 0.4:
        other = compared(rng, *some(rng, key, value))
        condition = rng.choice((condition & other, condition | other, ~other))
    return rng.choice((s.filter, s.filter_not))(condition), key, value


def computed(rng: random.Random, key: Serde[Any], value: Serde[Any]) -> tuple[Any, Serde[Any]]:
    """Something made of them and the serde that writes it."""
    e, serde = some(rng, key, value)
    if serde in (INT, INT32):
        return rng.choice((e + 1, e * 2, 7 // e, -e, e)), INT
    if serde == FLOAT:
        return rng.choice((e + 1, e * 2, e / 3, -e, e, e.abs())), FLOAT
    if serde == STRING:
        return rng.choice((e.upper(), f.concat(e, "!"), e)), STRING
    return e, serde


def mapped(rng: random.Random, s: KStream, key: Serde[Any], value: Serde[Any]) -> Any:
    if rng.random() < 0.3:
        return s.map_values(lambda v: v), key, value
    made, serde = computed(rng, key, value)
    return s.map_values(made, value=serde), key, serde


def keyed(rng: random.Random, s: KStream, key: Serde[Any], value: Serde[Any]) -> Any:
    made, serde = computed(rng, key, value)
    return s.select_key(made, key=serde), serde, value


def unchanged(rng: random.Random, s: KStream, key: Serde[Any], value: Serde[Any]) -> Any:
    return s.peek(lambda k, v: None), key, value


def program(rng: random.Random) -> tuple[StreamsBuilder, Serde[Any], Serde[Any]]:
    """A source, some changes, and an end; and what its records are."""
    first, second = rng.choice(SERDES), rng.choice(SERDES)
    key, value = first, second
    builder = StreamsBuilder("hostile", emission=rng.choice(("every_update", "per_commit")))
    s = builder.stream("in", key=key, value=value)
    for _ in range(rng.randint(0, 2)):
        s, key, value = rng.choice((filtered, mapped, keyed, filtered, unchanged))(rng, s, key, value)
    end = rng.choice(("sink", "struct", "count", "windowed", "agg", "regrouped", "joined", "sink"))
    if end == "struct":
        s = s.map_values(f.struct(**{"v%": f.value(), "k": f.key(), "n": f.timestamp()}), value="json")
    elif end == "joined":
        table = builder.table("table", key=key, value=value, name="rows").on_error("dead_letter")
        joiner = rng.choice((f.right(), lambda v, row: v if row is None else row))
        s = rng.choice((s.join, s.left_join))(table, joiner, value=value)
    elif end in ("count", "windowed", "agg", "regrouped"):
        grouped = s.group_by(f.value(), key=value) if end == "regrouped" else s.group_by_key()
        if end == "windowed" or (end == "agg" and rng.random() < 0.4):
            size, grace = rng.choice((7, 40)), rng.choice((0, 30))
            windows: Windows = tumbling(size, grace=grace)
            if rng.random() < 0.5:
                windows = hopping(size, rng.choice((3, 7)), grace=grace, offset=rng.choice((0, 5)))
            grouped = grouped.windowed_by(windows)
        if end == "agg":
            v = f.value()
            parts = {"rows": f.count(), "values": v.count(), "first": v.first(), "last": v.last()}
            if value in (INT, INT32, FLOAT):
                # which bits the sum of two different NaN has is up to the interpreter, as warm as it is
                parts |= {"total": v.sum().where(v == v), "mean": v.mean().where(v == v)}
                parts |= {"least": v.min(), "most": v.max()}
            chosen: dict[str, Any] = {n: parts[n] for n in rng.sample(sorted(parts), rng.randint(1, 3))}
            if value == BYTES:
                chosen = {"rows": f.count()}
            table = grouped.agg(name="made", **chosen)
        else:
            table = grouped.count(name="made")
        s = table.to_stream(lambda k, v: repr(k), key=str).map_values(repr, value=str)
    s.to("out")
    return builder, first, second


def random_records(rng: random.Random, key: Serde[Any], value: Serde[Any], now: int) -> list[Record]:
    headers = rng.random() < 0.2
    damage = rng.choice((0, 0, 0.1))

    def data(serde: Serde[Any], few: tuple[bytes, ...]) -> bytes | None:
        chance = rng.random()
        if chance < damage:
            return rng.choice(DAMAGED)
        return None if chance < damage + 0.07 else rng.choice(few)

    keys = tuple(rng.choice(PLAIN[key]) for _ in range(rng.choice((1, 4, 12))))
    values = tuple(rng.choice(PLAIN[value]) for _ in range(rng.choice((1, 4, 12))))
    return [
        Record(
            data(key, keys),
            data(value, values),
            rng.choice((now, now + rng.randint(0, 60), max(now - rng.randint(0, 60), 0))),
            (("h", None if rng.random() < 0.5 else b""),) if headers else (),
        )
        for _ in range(rng.choice((1, 20, 70)))
    ]


def outcome(seed: int, batch: int, *, columns: bool, off: bool = False) -> dict[str, Any]:
    """Everything that was done with the seed's input."""
    rng = random.Random(seed)
    builder, key, value = program(rng)
    topology = builder.build()
    options = TaskOptions(batch_max_records=batch, policies=POLICIES, columns="off" if off else "auto")
    with TopologyTestDriver(topology, options=options, auto_commit=False, columns=columns) as driver:
        topics = [t for t in ("in", "table") if any(t in s for s in topology.source_topics("test"))]
        for step in range(rng.randint(1, 4)):
            driver.pipe_raw({rng.choice(topics): random_records(rng, key, value, 30 * step)})
            if rng.random() < 0.5:
                driver.commit()
            if rng.random() < 0.2:
                driver.restart(restore=rng.random() < 0.5)
        driver.commit()
        driver.commit()
        return {
            "written": {t: driver.read_raw(t) for t in ("out", LETTERS)},
            "changelogs": driver.changelogs,
            "stores": {
                name: repr(list(state.range())) for task in driver.tasks.values() for name, state in task.stores.items()
            },
            "dropped": +driver.dropped_records,
        }


@pytest.mark.parametrize("block", range(4))
def test_columns_change_nothing(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    written: Counter[str] = Counter()
    decoded: Counter[str] = Counter()
    read = Decoder.read

    def counted(self: Decoder, batch: Batch) -> Batch | None:
        found = read(self, batch)
        decoded["columns"] += found is not None
        return found

    monkeypatch.setattr(Decoder, "read", counted)
    for seed in range(block, 96, 4):
        before = decoded.total()
        expected = outcome(seed, 1, columns=False)
        assert decoded.total() == before, "rows were taken for columns"
        for batch, off in ((3, False), (10_000, False), (10_000, True)):
            found = outcome(seed, batch, columns=True, off=off)
            assert found == expected, f"seed {seed}, batch {batch}, off {off}"
        written.update({topic: len(rows) for topic, rows in expected["written"].items()})
    assert all(written.values())
    assert decoded.total(), "no batch was taken as columns"
