"""Lists of tuples that the compiled part writes and reads are those of the serdes in Python: equal bytes, and equal values
of equal types. What it does not know it leaves to them, with their errors."""

from __future__ import annotations

import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.state import native
from penstock.state.serdes.serde import INT, Serde
from penstock.state.serdes.tuple_lists import WholeLists
from penstock.state.stores.memory_backend import MemoryBackend
from penstock.state.stores.store import StoreSpec, StoreWrites
from penstock.state.stores.store_view import KeyValueStoreView
from penstock.topologies.aggregators.encoding import FLAT, PLAIN, joined
from penstock.topologies.aggregators.members_apart import DISTINCT_COUNT
from penstock.topologies.columnar.column_parts import packed_values

EDGES = sorted(
    {sign * (1 << bits) + by for bits in (5, 7, 8, 15, 16, 31, 32, 63) for sign in (1, -1) for by in (-1, 0, 1)}
)
LONGS = [n for n in EDGES if -(1 << 63) <= n < 1 << 63]
NANS = [struct.unpack(">d", bits.to_bytes(8, "big"))[0] for bits in (0x7FF8 << 48, 0xFFF8 << 48, (0x7FF8 << 48) + 1)]
SIZES = st.sampled_from([0, 1, 31, 32, 255, 256, 65_535, 65_536])
TEXTS = st.text(max_size=40) | st.builds(
    lambda size, of: of * (size // len(of.encode())), SIZES, st.sampled_from("aé日😀")
)
FLOATS = st.floats() | st.sampled_from([0.0, -0.0, float("inf"), float("-inf"), *NANS])
BYTES = st.binary(max_size=40) | SIZES.map(bytes)
LONG = st.sampled_from(LONGS) | st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-3, 300)
SCALARS = st.none() | st.booleans() | LONG | st.integers(1 << 63, (1 << 64) - 1) | FLOATS | TEXTS | BYTES
FLATS = st.lists(SCALARS, max_size=4).map(tuple) | st.lists(LONG, min_size=14, max_size=18).map(tuple)
PARTS: dict[Serde[Any], st.SearchStrategy[Any]] = {
    INT: LONG,
    FLAT: FLATS,
    DISTINCT_COUNT: st.integers(0, 1 << 63) | LONG,
}


class Pair(NamedTuple):
    a: int
    b: int


class Number(int):
    pass


class Text(str):
    pass


STRANGE: tuple[Any, ...] = (
    *(Decimal("1.5"), 1 << 64, -(1 << 63) - 1, 10**30, (1, 2), [1], {"a": 1}, "\ud800", Number(5), Text("a")),
    *(bytearray(b"a"), memoryview(b"a"), 1j, object, Pair(1, 2), frozenset({1}), 1.0, True, None, b"a", (), "a", 7),
)


@st.composite
def kinds(draw: Any) -> tuple[Serde[Any], st.SearchStrategy[Any]]:
    """A serde that has lists, and its plain values."""
    if draw(st.integers(0, 3)) == 0:
        return FLAT, FLATS
    parts = tuple(draw(st.lists(st.sampled_from(list(PARTS)), max_size=9)))
    parts += (INT,) * draw(st.sampled_from([0, 0, 0, 8]))
    return joined(parts), st.tuples(*(PARTS[part] for part in parts))


def shape(value: Any) -> Any:
    """A value by its type and bits."""
    if type(value) is tuple or type(value) is list:
        return type(value), [shape(part) for part in value]
    return type(value), struct.pack(">d", value) if type(value) is float else value


def lists_of(serde: Serde[Any]) -> WholeLists:
    assert serde.lists is not None
    return serde.lists


def outcome(run: Callable[[], Any]) -> tuple[Any, tuple[Any, ...] | None]:
    try:
        return run(), None
    except Exception as exc:  # whatever the serde raises
        return None, (type(exc), str(exc))


@pytest.fixture(autouse=True)
def only_compiled() -> None:
    if native.compiled() is None:
        pytest.skip("without the compiled part there are only the serdes")


@settings(deadline=None)
@given(st.data())
def test_plain_tuples_have_the_bytes_of_the_serde_and_come_back(data: Any) -> None:
    serde, plain = data.draw(kinds())
    values = data.draw(st.lists(plain | st.none(), max_size=6))
    times = data.draw(st.lists(LONG, min_size=len(values), max_size=len(values)))
    lists, expected = lists_of(serde), [None if v is None else serde.serialize(v) for v in values]
    assert lists.write(values) == expected
    assert lists.pack(values) is not None
    assert packed_values(values, serde).to_list() == expected
    entries = [None if v is None else (v, ts) for v, ts in zip(values, times, strict=True)]
    stored = [None if d is None else struct.pack(">q", ts) + d for d, ts in zip(expected, times, strict=True)]
    assert lists.write_entries(entries) == stored
    read, again = lists.read(expected), lists.read_entries(stored)
    assert shape(read) == shape([None if d is None else serde.deserialize(d) for d in expected]) == shape(values)
    assert shape(again) == shape(entries)


def test_every_size_and_number_at_which_the_form_changes() -> None:
    sizes = [*range(35), *range(120, 135), *range(245, 262), *range(65_520, 65_540)]
    wide = [n for n in EDGES if -(1 << 63) <= n < 1 << 64]
    flats: list[Any] = [(one,) for one in (*wide, *NANS, 0.0, -0.0, True, False, None)]
    flats += [(of * size,) for size in sizes for of in (b"a", "a", "é")]
    flats += [(1,) * size for size in sizes]
    assert lists_of(FLAT).write(flats) == [FLAT.serialize(value) for value in flats]
    assert shape(lists_of(FLAT).read([FLAT.serialize(value) for value in flats])) == shape(flats)
    for count in (1, 14, 15, 16, 17):
        serde, values = joined((FLAT,) * count), [(value,) * count for value in flats]
        written: list[bytes | None] = [serde.serialize(value) for value in values]
        assert lists_of(serde).write(values) == written
        assert shape(lists_of(serde).read(written)) == shape(values)


def changed(data: Any, value: Any) -> Any:
    """Change a tuple so that its serde refuses it, or only just takes it."""
    parts = list(value)
    way = data.draw(st.integers(0, 5))
    at = data.draw(st.integers(0, max(len(parts) - 1, 0)))
    strange = data.draw(st.sampled_from(STRANGE))
    if way == 0 or not parts:
        return strange
    if way == 1:
        return parts
    if way == 2:
        return tuple(parts[:at] + parts[at + 1 :])
    if way == 3 and type(parts[at]) is tuple:
        strange = (*parts[at], strange)
    if way == 4:
        return (*parts, strange)
    parts[at] = strange
    return tuple(parts)


def check_written(serde: Serde[Any], values: list[Any]) -> None:
    """The bytes or the error are those of the serde."""
    with native.without():
        expected, error = outcome(lambda: serde.serialize_all(values))
    assert outcome(lambda: serde.serialize_all(values)) == (expected, error)
    assert outcome(lambda: packed_values(values, serde).to_list()) == (expected, error)
    whole = lists_of(serde).write(values)
    assert whole is None or (error is None and whole == expected)
    stored = lists_of(serde).write_entries([(value, 7) for value in values])
    assert stored is None or (error is None and stored == [struct.pack(">q", 7) + (d or b"") for d in expected])


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_other_values_have_the_bytes_or_the_error_of_the_serde(data: Any) -> None:
    serde, plain = data.draw(kinds())
    values = data.draw(st.lists(plain, max_size=3))
    values.insert(data.draw(st.integers(0, len(values))), changed(data, data.draw(plain)))
    check_written(serde, values)


@pytest.mark.parametrize("strange", STRANGE, ids=range(len(STRANGE)))
def test_a_strange_value_at_every_place_has_the_bytes_or_the_error_of_the_serde(strange: Any) -> None:
    for serde in (FLAT, *(joined((part,)) for part in PARTS), joined((INT, FLAT))):
        for value in (
            strange,
            (strange,),
            ((strange,),),
            [strange],
            (1, strange),
            (1, (strange,)),
            (1, (2, strange), 3),
        ):
            check_written(serde, [value])


@pytest.mark.parametrize(
    "entry", [(), ((),), ((), 1, 2), ((), True), ((), 1 << 63), ((), 1.0), ((), None), [(), 1], 1, Pair(1, 2)]
)
def test_other_entries_are_left_to_the_store(entry: Any) -> None:
    assert lists_of(FLAT).write_entries([((), 1), entry]) is None
    assert lists_of(FLAT).write_entries([((), 1), ((), 1)]) is not None


def damaged(data: Any, written: bytes) -> bytes:
    """Bytes with something changed, cut off or added."""
    at = data.draw(st.integers(0, len(written)))
    way = data.draw(st.integers(0, 4))
    if way == 0:
        return written[:at]
    if way == 1:
        return written + data.draw(st.binary(min_size=1, max_size=3))
    other = data.draw(
        st.binary(min_size=1, max_size=2) | st.sampled_from([b"\xc0", b"\xca", b"\xc7", b"\xd4", b"\x90", b"\xa1"])
    )
    return written[:at] + other + written[at + (len(other) if way > 2 else 0) :]


NESTED = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=2), max_leaves=5
)


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_other_bytes_are_read_as_the_serde_reads_them(data: Any) -> None:
    serde, plain = data.draw(kinds())
    written = [serde.serialize(value) for value in data.draw(st.lists(plain, max_size=3))]
    way = data.draw(st.integers(0, 3))
    if way == 0:
        other = data.draw(st.binary(max_size=12))
    elif way == 1:
        other = PLAIN.serialize(data.draw(NESTED))
    elif way == 2:
        other = msgspec.msgpack.encode(
            [PLAIN.serialize(data.draw(NESTED)) for _ in range(data.draw(st.integers(0, 3)))]
        )
    else:
        other = damaged(data, serde.serialize(data.draw(plain)))
    column: list[bytes | None] = [*written, None, other]
    with native.without():
        expected, error = outcome(lambda: serde.deserialize_all(column))
    got, failed = outcome(lambda: serde.deserialize_all(column))
    assert (shape(got), failed) == (shape(expected), error)
    whole = lists_of(serde).read(column)
    assert whole is None or (error is None and shape(whole) == shape(expected))
    stamp = data.draw(st.binary(max_size=8)) if data.draw(st.booleans()) else struct.pack(">q", -3)
    entries = lists_of(serde).read_entries([stamp + other])
    assert (entries is None) == (len(stamp) < 8 or lists_of(serde).read([other]) is None) or len(stamp) < 8
    if entries is not None and len(stamp) == 8:
        assert shape(entries) == shape([(serde.deserialize(other), struct.unpack(">q", stamp)[0])])


@pytest.mark.parametrize("part", [INT, FLAT, DISTINCT_COUNT])
def test_parts_with_other_bytes_are_read_as_the_serde_reads_them(part: Serde[Any]) -> None:
    serde = joined((part,))
    others = [
        PLAIN.serialize(one) for one in (1.0, 1.5, True, None, "a", b"a", [], [1], {}, {"a": 1}, 5, Decimal(1), 1 << 70)
    ]
    others += [b"", b"\x05\x05", bytes(7), bytes(8), bytes(9), b"\xca" + bytes(4), b"\xcc\x05", b"\xd3" + bytes(8)]
    for other in others:
        data = msgspec.msgpack.encode([other])
        expected, error = outcome(lambda data=data: serde.deserialize(data))
        whole = lists_of(serde).read([data])
        assert whole is None or (error is None and shape(whole) == shape([expected]))


def test_what_is_no_list_of_bytes_is_left_to_the_serde() -> None:
    data = FLAT.serialize((1,))
    assert lists_of(FLAT).read([data, data]) == [(1,), (1,)]
    for other in (bytearray(data), memoryview(data), "a", 1):
        assert lists_of(FLAT).read([data, other]) is None  # type: ignore[list-item]  # the point
    assert FLAT.deserialize_all([bytearray(data)]) == [(1,)]  # type: ignore[list-item]  # the point


def test_forms_that_do_not_exist_are_refused() -> None:
    module: Any = native.compiled()
    for call in (module.write_tuples, module.read_tuples):
        with pytest.raises(ValueError, match="no part has the form 120"):
            call([], b"qx", False)
    with pytest.raises(ValueError, match="no part has the form 120"):
        module.pack_tuples([], b"x")


def test_parts_of_other_kinds_have_no_lists() -> None:
    assert joined((INT, PLAIN)).lists is None
    assert joined((joined((INT,)),)).lists is None


@settings(deadline=None)
@given(st.data())
def test_a_store_writes_and_reads_them_as_without_the_compiled_part(data: Any) -> None:
    """Also deleted entries, values that only Python writes, and damaged ones in the store."""
    serde, plain = data.draw(kinds())
    big = serde is FLAT and data.draw(st.booleans())
    values = data.draw(st.lists(st.none() | plain | (st.just((1 << 70,)) if big else plain), min_size=1, max_size=6))
    keys = [b"%d" % i for i in range(len(values))]
    bad = data.draw(st.none() | st.binary(max_size=12))
    spec: StoreSpec[Any] = StoreSpec("rows", "key_value", INT, serde)

    def run() -> Any:
        backend = MemoryBackend([spec])
        state = KeyValueStoreView(spec, backend)
        for ts, (key, value) in enumerate(zip(keys, values, strict=True)):
            state.put(key, value, ts)
        written = state.pending()
        assert len(written[1]) == len(keys)
        backend.commit([StoreWrites("rows", list(zip(*written[:2], strict=True)), b"p")])
        again = KeyValueStoreView(spec, backend)
        again.load([*keys, b"none"])
        entries = [again.entries[key] for key in [*keys, b"none"]]
        if bad is None:
            return written, shape(entries)
        backend.commit([StoreWrites("rows", [(keys[0], bad)], b"p")])
        return written, shape(entries), outcome(lambda: shape(KeyValueStoreView(spec, backend).get(keys[0])))

    with native.without():
        expected = run()
    assert run() == expected
