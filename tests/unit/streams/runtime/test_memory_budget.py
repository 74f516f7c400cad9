"""What the parts of a worker may take of a bound of the whole."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.state.native import without
from penstock.state.rocksdb.tuning import RocksDBOptions
from penstock.streams.runtime.adaptive_batching import TURN_MAX_BYTES
from penstock.streams.runtime.memory_budget import (
    LEAST_BYTES,
    OUTSIDE_BYTES,
    RECEIVED_MAX_BYTES,
    SENT_MAX_BYTES,
    memory_parts,
)
from penstock.streams.worker.settings import WorkerSettings
from penstock.streams.worker.worker import Worker
from penstock.topologies.dsl.builder import StreamsBuilder


def settings(**given: Any) -> WorkerSettings:
    return WorkerSettings(application_id="a", **given)


@given(
    st.integers(LEAST_BYTES, 1 << 40),
    st.booleans(),
    st.integers(1 << 20, 1 << 28),
    st.integers(1, 100_000),
)
def test_the_parts_are_never_more_than_the_whole(whole: int, compiled: bool, write_buffer: int, batch: int) -> None:
    parts = memory_parts(whole, compiled=compiled, write_buffer_bytes=write_buffer, batch_records=batch)
    assert (whole - OUTSIDE_BYTES) * 3 // 4 <= sum(parts[:6]) <= (whole - OUTSIDE_BYTES) * 7 // 8
    assert parts.write_buffer_bytes <= write_buffer and 1 <= parts.batch_records <= batch
    assert parts.received_bytes <= RECEIVED_MAX_BYTES and parts.sent_bytes <= SENT_MAX_BYTES
    RocksDBOptions(parts.entries_bytes, parts.block_cache_bytes, parts.write_buffer_bytes)  # every part can be used


def test_more_memory_makes_no_part_smaller() -> None:
    sizes = [LEAST_BYTES * step // 4 for step in range(4, 100)]
    for compiled in (True, False):
        found = [memory_parts(s, compiled=compiled, write_buffer_bytes=32 << 20, batch_records=20_000) for s in sizes]
        for part in zip(*found, strict=True):
            assert list(part) == sorted(part)


def test_without_a_bound_nothing_changes() -> None:
    free = settings()
    assert free.within_memory() is free
    assert free.queues_bytes() == (RECEIVED_MAX_BYTES, SENT_MAX_BYTES)
    assert free.turn_max_bytes() == TURN_MAX_BYTES


def test_every_bound_is_lowered_to_its_part() -> None:
    bound = settings(memory_max_bytes=LEAST_BYTES)
    parts = bound.memory_parts()
    assert parts is not None
    lowered = bound.within_memory()
    assert lowered.memory_limits() == {
        "decoded": parts.decoded_bytes,
        "entries": parts.entries_bytes,
        "blocks": parts.block_cache_bytes,
        "memtables": parts.write_buffer_bytes,
    }
    assert lowered.batch_max_records == parts.batch_records < bound.batch_max_records
    assert lowered.buffered_max_records == 2 * parts.batch_records
    assert lowered.queues_bytes() == (parts.received_bytes, parts.sent_bytes)
    assert lowered.turn_max_bytes() == parts.turn_bytes < TURN_MAX_BYTES // 4
    assert lowered.within_memory() == lowered


def test_lower_bounds_that_were_set_stay() -> None:
    few = RocksDBOptions(entries_bytes=1 << 20, block_cache_bytes=1 << 20, write_buffer_bytes=1 << 20)
    lowered = settings(
        memory_max_bytes=LEAST_BYTES, rocksdb=few, state_cache_max_bytes=1 << 20, batch_max_records=10
    ).within_memory()
    assert (lowered.rocksdb, lowered.state_cache_max_bytes, lowered.batch_max_records) == (few, 1 << 20, 10)
    many = settings(memory_max_bytes=LEAST_BYTES, state_cache_max_bytes=1 << 40).within_memory()
    assert many.state_cache_max_bytes < LEAST_BYTES


@pytest.mark.parametrize("way", ["off", "without"])
def test_without_the_compiled_part_decoded_entries_get_most(way: str) -> None:
    whole = 1 << 30
    if way == "off":
        parts = settings(memory_max_bytes=whole, native="off").memory_parts()
    else:
        with without():
            parts = settings(memory_max_bytes=whole).memory_parts()
    assert parts is not None
    assert parts.decoded_bytes == max(parts[:6])


def test_a_worker_keeps_to_its_parts() -> None:
    builder = StreamsBuilder("copy", key=bytes, value=bytes)
    builder.stream("in").to("out")
    bound = settings(memory_max_bytes=LEAST_BYTES)
    assert Worker(builder, bound).settings == bound.within_memory() != bound
