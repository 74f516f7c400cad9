"""The contract of a state backend, and of one that is kept in a folder."""

from __future__ import annotations

import random
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.state.errors import IncompatibleError, StateCorruptedError, TopologyError
from penstock.state.rocksdb.table_files import write_ssts
from penstock.state.serdes.serde import BYTES
from penstock.state.stores.durable_backend import DurableBackend
from penstock.state.stores.memory_backend import MemoryBackend
from penstock.state.stores.store import StateBackend, StoreSpec, StoreWrites

STORES: list[StoreSpec] = [StoreSpec(name, "key_value", BYTES, BYTES) for name in ("counts", "views")]
COMMITS = 60


def put(store: str, position: bytes, **entries: bytes | None) -> StoreWrites:
    """The writes of one commit to one store."""
    return StoreWrites(store, [(k.encode(), v) for k, v in entries.items()], position)


def contents(backend: StateBackend, store: str) -> tuple[bytes | None, list[tuple[bytes, bytes]]]:
    """The position and the entries of a store."""
    return backend.position(store), list(backend.range(store, None, None))


class Unknown:
    """Needs the stored values of some keys (``Unbased``)."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        self.values: dict[bytes, bytes | None] = {}
        self._keys = keys

    def unbased(self) -> list[bytes]:
        return [key for key in self._keys if key not in self.values]

    def base(self, stored: list[bytes | None]) -> None:
        self.values.update(zip(self.unbased(), stored, strict=True))

    def base_from(self, known: Any, whole: bool) -> None:
        keys = self.unbased()
        values, unknown = known.get_many(keys)
        self.values.update((keys[i], values[i]) for i in range(len(keys)) if whole or i not in unknown)


class StateBackendContract(ABC):
    """The contract of every ``StateBackend``. Subclass it, and say how one is opened::

    class TestMyBackend(StateBackendContract):
        def open(self, folder, stores):
            return MyBackend(folder, stores)
    """

    @abstractmethod
    def open(self, folder: Path, stores: Sequence[StoreSpec]) -> StateBackend:
        """Open a backend with these stores. ``folder`` is its own, and need not exist yet."""

    @pytest.fixture
    def backend(self, tmp_path: Path) -> Iterator[StateBackend]:
        """An empty backend with the stores ``counts`` and ``views``."""
        made = self.open(tmp_path / "stores", STORES)
        yield made
        made.close()

    def test_a_store_never_written_is_empty_and_has_no_position(self, backend: StateBackend) -> None:
        assert backend.get_many("counts", [b"a"]) == [None]
        assert list(backend.range("counts", None, None)) == []
        assert backend.position("counts") is None

    def test_values_come_in_the_order_of_the_keys_asked(self, backend: StateBackend) -> None:
        backend.commit([put("counts", b"p", a=b"1", b=b"2", c=b"")])
        assert backend.get_many("counts", [b"c", b"x", b"a", b"b", b"a"]) == [b"", None, b"1", b"2", b"1"]
        assert backend.get_many("counts", []) == []

    def test_a_commit_changes_only_the_stores_that_it_names(self, backend: StateBackend) -> None:
        backend.commit([put("counts", b"p1", a=b"1"), put("views", b"q1", a=b"9")])
        backend.commit([put("counts", b"p2", a=None)])
        assert backend.get_many("counts", [b"a"]) == [None]
        assert backend.get_many("views", [b"a"]) == [b"9"]
        assert (backend.position("counts"), backend.position("views")) == (b"p2", b"q1")

    def test_a_commit_of_a_position_alone_moves_it(self, backend: StateBackend) -> None:
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
        self, backend: StateBackend, low: bytes | None, high: bytes | None, expected: list[bytes]
    ) -> None:
        keys = [b"b", b"\xff\xff", b"a\x00", b"", b"a", b"\x00"]
        backend.commit([StoreWrites("counts", [(k, b"v" + k) for k in keys], b"p")])
        assert list(backend.range("counts", low, high)) == [(k, b"v" + k) for k in expected]
        assert list(backend.range("counts", low, high, reverse=True)) == [(k, b"v" + k) for k in expected[::-1]]

    def test_drop_below_comes_after_the_puts_and_spares_its_bound(self, backend: StateBackend) -> None:
        backend.commit([put("views", b"p1", a=b"1", c=b"3", e=b"5")])
        backend.commit([StoreWrites("views", [(b"b", b"2"), (b"d", b"4")], b"p2", drop_below=b"d")])
        assert list(backend.range("views", None, None)) == [(b"d", b"4"), (b"e", b"5")]
        backend.commit([put("views", b"p3", b=b"again")])
        assert backend.get_many("views", [b"a", b"b", b"c"]) == [None, b"again", None]
        backend.commit([StoreWrites("views", [], b"p4", drop_below=b"d")])
        assert [k for k, _ in backend.range("views", None, None)] == [b"d", b"e"]
        assert backend.position("views") == b"p4"

    def test_drop_below_reaches_what_the_same_commit_put_below_everything(self, backend: StateBackend) -> None:
        backend.commit([put("views", b"p1", m=b"1", z=b"1")])
        backend.commit([StoreWrites("views", [(b"a", b"late"), (b"y", b"1")], b"p2", drop_below=b"n")])
        assert [k for k, _ in backend.range("views", None, None)] == [b"y", b"z"]
        backend.commit([put("views", b"p3", b=b"late"), StoreWrites("views", [], b"p4", drop_below=b"z")])
        assert [k for k, _ in backend.range("views", None, None)] == [b"z"]

    def test_a_key_written_twice_in_one_commit_keeps_the_last_value(self, backend: StateBackend) -> None:
        backend.commit([StoreWrites("counts", [(b"a", b"1"), (b"a", None), (b"b", None), (b"b", b"2")], b"p")])
        assert list(backend.range("counts", None, None)) == [(b"b", b"2")]

    def test_a_deleted_key_that_returns_is_in_the_range_once(self, backend: StateBackend) -> None:
        backend.commit([put("counts", b"1", a=b"1", b=b"1")])
        assert len(list(backend.range("counts", None, None))) == 2
        backend.commit([put("counts", b"2", a=None)])
        backend.commit([put("counts", b"3", a=b"3")])
        assert list(backend.range("counts", None, None)) == [(b"a", b"3"), (b"b", b"1")]

    def test_an_unknown_store_refuses_the_whole_commit(self, backend: StateBackend) -> None:
        with pytest.raises(TopologyError, match=r"'nobody'.*declare it"):
            backend.commit([put("counts", b"p", a=b"1"), put("nobody", b"p", a=b"1")])
        assert backend.get_many("counts", [b"a"]) == [None]
        assert backend.position("counts") is None
        for read in (lambda: backend.get_many("nobody", [b"a"]), lambda: backend.range("nobody", None, None)):
            with pytest.raises(TopologyError, match="'nobody'"):
                read()

    def test_size_grows_with_what_is_written(self, backend: StateBackend) -> None:
        before = backend.size_bytes("counts")
        backend.commit([StoreWrites("counts", [(b"%06d" % i, b"v" * 200) for i in range(5000)], b"p")])
        backend.flush(["counts"])
        assert backend.size_bytes("counts") > before

    def test_close_twice_is_closing_once(self, backend: StateBackend) -> None:
        backend.close()
        backend.close()

    def test_a_new_backend_has_met_no_damage(self, backend: StateBackend) -> None:
        assert backend.damaged is None
        assert backend.keeps_reads in (True, False)

    def test_reset_makes_a_store_new_and_leaves_the_others(self, backend: StateBackend) -> None:
        backend.commit([put("counts", b"p", a=b"1"), put("views", b"q", a=b"1")])
        backend.reset("counts")
        assert contents(backend, "counts") == (None, [])
        assert contents(backend, "views") == (b"q", [(b"a", b"1")])
        backend.commit([put("counts", b"p2", b=b"2")])
        assert contents(backend, "counts") == (b"p2", [(b"b", b"2")])

    def test_it_is_the_reference_model_under_random_commits(self, backend: StateBackend) -> None:
        seed = random.randrange(1 << 32)
        rng, model = random.Random(seed), MemoryBackend(STORES)
        keys = [b"", b"\x00", b"\xff", b"\xff\xff", b"position", *(b"%c%c" % (rng.choice(b"ab"), i) for i in range(40))]
        try:
            for number in range(COMMITS):
                writes = [
                    random_writes(rng, keys, store.name, b"%d" % number) for store in STORES if rng.random() < 0.7
                ]
                for either in (backend, model):
                    either.commit(writes)
                if rng.random() < 0.1:
                    backend.flush(None if rng.random() < 0.5 else ["views"])
                for store in ("counts", "views"):
                    check_reads(rng, keys, store, backend, model)
        except BaseException as exc:
            exc.add_note(f"with random.Random({seed})")
            raise


def random_writes(rng: random.Random, keys: Sequence[bytes], store: str, position: bytes) -> StoreWrites:
    """Some puts and deletions, now and then a bound below which all is dropped."""
    puts = [(rng.choice(keys), None if rng.random() < 0.3 else rng.randbytes(5)) for _ in range(rng.randrange(12))]
    return StoreWrites(store, puts, position, rng.choice(keys) if rng.random() < 0.15 else None)


def check_reads(
    rng: random.Random, keys: Sequence[bytes], store: str, backend: StateBackend, model: StateBackend
) -> None:
    """Every kind of read, of both."""
    low, high = (rng.choice([None, *keys]) for _ in range(2))
    for reverse in (False, True):
        assert list(backend.range(store, low, high, reverse=reverse)) == list(
            model.range(store, low, high, reverse=reverse)
        )
    assert backend.position(store) == model.position(store)
    assert backend.get_many(store, keys) == model.get_many(store, keys)
    assert not backend.is_empty(store) or model.is_empty(store)
    asked = Unknown(keys)
    backend.base(store, asked)
    assert list(asked.values.values()) == model.get_many(store, keys)
    skip = rng.randrange(2)
    packed = np.fromiter(accumulate(map(len, keys), initial=0), dtype=np.int64)
    found = backend.get_packed(store, b"".join(keys), packed, skip)
    if found is not None:
        assert found == model.get_packed(store, b"".join(keys), packed, skip)


class DurableBackendContract(StateBackendContract):
    """The contract of a backend that a worker opens for its tasks (``Worker(…, open_backend=…)``)."""

    @abstractmethod
    def open(self, folder: Path, stores: Sequence[StoreSpec]) -> DurableBackend:
        """Open a backend with these stores. ``folder`` is its own, and need not exist yet."""

    def test_closed_and_opened_it_has_every_commit(self, tmp_path: Path) -> None:
        backend = self.open(tmp_path / "db", STORES)
        backend.commit([put("counts", b"p1", a=b"1", b=b"2")])
        backend.commit([put("counts", b"p2", a=None), put("views", b"q2", z=b"9")])
        backend.close()
        again = self.open(tmp_path / "db", STORES)
        assert contents(again, "counts") == (b"p2", [(b"b", b"2")])
        assert contents(again, "views") == (b"q2", [(b"z", b"9")])
        again.close()

    def test_what_was_flushed_survives_a_crash_of_the_machine(self, tmp_path: Path) -> None:
        backend = self.open(tmp_path / "db", STORES)
        backend.commit([put("counts", b"p1", a=b"1"), put("views", b"q1", a=b"1")])
        backend.flush(["counts"])
        backend.commit([put("counts", b"p2", a=b"2")])
        shutil.copytree(tmp_path / "db", tmp_path / "as a crash leaves it")
        backend.close()
        left = self.open(tmp_path / "as a crash leaves it", STORES)
        stands = {b"p1": b"1", b"p2": b"2"}
        assert contents(left, "counts") in [(p, [(b"a", value)]) for p, value in stands.items()]
        assert contents(left, "views") in [(None, []), (b"q1", [(b"a", b"1")])]
        left.close()

    def test_a_store_added_later_starts_empty(self, tmp_path: Path) -> None:
        backend = self.open(tmp_path / "db", STORES[:1])
        backend.commit([put("counts", b"p1", a=b"1")])
        backend.close()
        again = self.open(tmp_path / "db", STORES)
        assert (again.position("counts"), again.position("views")) == (b"p1", None)
        again.close()

    def test_a_store_that_is_not_declared_is_refused(self, tmp_path: Path) -> None:
        backend = self.open(tmp_path / "db", STORES)
        backend.commit([put("views", b"q1", a=b"1")])
        backend.close()
        with pytest.raises(IncompatibleError, match="views"):
            self.open(tmp_path / "db", STORES[:1])

    def test_ingest_takes_table_files_into_an_empty_store(self, tmp_path: Path) -> None:
        entries = [(b"%04d" % i, b"v%d" % i) for i in range(500)]
        files = write_ssts(tmp_path, "made", entries, position=b"stands at 500", file_bytes=1000)
        paths = [tmp_path / f.name for f in files]
        assert len(paths) > 1
        backend = self.open(tmp_path / "db", STORES)
        backend.ingest("counts", paths)
        assert contents(backend, "counts") == (b"stands at 500", entries)
        assert contents(backend, "views") == (None, [])
        with pytest.raises(ValueError, match="not empty"):
            backend.ingest("counts", paths)
        backend.commit([StoreWrites("counts", [(entries[0][0], None)], b"p")])
        assert contents(backend, "counts") == (b"p", entries[1:])
        backend.close()

    def test_table_files_that_are_damaged_leave_the_store_empty(self, tmp_path: Path) -> None:
        entries = [(b"%04d" % i, b"v%d" % i) for i in range(500)]
        (file,) = write_ssts(tmp_path, "made", entries, position=b"p")
        path = tmp_path / file.name
        path.write_bytes(path.read_bytes()[:-100])
        backend = self.open(tmp_path / "db", STORES)
        with pytest.raises(StateCorruptedError):
            backend.ingest("counts", [path])
        assert contents(backend, "counts") == (None, [])
        backend.close()
