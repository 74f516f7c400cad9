"""What is read from state is what was counted, and lateness counts from a window's end or its last event."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import data
from benchmarks.yahoo_events import LATE_MS, SKEW_MS, draw
from benchmarks.yahoo_extended import STORE, build, changelog_entry, lateness_ms, stored
from penstock.state.rocksdb.rocksdb_backend import RocksDBBackend
from penstock.state.stores.store import StoreWrites
from penstock.streams.testing.test_driver import TopologyTestDriver


def test_views_are_counted_in_the_store_and_nothing_is_written() -> None:
    with TopologyTestDriver(build("events", "ads")) as driver:
        driver.pipe("ads", "ad", {"campaign_id": "c"}, 0)
        for time_ms, kind in ((1_000, "view"), (9_999, "view"), (10_000, "view"), (10_000, "click")):
            driver.pipe("events", "ad", {"event_type": kind}, time_ms)
        driver.commit()
        found = {(key, start): count for key, start, count in driver.store(STORE).all()}
    assert found == {("c", 0): 2, ("c", 10_000): 1}


def test_times_are_off_by_the_skew_and_few_are_late() -> None:
    moments = np.full(1_000_000, 10**12)
    ads, types, times = draw(np.random.default_rng(1), moments)
    off = times - 10**9
    assert off.max() == SKEW_MS and off.min() > -LATE_MS - SKEW_MS
    assert 0 < (off < -SKEW_MS).sum() < 50
    assert set(types.tolist()) == {0, 1, 2} and ads.max() == data.ADS - 1


def test_a_changelog_entry_is_read() -> None:
    key = b"c-1" + (20_000).to_bytes(8, "big") + bytes(4)
    assert changelog_entry(key, (7).to_bytes(8, "big")) == (("c-1", 20_000), 7)


def test_lateness_counts_from_the_end_or_the_last_event_and_only_of_final_counts() -> None:
    views = {("a", 0): 2, ("b", 0): 3, ("c", 0): 4}
    last_us = {("a", 0): 9_000_000, ("b", 0): 60_000_000, ("c", 0): 1}
    seen = {("a", 0): (2, 10_500_000), ("b", 0): (3, 60_250_000), ("c", 0): (3, 1)}
    assert sorted(lateness_ms(views, last_us, seen)) == [250.0, 500.0]


@pytest.mark.parametrize("tasks", [1, 2])
def test_counts_are_read_from_a_stopped_worker_s_folders(tmp_path: Path, tasks: int) -> None:
    for task in range(tasks):
        backend = RocksDBBackend(tmp_path / "app" / f"1_{task}" / "rocksdb", [STORE, "other"])
        key = (30_000).to_bytes(8, "big") + b"c%d" % task
        backend.commit([StoreWrites(STORE, [(key, bytes(8) + (5).to_bytes(8, "big"))], b"at")])
        backend.close()
    assert stored(tmp_path, "app") == {f"c{task}@30000": 5 for task in range(tasks)}
