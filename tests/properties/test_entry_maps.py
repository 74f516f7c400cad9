"""Both forms of a store's entries in memory are a dictionary, whatever they forget."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from penstock.state.native import compiled
from penstock.state.stores.entry_cache import EntryMap, WrittenEntries
from penstock.topologies.operator_api.columns import BytesColumn

MAKERS: list[Callable[[], EntryMap]] = [WrittenEntries]
if (made := getattr(compiled(), "EntryMap", None)) is not None:
    MAKERS.append(made)


def some_key(rng: random.Random, keys: int) -> bytes:
    number = rng.randrange(keys)
    return number.to_bytes(1 + number % 12, "big", signed=False) if number < 256 else b"long key %d" % number


def some_value(rng: random.Random) -> bytes | None:
    kind = rng.random()
    if kind < 0.2:
        return None
    return rng.randbytes(16) if kind < 0.8 else rng.randbytes(rng.choice([0, 1, 40, 3_000]))


def put(entries: EntryMap, keys: list[bytes], values: list[bytes | None]) -> None:
    """In columns where that can be done; with numbers before them if keys and values are long enough."""
    put_rows, put_stamped = getattr(entries, "put_rows", None), getattr(entries, "put_stamped", None)
    if put_rows is None or put_stamped is None:
        entries.put_many(keys, values)
    elif all(len(text or b"") >= 8 for text in (*keys, *values)):
        prefixes, names = cut(keys)
        times, texts = cut(values)
        put_stamped(prefixes, names.data, names.offsets, times, texts.data, texts.offsets)
    else:
        packed, stored = BytesColumn.of(keys), BytesColumn.of(values)
        put_rows(packed.data, packed.offsets, *stored.raw())


def cut(texts: Sequence[bytes | None]) -> tuple[Any, BytesColumn]:
    """The first 8 bytes as numbers, and the rest."""
    numbers = np.frombuffer(b"".join([(text or b"")[:8] for text in texts]), ">i8").astype(np.int64)
    return numbers, BytesColumn.of([(text or b"")[8:] for text in texts])


class Model:
    """What is stored, and what of it is written and not settled."""

    def __init__(self) -> None:
        self.stored: dict[bytes, bytes | None] = {}
        self.written: dict[bytes, bytes | None] = {}

    def check_reads(self, entries: EntryMap, keys: list[bytes]) -> list[bytes]:
        """Values are right where they are known; returns the keys that are not."""
        values, unknown = entries.get_many(keys)
        assert unknown == sorted(set(unknown))
        for i, (key, value) in enumerate(zip(keys, values, strict=True)):
            if i in unknown:
                assert value is None
                assert key not in self.written
            else:
                assert value == self.stored.get(key)
        if (find := getattr(entries, "find_rows", None)) is not None:
            data, ends, absent, places = find(b"".join(keys), np.cumsum([0, *map(len, keys)]), 2)
            expected = BytesColumn.of([None if v is None else v[2:] for v in values])
            nulls = None if expected.nulls is None else expected.nulls.tobytes()
            assert (data, ends, absent) == (expected.data, expected.offsets.tobytes(), nulls)
            assert np.frombuffer(places, np.int64).tolist() == unknown
        if not entries.forgot:
            assert all(self.stored.get(keys[i]) is None for i in unknown), "it knows all that is not absent"
        return [keys[i] for i in unknown]

    def check_written(self, entries: EntryMap, part: int) -> None:
        assert len(entries) == len(self.written)
        assert entries.sort_written() == len(self.written)
        found: list[tuple[bytes, bytes | None]] = []
        for start in range(0, len(self.written) + 1, part):
            found += zip(*entries.written_part(b"\x01", start, start + part), strict=True)
        assert found == [(b"\x01" + k, v) for k, v in sorted(self.written.items(), key=lambda item: item[0])]

    def check_between(self, entries: EntryMap, low: bytes, high: bytes | None, most: int, last: bool) -> None:
        inside = sorted(k for k in self.written if k >= low and (high is None or k < high))
        expected = inside[max(len(inside) - most, 0) :] if last else inside[:most]
        assert entries.written_between(low, high, most, last) == (expected, [self.written[k] for k in expected])


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("keys", [5, 300, 5_000])
def test_what_is_known_is_right_and_what_is_written_is_known(make: Callable[[], EntryMap], keys: int) -> None:
    for seed in range(25):
        rng = random.Random(seed)
        entries, model = make(), Model()
        for _ in range(120):
            some = [some_key(rng, keys) for _ in range(rng.randrange(40))]
            action = rng.random()
            if action < 0.35:
                values = [some_value(rng) for _ in some]
                if rng.random() < 0.5:
                    long = [(k, v) for k, v in zip(some, values, strict=True) if len(k) >= 8 and len(v or b"") >= 8]
                    some, values = [k for k, _ in long], [v for _, v in long]
                put(entries, some, values)
                model.stored.update(zip(some, values, strict=True))
                model.written.update(zip(some, values, strict=True))
            elif action < 0.65:
                unknown = model.check_reads(entries, some)
                entries.keep_many(unknown, [model.stored.get(k) for k in unknown])
            elif action < 0.75:
                entries.shrink(rng.choice([0, 1_000, 20_000, 100_000]))
            elif action < 0.8:
                bound = some_key(rng, keys)[:2]
                entries.forget_below(bound)
                model.written = {k: v for k, v in model.written.items() if k >= bound}
                model.stored = {k: v for k, v in model.stored.items() if k >= bound}
                unknown = model.check_reads(entries, some)
                assert {k for k in some if k < bound} <= set(unknown)
            elif action < 0.9:
                model.check_written(entries, rng.choice([1, 7, 10_000]))
                low, high = some_key(rng, keys), rng.choice([None, some_key(rng, keys)])
                model.check_between(entries, low, high, rng.choice([0, 3, 10_000]), rng.random() < 0.5)
            elif action < 0.98:
                entries.settle()
                model.written.clear()
            else:
                entries.clear()
                model = Model()
                assert entries.used_bytes < 10_000
            assert len(entries) == len(model.written)
            assert 0 <= entries.written_bytes <= entries.used_bytes
        model.check_written(entries, 100)


@pytest.mark.parametrize("make", MAKERS)
def test_bytes_are_counted_and_forgotten(make: Callable[[], EntryMap]) -> None:
    entries = make()
    keys = [b"%08d" % i for i in range(20_000)]
    for value in (b"a" * 16, b"b" * 16, b"c" * 30):
        for start in range(0, len(keys), 500):
            entries.put_many(keys[start : start + 500], [value] * 500)
    assert entries.written_bytes > 20_000 * 38
    entries.shrink(0)
    assert len(entries) == 20_000, "what is written stays"
    before = entries.used_bytes
    entries.settle()
    assert (len(entries), entries.written_bytes) == (0, 0)
    for _ in range(2):
        entries.shrink(before // 4)
    assert entries.used_bytes <= before // 4 + (1 << 20)


@pytest.mark.parametrize("make", MAKERS)
def test_what_is_asked_for_stays_where_reads_are_kept(make: Callable[[], EntryMap]) -> None:
    entries = make()
    hot = [b"hot %d" % i for i in range(100)]
    entries.keep_many(hot, [b"v" * 100] * 100)
    for batch in range(300):
        entries.get_many(hot)
        cold = [b"cold %d" % (batch * 100 + i) for i in range(100)]
        entries.keep_many(cold, [b"v" * 100] * 100)
        entries.shrink(400_000)
        assert entries.used_bytes <= 400_000
    assert entries.get_many(hot)[1] == (list(range(100)) if make is WrittenEntries else [])


@pytest.mark.parametrize("make", MAKERS)
def test_columns_of_different_lengths_are_refused(make: Callable[[], EntryMap]) -> None:
    with pytest.raises(ValueError, match=r"as many|argument"):
        make().put_many([b"k"], [])


@pytest.mark.parametrize("make", MAKERS)
def test_entries_that_only_the_database_holds_were_forgotten(make: Callable[[], EntryMap]) -> None:
    entries = make()
    keys = [b"%d" % n for n in range(50_000)]
    entries.put_many(keys, [b"v" * 50] * len(keys))
    entries.shrink(0)
    assert not entries.forgot, "what is written is kept"
    entries.settle()
    entries.shrink(0)
    assert entries.forgot
    entries.clear()
    assert not entries.forgot, "there is nothing"


@pytest.mark.skipif(len(MAKERS) == 1, reason="only the compiled form takes columns")
def test_columns_that_are_not_as_long_as_each_other_are_refused() -> None:
    entries: Any = MAKERS[-1]()
    keys, values = BytesColumn.of([b"a", b"b"]), BytesColumn.of([b"v"])
    with pytest.raises(ValueError, match="as many"):
        entries.put_rows(keys.data, keys.offsets, values.data, values.offsets)
    numbers = np.zeros(2, np.int64)
    for columns in (
        (numbers[:1], keys, numbers, keys),
        (numbers, keys, numbers, values),
        (numbers, keys, numbers[:1], keys),
    ):
        prefixes, names, times, texts = columns
        with pytest.raises(ValueError, match="one prefix, time and value per key"):
            entries.put_stamped(prefixes, names.data, names.offsets, times, texts.data, texts.offsets)


@pytest.mark.parametrize("make", MAKERS)
def test_values_of_any_type_that_holds_bytes(make: Callable[[], EntryMap]) -> None:
    entries, values = make(), [bytearray(b"one"), memoryview(b"two"), None]
    entries.put_many([b"a", b"b", b"c"], values)  # type: ignore[arg-type]  # what a user's serde may return
    entries.sort_written()
    keys, found = entries.written_part(b"", 0, 3)
    assert (keys, [None if v is None else bytes(v) for v in found]) == ([b"a", b"b", b"c"], [b"one", b"two", None])
    with pytest.raises(TypeError):
        entries.put_many([bytearray(b"a")], [b""])  # type: ignore[list-item]  # what can be changed is no key


def test_what_cannot_go_is_not_gone_through_again_and_again() -> None:
    """A store of which all is written, beside one that grew: each commit asks it for room."""
    if len(MAKERS) == 1:
        return
    entries = MAKERS[1]()
    count = 300_000
    keys = [b"%08d" % i for i in range(count)]
    entries.put_many(keys, [b"v" * 16] * count)
    began = time.process_time()
    entries.put_many(keys, [b"w" * 16] * count)
    pass_s = time.process_time() - began
    used = entries.used_bytes
    began = time.process_time()
    for _ in range(200):
        entries.shrink(used // 2)
    assert time.process_time() - began < 5 * pass_s
    assert entries.get_many(keys) == ([b"w" * 16] * count, [])
    entries.settle()
    entries.shrink(used // 2)
    assert entries.used_bytes <= used // 2


def test_what_can_go_by_and_by_goes() -> None:
    """Entries that stay written leave most of the map to others, which come and go."""
    if len(MAKERS) == 1:
        return
    entries = MAKERS[1]()
    written = [b"w%07d" % i for i in range(10_000)]
    entries.put_many(written, [b"x" * 16] * len(written))
    bound = 2 * entries.used_bytes
    for round_ in range(30):
        read = [b"r%d %d" % (round_, i) for i in range(5_000)]
        entries.keep_many(read, [b"y" * 16] * len(read))
        if entries.used_bytes > bound:
            entries.shrink(bound * 9 // 10)
        assert entries.used_bytes <= bound * 9 // 8
    assert entries.get_many(written) == ([b"x" * 16] * len(written), [])
