"""Kernels over columns give what a plain loop gives, with and without the compiled part."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.state import native
from penstock.state.serdes.partitioner import partition_for
from penstock.topologies.columnar.kernels import (
    Coder,
    counted_so_far,
    grouped,
    highest,
    highest_so_far,
    packed,
    partitions_of,
    split_words,
    summed,
)
from penstock.topologies.operator_api.columns import BytesColumn

KEYS = st.lists(st.none() | st.binary(max_size=9) | st.sampled_from([b"a", b"b", b"\x00", b"\xff" * 40]), max_size=40)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-3, 3)
ROWS = st.lists(st.tuples(st.integers(0, 8), INT64), max_size=40)
SPACES = [
    " ",
    "  ",
    "\t",
    "\n",
    "\x0b",
    "\x0c",
    "\r",
    "\x1c",
    "\x1d",
    "\x1e",
    "\x1f",
    "\x85",
    "\xa0",
    "\u2003",
    "\u3000",
]
LETTERS = ["a", "B", "Z", "[", "@", "`", "{", "0", "\x00", "\x7f", "É", "İ", "Σ", "ß", "ǅ", "\u200b", "日", "😀"]
TEXTS = st.lists(
    st.none()
    | st.lists(st.sampled_from(["a", "B", "Za", " ", "\t"]), max_size=8).map(lambda parts: "".join(parts).encode())
    | st.lists(st.sampled_from(SPACES + LETTERS), max_size=8).map(lambda parts: "".join(parts).encode())
    | st.binary(max_size=4),
    max_size=12,
)


@pytest.fixture(params=["auto", "off"], autouse=True, scope="module")
def choice(request: pytest.FixtureRequest) -> Iterator[None]:
    """With the compiled part, where it is there, and without."""
    native.choose(request.param)
    yield
    native.choose("auto")


def column(values: list[bytes | None]) -> BytesColumn:
    """Of these values, out of the middle of a longer one; a null may have bytes."""
    filled = BytesColumn.of([b"before", *(b"null" if v is None else v for v in values), b"after"])
    part = filled.slice(1, len(values) + 1)
    nulls = np.array([v is None for v in values], np.bool_) if None in values else None
    return BytesColumn(part.data, part.offsets, nulls)


@given(st.lists(KEYS, max_size=3), st.sampled_from([0, 300, 1 << 20]))
def test_codes_follow_first_appearance(batches: list[list[bytes | None]], bytes_max: int) -> None:
    coder = Coder(bytes_max)
    for values in batches:
        found = coder.code(column(values))
        assert found.values == list(dict.fromkeys(values))
        assert found.to_list() == values


@given(KEYS, st.integers(1, 200))
def test_partitions_are_those_of_single_keys(keys: list[bytes | None], partitions: int) -> None:
    expected = [-1 if k is None else partition_for(k, partitions) for k in keys]
    assert partitions_of(column(keys), partitions).tolist() == expected


@given(KEYS, st.data())
def test_columns_of_bytes_list_and_take(values: list[bytes | None], data: st.DataObject) -> None:
    whole = column(values)
    assert whole.to_list() == values
    places = data.draw(st.lists(st.integers(0, len(values) - 1), max_size=9)) if values else []
    taken = whole.take(np.array(places, np.intp))
    assert taken.to_list() == [values[i] for i in places]
    assert BytesColumn.of(values).to_list() == values


@given(ROWS, st.sampled_from([9, 10_000, 1 << 40]), st.booleans())
def test_groups_are_those_of_a_loop(rows: list[tuple[int, int]], bound: int, wide: bool) -> None:
    spread = (bound - 1) // 8 if wide else 1
    codes = [code * spread for code, _ in rows]
    values = [value for _, value in rows]
    distinct = list(dict.fromkeys(codes))
    members = [[v for c, v in zip(codes, values, strict=True) if c == d] for d in distinct]
    so_far = [[v for c, v in zip(codes[: i + 1], values, strict=False) if c == codes[i]] for i in range(len(codes))]

    groups = grouped(np.array(codes, np.int64) if wide else np.array(codes, np.int32), bound)
    array = np.array(values, np.int64)
    assert groups.codes.tolist() == distinct
    assert groups.firsts.tolist() == [codes.index(d) for d in distinct]
    assert groups.numbers.tolist() == [distinct.index(c) for c in codes]
    assert highest(groups, array).tolist() == [max(m) for m in members]
    assert highest_so_far(groups, array).tolist() == [max(m) for m in so_far]
    assert counted_so_far(groups).tolist() == [len(m) for m in so_far]
    totals = [sum(m) for m in members]
    fits = all(-(1 << 63) <= t < 1 << 63 for t in totals)
    found = summed(groups, array)
    assert (None if found is None else found.tolist()) == (totals if fits else None)


@given(st.lists(TEXTS, max_size=3), st.booleans())
def test_words_are_those_of_split(batches: list[list[bytes | None]], lower: bool) -> None:
    for texts in batches:
        expected: list[list[str]] = []
        failed: list[tuple[int, str]] = []
        for row, data in enumerate(texts):
            try:
                text = "" if data is None else data.decode()
            except UnicodeDecodeError as exc:
                failed.append((row, repr(exc)))
                text = ""
            expected.append((text.lower() if lower else text).split())
        found = split_words(column(texts), lower=lower)
        distinct = found.distinct.to_list()
        assert found.counts.tolist() == [len(words) for words in expected]
        listed = [word.encode() for words in expected for word in words]
        assert [distinct[code] for code in found.codes.tolist()] == listed
        assert sorted(distinct) == sorted(set(listed))
        assert [(row, repr(exc)) for row, exc in found.failed] == failed


@given(st.lists(st.text(max_size=9)), st.booleans())
def test_texts_and_bytes_are_packed(texts: list[str], as_bytes: bool) -> None:
    data = [text.encode() for text in texts]
    assert packed(data if as_bytes else texts).to_list() == data
