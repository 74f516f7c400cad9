"""The contract of a state backend, held against both of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.state.errors import TopologyError
from penstock.state.rocksdb.rocksdb_backend import RocksDBBackend
from penstock.state.serdes.serde import BYTES
from penstock.state.stores.memory_backend import MemoryBackend
from penstock.state.stores.store import StateBackend, StoreSpec, StoreWrites

STORES: list[StoreSpec | str] = [StoreSpec("counts", "key_value", BYTES, BYTES), "views"]


@pytest.fixture(params=["memory", "rocksdb"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StateBackend]:
    made: StateBackend = (
        MemoryBackend(STORES) if request.param == "memory" else RocksDBBackend(tmp_path / "rocksdb", STORES)
    )
    yield made
    made.close()


def put(store: str, position: bytes, **entries: bytes | None) -> StoreWrites:
    return StoreWrites(store, [(k.encode(), v) for k, v in entries.items()], position)


def test_a_store_never_written_is_empty_and_has_no_position(backend: StateBackend) -> None:
    assert backend.get_many("counts", [b"a"]) == [None]
    assert list(backend.range("counts", None, None)) == []
    assert backend.position("counts") is None


def test_values_come_in_the_order_of_the_keys_asked(backend: StateBackend) -> None:
    backend.commit([put("counts", b"p", a=b"1", b=b"2", c=b"")])
    assert backend.get_many("counts", [b"c", b"x", b"a", b"b", b"a"]) == [b"", None, b"1", b"2", b"1"]
    assert backend.get_many("counts", []) == []


def test_a_commit_changes_only_the_stores_that_it_names(backend: StateBackend) -> None:
    backend.commit([put("counts", b"p1", a=b"1"), put("views", b"q1", a=b"9")])
    backend.commit([put("counts", b"p2", a=None)])
    assert backend.get_many("counts", [b"a"]) == [None]
    assert backend.get_many("views", [b"a"]) == [b"9"]
    assert (backend.position("counts"), backend.position("views")) == (b"p2", b"q1")


def test_a_commit_of_a_position_alone_moves_it(backend: StateBackend) -> None:
    backend.commit([put("counts", b"p1", a=b"1")])
    backend.commit([StoreWrites("counts", [], b"p2")])
    assert backend.position("counts") == b"p2"
    assert list(backend.range("counts", None, None)) == [(b"a", b"1")]


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (None, None, [b"", b"\x00", b"a", b"a\x00", b"b", b"\xff\xff"]),
        (b"a", b"b", [b"a", b"a\x00"]),
        (b"a\x00", None, [b"a\x00", b"b", b"\xff\xff"]),
        (None, b"a", [b"", b"\x00"]),
        (b"b", b"a", []),
        (b"a", b"a", []),
        (b"c", b"d", []),
    ],
)
def test_ranges_include_low_exclude_high_in_unsigned_byte_order(
    backend: StateBackend, low: bytes | None, high: bytes | None, expected: list[bytes]
) -> None:
    keys = [b"b", b"\xff\xff", b"a\x00", b"", b"a", b"\x00"]
    backend.commit([StoreWrites("counts", [(k, b"v" + k) for k in keys], b"p")])
    assert list(backend.range("counts", low, high)) == [(k, b"v" + k) for k in expected]
    assert list(backend.range("counts", low, high, reverse=True)) == [(k, b"v" + k) for k in expected[::-1]]


def test_drop_below_comes_after_the_puts_and_spares_its_bound(backend: StateBackend) -> None:
    backend.commit([put("views", b"p1", a=b"1", c=b"3", e=b"5")])
    backend.commit([StoreWrites("views", [(b"b", b"2"), (b"d", b"4")], b"p2", drop_below=b"d")])
    assert list(backend.range("views", None, None)) == [(b"d", b"4"), (b"e", b"5")]
    backend.commit([put("views", b"p3", b=b"again")])
    assert backend.get_many("views", [b"a", b"b", b"c"]) == [None, b"again", None]
    backend.commit([StoreWrites("views", [], b"p4", drop_below=b"d")])
    assert [k for k, _ in backend.range("views", None, None)] == [b"d", b"e"]
    assert backend.position("views") == b"p4"


def test_drop_below_reaches_what_the_same_commit_put_below_everything(backend: StateBackend) -> None:
    backend.commit([put("views", b"p1", m=b"1", z=b"1")])
    backend.commit([StoreWrites("views", [(b"a", b"late"), (b"y", b"1")], b"p2", drop_below=b"n")])
    assert [k for k, _ in backend.range("views", None, None)] == [b"y", b"z"]
    backend.commit([put("views", b"p3", b=b"late"), StoreWrites("views", [], b"p4", drop_below=b"z")])
    assert [k for k, _ in backend.range("views", None, None)] == [b"z"]


def test_a_key_written_twice_in_one_commit_keeps_the_last_value(backend: StateBackend) -> None:
    backend.commit([StoreWrites("counts", [(b"a", b"1"), (b"a", None), (b"b", None), (b"b", b"2")], b"p")])
    assert list(backend.range("counts", None, None)) == [(b"b", b"2")]


def test_a_deleted_key_that_returns_is_in_the_range_once(backend: StateBackend) -> None:
    backend.commit([put("counts", b"1", a=b"1", b=b"1")])
    assert len(list(backend.range("counts", None, None))) == 2
    backend.commit([put("counts", b"2", a=None)])
    backend.commit([put("counts", b"3", a=b"3")])
    assert list(backend.range("counts", None, None)) == [(b"a", b"3"), (b"b", b"1")]


def test_an_unknown_store_refuses_the_whole_commit(backend: StateBackend) -> None:
    with pytest.raises(TopologyError, match=r"'nobody'.*declare it"):
        backend.commit([put("counts", b"p", a=b"1"), put("nobody", b"p", a=b"1")])
    assert backend.get_many("counts", [b"a"]) == [None]
    assert backend.position("counts") is None
    for read in (lambda: backend.get_many("nobody", [b"a"]), lambda: backend.range("nobody", None, None)):
        with pytest.raises(TopologyError, match="'nobody'"):
            read()


def test_size_grows_with_what_is_written(backend: StateBackend) -> None:
    before = backend.size_bytes("counts")
    backend.commit([StoreWrites("counts", [(b"%06d" % i, b"v" * 200) for i in range(5000)], b"p")])
    backend.flush(["counts"])
    assert backend.size_bytes("counts") > before


def test_close_twice_is_closing_once(backend: StateBackend) -> None:
    backend.close()
    backend.close()
