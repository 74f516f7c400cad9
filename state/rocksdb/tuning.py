"""How RocksDB is tuned, and the memory that all databases of a process share.

Some choices are not obvious:

* The block cache is a hyper clock cache. The default cache is split into shards of about 1 MB. A filter block of 1 M
  keys (1.25 MB) fits into none of them, so every lookup would read it again.
* The memtable has a bloom filter, so that the lookup of a key never seen costs no walk through the skip list.
* Blocks have a hash index in addition to the sorted one: batched reads of cached blocks are faster, and files a little
  larger.
* Filters and indexes live in the block cache, so that ``block_cache_bytes`` bounds them too. They are in parts, of which a
  look-up reads one: the whole index of a file has hundreds of kilobytes, which is much to read again for each key of a
  table whose indexes do not fit.
* An entry in memory is found about ten times as fast as one in a cached block, so entries get three times the memory of
  blocks.
* With many keys the size of this memory decides what a record costs, so it follows from the machine's memory. No option
  of the files (no compression, mapped files, smaller blocks) comes near what memory saves.
* Without the compiled part entries in memory are objects of three times the size, so blocks get half of what the
  machine allows. The rest is for decoded entries, see ``WorkerSettings.cache_bytes``.
"""

from __future__ import annotations

import dataclasses
import threading
from functools import lru_cache
from typing import NamedTuple

from rocksdict import (
    BlockBasedIndexType,
    BlockBasedOptions,
    Cache,
    ChecksumType,
    DataBlockIndexType,
    DBCompressionType,
    Options,
    WriteBufferManager,
    WriteOptions,
)

from penstock.state.errors import SettingsError
from penstock.state.machine.machine_memory import own_share_bytes
from penstock.state.native import compiled

_TABLE_FORMAT_VERSION = 5
_HASH_RATIO = 0.75
_BY_THE_MACHINE = ("entries_bytes", "block_cache_bytes")
DEFAULT_BYTES_MAX = 2 << 30
"""The most that an unset limit grows to, however large the machine."""


class Limits(NamedTuple):
    """Limits in bytes that all databases of a process share."""

    entries_bytes: int
    block_cache_bytes: int


LEAST = Limits(entries_bytes=144 << 20, block_cache_bytes=48 << 20)
"""For a small machine."""


@dataclasses.dataclass(frozen=True, slots=True)
class RocksDBOptions:
    """Limits, in bytes unless the name says otherwise.

    Three of them are shared by every database in the process that asks for the same numbers, and their sum bounds the
    memory of the stores' bytes (decoded entries are cached in addition: ``state_cache_max_bytes``). ``entries_bytes``:
    committed entries that are not in the database yet, at most half of it, and, with the compiled part, entries written
    or read lately (without it only the former, at most an eighth). ``block_cache_bytes``: blocks of files, with their
    filters and indexes. 0 for either: as much as the machine's memory allows (``limits``). ``write_buffer_bytes``:
    RocksDB's own buffers (memtables), used by the stores whose ranges are read. ``memtable_bytes`` is the size at which
    one store's memtable is written to disk. ``write_out_bytes``: how much committed data of all databases may wait to
    be written out, if ``entries_bytes`` would allow more. After a crash it is replayed from the changelog, and a task
    stands still while its part is written. The smaller it is, the more files there are to merge.
    """

    entries_bytes: int = 0
    block_cache_bytes: int = 0
    write_buffer_bytes: int = 32 << 20
    memtable_bytes: int = 16 << 20
    block_bytes: int = 4096
    bloom_bits_per_key: int = 10
    memtable_bloom_ratio: float = 0.02
    background_jobs: int = 2
    write_out_bytes: int = 128 << 20

    def __post_init__(self) -> None:
        floors = {
            "entries_bytes": 1 << 20,  # below it commits are hardly held together
            "block_cache_bytes": 1 << 20,  # below it not even the indexes of a small store stay
            "write_buffer_bytes": 1 << 20,
            "memtable_bytes": 64 << 10,  # RocksDB raises anything smaller to this
            "block_bytes": 256,
            "background_jobs": 1,
            "write_out_bytes": 64 << 10,
        }
        for name, floor in floors.items():
            if getattr(self, name) < floor and not (name in _BY_THE_MACHINE and getattr(self, name) == 0):
                raise SettingsError(f"RocksDB option {name} is {getattr(self, name)}; set it to at least {floor}")
        if not 0.0 <= self.memtable_bloom_ratio <= 0.25:
            raise SettingsError(
                f"RocksDB option memtable_bloom_ratio is {self.memtable_bloom_ratio}; set it between 0 and 0.25"
            )

    def limits(self) -> Limits:
        """The limits, with unset ones filled in. What is found fastest in memory gets a share of the machine's memory:
        entries with the compiled part, blocks without it. The other gets the minimum."""
        share = own_share_bytes()
        entries, blocks = (share, share // 8) if compiled() is not None else (0, share // 2)
        return Limits(
            self.entries_bytes or min(max(entries, LEAST.entries_bytes), DEFAULT_BYTES_MAX),
            self.block_cache_bytes or min(max(blocks, LEAST.block_cache_bytes), DEFAULT_BYTES_MAX),
        )


@lru_cache(maxsize=8)
def _shared_memory(block_cache_bytes: int, write_buffer_bytes: int) -> tuple[Cache, WriteBufferManager]:
    # Charge 0: the cache measures its entries. No stall: a full buffer starts a flush while writes continue.
    return Cache.new_hyper_clock_cache(block_cache_bytes, 0), WriteBufferManager(write_buffer_bytes, False)


class SharedBound:
    """A number of bytes, divided equally among its users. Thread-safe."""

    def __init__(self, total_bytes: int) -> None:
        self._total_bytes = total_bytes
        self._sharers = 0
        self._lock = threading.Lock()

    def part_bytes(self, most: int | None = None) -> int:
        """The part of one user now, of all bytes or of ``most``."""
        total = self._total_bytes if most is None else min(self._total_bytes, most)
        return total // max(self._sharers, 1)

    def join(self) -> None:
        """Add a user."""
        with self._lock:
            self._sharers += 1

    def leave(self) -> None:
        """Remove a user."""
        with self._lock:
            self._sharers -= 1


@lru_cache(maxsize=8)
def shared_bound(total_bytes: int) -> SharedBound:
    """The shared bound of this size in the process."""
    return SharedBound(total_bytes)


def database_options(options: RocksDBOptions) -> Options:
    """The options of the database and of each of its column families."""
    cache, write_buffer_manager = _shared_memory(options.limits().block_cache_bytes, options.write_buffer_bytes)
    out = table_options(options, cache)
    out.create_if_missing(True)
    out.create_missing_column_families(True)
    out.set_write_buffer_manager(write_buffer_manager)
    out.set_write_buffer_size(options.memtable_bytes)
    if options.memtable_bloom_ratio:
        out.set_memtable_prefix_bloom_ratio(options.memtable_bloom_ratio)
        out.set_memtable_whole_key_filtering(True)
    out.set_level_compaction_dynamic_level_bytes(True)
    out.set_max_background_jobs(options.background_jobs)
    out.set_keep_log_file_num(2)
    out.set_max_log_file_size(1 << 20)
    out.set_stats_dump_period_sec(0)
    out.set_stats_persist_period_sec(0)
    return out


def table_options(options: RocksDBOptions, cache: Cache | None = None) -> Options:
    """The layout of table files, for those that the database writes and those made for ingestion."""
    table = BlockBasedOptions()
    if cache is not None:
        table.set_block_cache(cache)
    table.set_block_size(options.block_bytes)
    table.set_bloom_filter(options.bloom_bits_per_key, False)
    table.set_index_type(BlockBasedIndexType.two_level_index_search())
    table.set_partition_filters(True)
    table.set_cache_index_and_filter_blocks(True)
    table.set_pin_l0_filter_and_index_blocks_in_cache(True)
    table.set_data_block_index_type(DataBlockIndexType.binary_and_hash())
    table.set_data_block_hash_ratio(_HASH_RATIO)
    table.set_format_version(_TABLE_FORMAT_VERSION)
    table.set_checksum_type(ChecksumType.xxh3())
    out = Options(raw_mode=True)
    out.set_block_based_table_factory(table)
    out.set_compression_type(DBCompressionType.lz4())
    return out


def unlogged_writes() -> WriteOptions:
    """No write-ahead log: the changelog topic is the log."""
    out = WriteOptions()
    out.disable_wal = True  # type: ignore[assignment,method-assign]  # an attribute; the stubs call it a method
    return out
