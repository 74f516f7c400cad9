"""What memory the stores take where it is not set."""

from __future__ import annotations

import pytest

from penstock.state.errors import SettingsError
from penstock.state.native import compiled, without
from penstock.state.rocksdb import tuning
from penstock.state.rocksdb.tuning import DEFAULT_BYTES_MAX, LEAST, Limits, RocksDBOptions, SharedBound

MACHINES = {"small": 0, "common": 1 << 30, "huge": 1 << 45}


@pytest.fixture(params=MACHINES)
def share(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    found = MACHINES[request.param]
    monkeypatch.setattr(tuning, "own_share_bytes", lambda: found)
    return found


def bounded(number: int, least: int) -> int:
    return min(max(number, least), DEFAULT_BYTES_MAX)


def test_with_the_compiled_part_entries_get_the_machines_share(share: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "compiled", lambda: tuning)
    expected = Limits(bounded(share, LEAST.entries_bytes), bounded(share // 8, LEAST.block_cache_bytes))
    assert RocksDBOptions().limits() == expected


def test_without_it_blocks_do(share: int) -> None:
    with without():
        assert compiled() is None
        expected = Limits(LEAST.entries_bytes, bounded(share // 2, LEAST.block_cache_bytes))
        assert RocksDBOptions().limits() == expected


def test_what_is_set_wins(share: int) -> None:
    assert RocksDBOptions(entries_bytes=1 << 20, block_cache_bytes=2 << 20).limits() == Limits(1 << 20, 2 << 20)
    assert RocksDBOptions(entries_bytes=1 << 40).limits().entries_bytes == 1 << 40
    assert RocksDBOptions(entries_bytes=1 << 20).limits().block_cache_bytes >= LEAST.block_cache_bytes
    assert RocksDBOptions(**LEAST._asdict()).limits() == LEAST


@pytest.mark.parametrize("name", ["entries_bytes", "block_cache_bytes"])
@pytest.mark.parametrize("wrong", [-1, 1, (1 << 20) - 1])
def test_nothing_but_zero_is_less_than_the_floor(name: str, wrong: int) -> None:
    with pytest.raises(SettingsError, match=name):
        RocksDBOptions(**{name: wrong})


def test_zero_is_no_size_of_the_others() -> None:
    with pytest.raises(SettingsError, match="write_buffer_bytes"):
        RocksDBOptions(write_buffer_bytes=0)


def test_a_bound_is_shared_evenly_and_so_is_less_of_it() -> None:
    bound = SharedBound(1200)
    assert bound.part_bytes() == 1200
    for _ in range(3):
        bound.join()
    assert (bound.part_bytes(), bound.part_bytes(600), bound.part_bytes(5000)) == (400, 200, 400)
    bound.leave()
    assert bound.part_bytes() == 600
