"""Ceilings without a broker: memory, disk, RocksDB as rocksdict reaches it, and decoding."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import orjson
from rocksdict import IngestExternalFileOptions, Rdict, SstFileWriter, WriteBatch

from benchmarks import data
from benchmarks.measured import Ceiling, best, measure
from benchmarks.stateless import Event
from penstock.state.rocksdb.tuning import RocksDBOptions, database_options, table_options, unlogged_writes

BASE_MS = 1_795_219_200_000
VALUE = b"v" * 80
BATCH = 10_000


class Narrow(msgspec.Struct, frozen=True, gc=False):
    """One field of seven."""

    event_type: str


def memory(parts: int) -> Iterator[Ceiling]:
    """Copying of blocks that no cache holds."""
    source = np.ones(32 << 20, np.int64)
    target = np.empty_like(source)

    def copy() -> float:
        for _ in range(parts):
            np.copyto(target, source)
        return parts * source.nbytes / 1e6

    copy()
    yield best(3, lambda: measure("memory", "copy 256 MB blocks", "MB", copy))


def disk(work: Path, megabytes: int) -> Iterator[Ceiling]:
    """Writing in order with one fsync at the end, and fsync after every 4 kB."""
    path, block = work / "roofline.bin", os.urandom(1 << 20)

    def write() -> float:
        with path.open("wb", buffering=0) as out:
            for _ in range(megabytes):
                out.write(block)
            os.fsync(out.fileno())
        return megabytes * (1 << 20) / 1e6

    def synced() -> float:
        with path.open("wb", buffering=0) as out:
            for _ in range(200):
                out.write(block[:4096])
                os.fsync(out.fileno())
        return 200

    try:
        yield best(2, lambda: measure("disk", "sequential write, one fsync", "MB", write))
        yield best(2, lambda: measure("disk", "4 kB and fsync", "fsync", synced))
    finally:
        path.unlink(missing_ok=True)


class Database:
    """An empty RocksDB with Penstock's own options and without a write-ahead log; keys are drawn without order."""

    def __init__(self, folder: Path, keys: int) -> None:
        self.folder = folder
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.db = Rdict(str(folder), database_options(RocksDBOptions()))
        self.db.set_write_options(unlogged_writes())
        places = np.random.default_rng(data.SEED).permutation(keys)
        self.keys: list[Any] = [b"user-%012d" % place for place in places.tolist()]

    def put(self) -> float:
        """One by one."""
        put = self.db.put
        for key in self.keys:
            put(key, VALUE)
        return len(self.keys)

    def batches(self) -> float:
        """In write batches."""
        options = unlogged_writes()
        for start in range(0, len(self.keys), BATCH):
            batch = WriteBatch(raw_mode=True)
            for key in self.keys[start : start + BATCH]:
                batch.put(key, VALUE)
            self.db.write(batch, options)
        return len(self.keys)

    def get(self) -> float:
        """One by one, all present."""
        get = self.db.get
        for key in self.keys:
            get(key)
        return len(self.keys)

    def multi_get(self) -> float:
        """In lists."""
        for start in range(0, len(self.keys), BATCH):
            self.db.get(self.keys[start : start + BATCH])
        return len(self.keys)

    def write_sst(self) -> float:
        """Sorted into one table file; sorting is counted."""
        writer = SstFileWriter(table_options(RocksDBOptions()))
        writer.open(str(self.folder / "roofline.sst"))
        for key in sorted(self.keys):
            writer[key] = VALUE
        writer.finish()
        return len(self.keys)

    def ingest(self) -> float:
        """The table file into the database."""
        self.db.ingest_external_file([str(self.folder / "roofline.sst")], IngestExternalFileOptions())
        return len(self.keys)

    def close(self) -> None:
        """Close and remove it."""
        self.db.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def rocksdb(work: Path, keys: int) -> Iterator[Ceiling]:
    """Keys of 17 bytes, values of 80. Reads follow the writes: part of the keys lies in memtables."""
    steps: list[tuple[str, Callable[[Database], float]]] = [
        ("put", Database.put),
        ("WriteBatch of 10,000", Database.batches),
        ("get", Database.get),
        ("multi-get of 10,000", Database.multi_get),
        ("sort and write an SST", Database.write_sst),
        ("ingest the SST", Database.ingest),
    ]
    database = Database(work / "roofline-db", keys)
    try:
        for name, step in steps:
            yield measure("rocksdb", name, "keys", partial(step, database), bytes=97.0)
    finally:
        database.close()


def decoding(records: int) -> Iterator[Ceiling]:
    """Events of the Yahoo benchmark, 240 bytes of JSON."""
    values = [value for block in data.events(records, BASE_MS) for value in block.values]
    size = sum(map(len, values)) / len(values)
    decoders: dict[str, Callable[[bytes], object]] = {
        "orjson, all fields": orjson.loads,
        "msgspec, 7 fields": msgspec.json.Decoder(Event).decode,
        "msgspec, 1 of 7": msgspec.json.Decoder(Narrow).decode,
    }
    for name, decode in decoders.items():
        yield best(2, partial(measure, "decode", name, "records", partial(_each, decode, values), bytes=size))


def _each(decode: Callable[[bytes], object], values: list[bytes]) -> float:
    for value in values:
        decode(value)
    return len(values)
