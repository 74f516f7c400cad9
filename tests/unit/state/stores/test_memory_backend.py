"""What the in-memory backend has beyond the contract: a disk to crash back to, and reset."""

from __future__ import annotations

import pytest

from penstock.state.stores.memory_backend import MemoryBackend
from penstock.state.stores.store import StoreWrites


def test_a_crash_goes_back_to_each_stores_own_flush() -> None:
    backend = MemoryBackend(["a", "b"], keep_flushed=True)
    backend.commit([StoreWrites("a", [(b"k", b"1")], b"p1"), StoreWrites("b", [(b"k", b"1")], b"q1")])
    backend.flush(["a"])
    backend.commit([StoreWrites("a", [(b"k", b"2")], b"p2"), StoreWrites("b", [(b"k", b"2")], b"q2")])
    backend.crash()
    assert (backend.get_many("a", [b"k"]), backend.position("a")) == ([b"1"], b"p1")
    assert (backend.get_many("b", [b"k"]), backend.position("b")) == ([None], None)


def test_what_is_written_after_a_crash_does_not_change_what_was_flushed() -> None:
    backend = MemoryBackend(["a"], keep_flushed=True)
    backend.commit([StoreWrites("a", [(b"k", b"1")], b"p1")])
    backend.flush()
    for _ in range(2):
        backend.commit([StoreWrites("a", [(b"k", None), (b"z", b"9")], b"p2")])
        backend.crash()
        assert list(backend.range("a", None, None)) == [(b"k", b"1")]


def test_a_backend_that_keeps_nothing_says_so_when_crashed() -> None:
    with pytest.raises(ValueError, match="keep_flushed=True"):
        MemoryBackend(["a"]).crash()


def test_reset_empties_one_store_for_good() -> None:
    backend = MemoryBackend(["a", "b"], keep_flushed=True)
    backend.commit([StoreWrites("a", [(b"k", b"1")], b"p1"), StoreWrites("b", [(b"k", b"1")], b"q1")])
    backend.flush()
    backend.reset("a")
    backend.crash()
    assert (backend.get_many("a", [b"k"]), backend.position("a")) == ([None], None)
    assert (backend.get_many("b", [b"k"]), backend.position("b")) == ([b"1"], b"q1")
