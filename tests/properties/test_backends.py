"""RocksDB is the memory backend: under random commits, reads, reopenings and crashes, and through table files."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.state.errors import StateCorruptedError
from penstock.state.rocksdb import rocksdb_backend
from penstock.state.rocksdb.rocksdb_backend import RocksDBBackend
from penstock.state.rocksdb.table_files import write_ssts
from penstock.state.rocksdb.tuning import RocksDBOptions, SharedBound
from penstock.state.stores.entry_cache import EntryMap
from penstock.state.stores.memory_backend import MemoryBackend
from penstock.state.stores.store import PackedPuts, StateBackend, StoreWrites
from penstock.topologies.operator_api.columns import BytesColumn

STORES = ["a", "b"]
KEYS = st.binary(max_size=3) | st.sampled_from([b"\x00", b"\x01", b"\xff", b"\xff\xff", b"position"])
STORE = st.sampled_from(STORES)
BOUND = st.none() | KEYS
PUTS = st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=12)), max_size=12)
WRITES = st.tuples(STORE, PUTS, BOUND)


def contents(backend: StateBackend, store: str) -> tuple[bytes | None, list[tuple[bytes, bytes]]]:
    return backend.position(store), list(backend.range(store, None, None))


ALL_KEYS = [b"", *(bytes([i]) for i in range(256)), b"\xff\xff", b"position"]


def packed(puts: list[tuple[bytes, bytes | None]]) -> PackedPuts:
    keys, values = BytesColumn.of([key for key, _ in puts]), BytesColumn.of([value for _, value in puts])
    return PackedPuts(keys.data, keys.offsets, *values.raw())


class Asking:
    """Wants to know what a store holds."""

    def __init__(self, keys: list[bytes]) -> None:
        self.told: dict[bytes, bytes | None] = {}
        self._keys = keys

    def unbased(self) -> list[bytes]:
        return [key for key in self._keys if key not in self.told]

    def base(self, stored: list[bytes | None]) -> None:
        self.told.update(zip(self.unbased(), stored, strict=True))

    def base_from(self, known: EntryMap, whole: bool) -> None:
        keys = self.unbased()
        values, unknown = known.get_many(keys)
        self.told.update((keys[i], values[i]) for i in range(len(keys)) if whole or i not in unknown)


class Backends(RuleBasedStateMachine):
    """The same calls on both; RocksDB is also closed, opened, compacted, written out and killed, which must not show."""

    @initialize(
        file_entries=st.sampled_from([1, 4, 2_000]),
        buffer_bytes=st.sampled_from([300, 1_500, 1 << 20]),
        first_part=st.sampled_from([1, 2, 32]),
        last_part=st.sampled_from([1, 5, 4_096]),
    )
    def open(self, file_entries: int, buffer_bytes: int, first_part: int, last_part: int) -> None:
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(rocksdb_backend, "FILE_ENTRIES_MIN", file_entries)
        self.patch.setattr(rocksdb_backend, "FIRST_PART", first_part)
        self.patch.setattr(rocksdb_backend, "LAST_PART", last_part)
        self.bound = SharedBound(buffer_bytes)
        self.patch.setattr(rocksdb_backend, "shared_bound", lambda total: self.bound)
        self.path = Path(tempfile.mkdtemp(prefix="penstock-backends-"))
        self.model = MemoryBackend(STORES, keep_flushed=True)
        self.real = RocksDBBackend(self.path / "rocksdb", STORES)
        self.commits = 0
        self.unflushed: dict[str, list[StoreWrites]] = {store: [] for store in STORES}
        """What a crash may undo, from behind."""

    def teardown(self) -> None:
        self.real.close()
        shutil.rmtree(self.path)
        self.patch.undo()

    @rule(writes=st.lists(WRITES, max_size=3), in_columns=st.booleans())
    def commit(
        self, writes: list[tuple[str, list[tuple[bytes, bytes | None]], bytes | None]], in_columns: bool
    ) -> None:
        self.commits += 1
        position = b"p%d" % self.commits
        both = [
            StoreWrites(store, packed(puts) if in_columns else puts, position, below) for store, puts, below in writes
        ]
        self.model.commit(both)
        self.real.commit(both)
        for write in both:
            self.unflushed[write.store].append(write)

    @rule(store=STORE, keys=st.lists(KEYS, max_size=8))
    def get_many(self, store: str, keys: list[bytes]) -> None:
        assert self.real.get_many(store, keys) == self.model.get_many(store, keys)

    @rule(store=STORE)
    def is_empty(self, store: str) -> None:
        assert not self.real.is_empty(store) or self.model.is_empty(store)

    @rule(store=STORE, keys=st.lists(KEYS, max_size=8, unique=True))
    def base(self, store: str, keys: list[bytes]) -> None:
        real, model = Asking(keys), Asking(keys)
        self.real.base(store, real)
        self.model.base(store, model)
        assert real.told == model.told

    @rule(store=STORE, keys=st.lists(KEYS, max_size=8), skip=st.sampled_from([0, 1]))
    def get_packed(self, store: str, keys: list[bytes], skip: int) -> None:
        data, ends = b"".join(keys), np.cumsum([0, *map(len, keys)])
        found = self.real.get_packed(store, data, ends, skip)
        if found is not None:
            assert found == self.model.get_packed(store, data, ends, skip)

    @rule(store=STORE, low=BOUND, high=BOUND, reverse=st.booleans())
    def range(self, store: str, low: bytes | None, high: bytes | None, reverse: bool) -> None:
        found = list(self.real.range(store, low, high, reverse=reverse))
        assert found == list(self.model.range(store, low, high, reverse=reverse))

    @rule(stores=st.none() | st.lists(STORE, unique=True))
    def flush(self, stores: list[str] | None) -> None:
        self.model.flush(stores)
        self.real.flush(stores)
        for store in STORES if stores is None else stores:
            self.unflushed[store].clear()

    @rule(store=STORE)
    def reset(self, store: str) -> None:
        self.model.reset(store)
        self.real.reset(store)
        self.unflushed[store].clear()

    @rule()
    def reopen(self) -> None:
        self.flush(None)
        self.real.close()
        self.real = RocksDBBackend(self.path / "rocksdb", STORES)

    @precondition(lambda self: self.commits)
    @rule()
    def crash(self) -> None:
        """The files as they are on disk at this moment are what a process that is killed leaves behind: each store at one
        of its commits, the last one that was flushed or a later one."""
        crashed = self.path / "crashed"
        self.real._db.cancel_all_background(True)  # else a compaction may remove files while they are copied
        shutil.copytree(self.path / "rocksdb", crashed)
        with suppress(StateCorruptedError):  # a flush when all work in the background has ended
            self.real.close()
        shutil.rmtree(self.path / "rocksdb")
        crashed.rename(self.path / "rocksdb")
        self.model.crash()
        self.real = RocksDBBackend(self.path / "rocksdb", STORES)
        for store in STORES:
            stands = self.real.position(store)
            if stands != self.model.position(store):
                reached = [write.position for write in self.unflushed[store]]
                assert stands is not None
                kept = len(reached) - reached[::-1].index(stands)
                self.model.commit(self.unflushed[store][:kept])
        self.flush(None)

    @rule(store=STORE)
    def through_table_files(self, store: str) -> None:
        position, entries = contents(self.real, store)
        if position is None:
            return
        folder = Path(tempfile.mkdtemp(dir=self.path))
        files = write_ssts(folder, "s", entries, position=position, file_bytes=20)
        self.real.reset(store)
        self.real.ingest(store, [folder / f.name for f in files], move=True)
        self.model.flush([store])  # an ingested file is on the disk
        self.unflushed[store].clear()

    @invariant()
    def same_entries(self) -> None:
        for store in STORES:
            assert contents(self.real, store) == contents(self.model, store)
            assert self.real.get_many(store, ALL_KEYS) == self.model.get_many(store, ALL_KEYS)


Backends.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestBackends = Backends.TestCase


COMMIT_IN_A_LOOP = """
import sys
from penstock.state.rocksdb.rocksdb_backend import RocksDBBackend
from penstock.state.rocksdb.tuning import RocksDBOptions
from tests.properties.test_backends import commit_number

backend = RocksDBBackend(sys.argv[1], ["a", "b"], RocksDBOptions(memtable_bytes=64 << 10))
for number in range(1, 1_000_000):
    backend.commit(commit_number(number))
    if number % 10 == 0:
        backend.flush(["a"] if number % 20 else ["b"])
    print(number, flush=True)
"""


def commit_number(number: int) -> list[StoreWrites]:
    """What the killed process commits, a pure function of the commit's number; each third leaves store ``b``
    alone."""
    position = b"%d" % number
    keys = [b"%05d" % ((number * 7919 + i * 104729) % 5000) for i in range(50)]
    puts: list[tuple[bytes, bytes | None]] = [
        (k, None if i % 10 == 9 else k + position * 3) for i, k in enumerate(keys)
    ]
    writes = [StoreWrites("a", puts, position)]
    if number % 3:
        writes.append(StoreWrites("b", puts[:7], position, drop_below=b"%05d" % (number % 5000)))
    return writes


def prefixes(until: dict[str, int]) -> dict[str, list[tuple[bytes, bytes]]]:
    """Each store's entries after the commit that its position names, from the model."""
    found: dict[str, list[tuple[bytes, bytes]]] = {}
    for store, last in until.items():
        model = MemoryBackend([store])
        for number in range(1, last + 1):
            model.commit([w for w in commit_number(number) if w.store == store])
        found[store] = list(model.range(store, None, None))
    return found


@pytest.mark.parametrize("commits_before", [1, 25, 400])
def test_a_killed_process_leaves_each_store_at_one_of_its_commits(tmp_path: Path, commits_before: int) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", COMMIT_IN_A_LOOP, str(tmp_path / "db")],
        stdout=subprocess.PIPE,
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert child.stdout is not None
    committed = 0
    while committed < commits_before:
        committed = int(child.stdout.readline())
    time.sleep(0.005)
    child.send_signal(signal.SIGKILL)
    rest, _ = child.communicate()
    committed = max([committed, *(int(n) for n in rest.split(b"\n")[:-1])])

    backend = RocksDBBackend(tmp_path / "db", STORES)
    stands = {store: int(backend.position(store) or 0) for store in STORES}
    expected = prefixes(stands)
    for store in STORES:
        # One more than was reported: the kill may fall between a commit and its report.
        assert stands[store] <= committed + 1
        assert list(backend.range(store, None, None)) == expected[store], f"{store} at {stands[store]}"
    flushed = {"a": (committed - 10) // 20 * 20 + 10 if committed >= 11 else 0, "b": (committed - 1) // 20 * 20}
    for store in STORES:
        last_named = max((n for n in range(1, flushed[store] + 1) if store == "a" or n % 3), default=0)
        assert stands[store] >= last_named, f"store {store} lost commits that were flushed"
    backend.close()


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**9), st.integers(0, 7))
def test_a_flipped_bit_in_a_table_file_is_detected_or_harmless(place: int, bit: int) -> None:
    entries = [(b"%05d" % i, b"%x" % (i * i * i) * (i % 12)) for i in range(2000)]
    path = Path(tempfile.mkdtemp(prefix="penstock-flip-"))
    backend = None
    try:
        (file,) = write_ssts(path, "s", entries, position=b"p")
        data = bytearray((path / file.name).read_bytes())
        data[place % len(data)] ^= 1 << bit
        (path / file.name).write_bytes(data)
        # A cache of its own: blocks of the file as it was must not answer for it.
        backend = RocksDBBackend(path / "db", ["a"], RocksDBOptions(block_cache_bytes=(2 << 20) + place % 4096))
        backend.ingest("a", [path / file.name])
        assert contents(backend, "a") == (b"p", entries)
        assert backend.get_many("a", [k for k, _ in entries]) == [v for _, v in entries]
    except StateCorruptedError:
        pass
    finally:
        if backend is not None:
            backend.close()
        shutil.rmtree(path)
