"""Columns of which one value, or what lies around them, is large: an answer or an error, never the end of the process."""

from __future__ import annotations

import mmap
import resource
from collections.abc import Iterator

import msgspec
import numpy as np
import pytest

from penstock.state import native
from penstock.topologies.columnar import kernels
from penstock.topologies.columnar.json_writing import DictOf, written_json
from penstock.topologies.operator_api.columns import BytesColumn, CodedColumn, Column, NumberColumn, StructColumn

ROOM_BYTES = 1 << 30


@pytest.fixture
def little_room() -> Iterator[None]:
    """Only so much more memory can be had."""
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM_BYTES, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.usefixtures("little_room")
def test_a_first_record_much_longer_than_the_others() -> None:
    count = 10_000
    texts = CodedColumn(np.array([0] + [1] * (count - 1), np.int32), ["x" * 1_000_000, "y"])
    written = written_json(StructColumn({"t": texts}, DictOf(["t"])), msgspec.json.encode)
    assert written is not None
    listed = written.to_list() if isinstance(written, Column) else written
    assert [len(text or b"") for text in listed] == [1_000_008] + [9] * (count - 1)


@pytest.mark.usefixtures("little_room")
def test_records_that_have_no_room_together() -> None:
    texts = CodedColumn(np.zeros(5_000, np.int32), ["x" * 1_000_000])
    assert written_json(StructColumn({"t": texts}, DictOf(["t"])), msgspec.json.encode) is None


@pytest.mark.usefixtures("little_room")
def test_places_that_have_no_room_together() -> None:
    column = BytesColumn.of([b"x" * 1_000_000])
    with pytest.raises(MemoryError):
        column.take(np.zeros(5_000, np.intp))


@pytest.mark.parametrize("kernel", ["highest_rows", "count_rows_so_far", "sum_rows"])
def test_more_groups_than_memory(kernel: str) -> None:
    compiled = native.compiled()
    if compiled is None:
        return
    nothing = np.zeros(0, np.int64)
    more = {"highest_rows": (nothing, False), "sum_rows": (nothing,), "count_rows_so_far": ()}[kernel]
    for count in (1 << 45, 1 << 62):
        with pytest.raises(MemoryError):
            getattr(compiled, kernel)(nothing, count, *more)


def test_a_count_that_has_no_columns() -> None:
    compiled = native.compiled()
    if compiled is None:
        return
    for count in (1 << 45, 1 << 62, (1 << 64) - 1):
        with pytest.raises(MemoryError):
            compiled.write_records([], [], count)


def test_a_part_of_much_data_is_split_at_its_white_space() -> None:
    """What the column has no row of counts for nothing."""
    with mmap.mmap(-1, (1 << 31) + 100) as data:
        data[-9:] = b"two words"
        column = BytesColumn(memoryview(data), np.array([len(data) - 9, len(data)], np.int64))
        found = kernels.split_words(column, lower=False)
        assert found.counts.tolist() == [2]
        assert found.distinct.to_list() == [b"two", b"words"]
        del column, found


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview])
def test_values_of_any_type_that_holds_bytes(make: type) -> None:
    values = [make(b"ab"), None, make(b""), make(b"c")]
    found = BytesColumn.of(values)
    with native.without():
        expected = BytesColumn.of(values)
    assert found.to_list() == expected.to_list() == [b"ab", None, b"", b"c"]


def test_numbers_are_written_in_full() -> None:
    numbers = np.array([0, 9, -9, (1 << 63) - 1, -(1 << 63)], np.int64)
    written = written_json(StructColumn({"n": NumberColumn(numbers)}, DictOf(["n"])), msgspec.json.encode)
    assert written is not None
    listed = written.to_list() if isinstance(written, Column) else written
    assert listed == [b'{"n":%d}' % n for n in numbers.tolist()]
