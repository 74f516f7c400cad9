"""How RocksDB is tuned, and the memory that all databases of a process share.

Some choices are not obvious:

* The block cache is a hyper clock cache. The default cache is split into shards of about 1 MB, and a filter
  block of 1 M keys (1.25 MB) fits into none of them: it is then read anew by every lookup.
* The memtable has a bloom filter, so that the lookup of a key never seen costs no walk through the skip list.
* Blocks have a hash index beside the sorted one: a batched read of cached blocks took 2.3 us a key instead of 2.7,
  files 3 % larger.
* Filters and indexes live in the block cache, so that ``block_cache_bytes`` bounds them too.
* An entry that is in memory is found in 0.2 us, one in a cached block in 2.3, so entries get three times the blocks' room.
* How much room there is decides what a record costs where keys are many, so the machine's memory sets it, not a number.
  Of ten million rows, evenly asked for in batches of 2,500, one took 0.5 us from memory and 6.7 from files (a quarter of
  that the reading of the file, a tenth each the decompression and the cache's work, the rest spread thinly). No option of
  the files comes near it: without compression 6.6 and three times the disk, with mapped files besides 6.0, with blocks of
  1 KB 5.6 and four times the index, with all blocks cached 4.4.
* Without the compiled part entries in memory are objects of three times the size, so blocks get half of what the machine
  allows: a million rows took 4.3 us each with all blocks cached, 6.6 with 48 MB. The rest is for decoded entries, see
  ``WorkerSettings.cache_bytes``.
"""

from __future__ import annotations

import dataclasses
import threading
from functools import lru_cache
from typing import NamedTuple

from rocksdict import (
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
"""What is not set grows no further by itself, however large the machine."""


class Limits(NamedTuple):
    """Bytes that all databases of a process share."""

    entries_bytes: int
    block_cache_bytes: int


LEAST = Limits(entries_bytes=144 << 20, block_cache_bytes=48 << 20)
"""On a small machine, and where somebody else accounts for the process's memory."""


@dataclasses.dataclass(frozen=True, slots=True)
class RocksDBOptions:
    """Limits, in bytes unless the name says otherwise.

    Three of them are shared by every database in the process that asks for the same numbers, and their sum is the
    memory that the stores' bytes take at most, if they are so many (decoded entries are cached beside it:
    ``state_cache_max_bytes``).
    ``entries_bytes``: entries that are committed and not in the database yet, at most half of it, and, where the
    compiled part is there, entries written or read lately (without it only the former, at most an eighth).
    ``block_cache_bytes``: blocks of files, with their filters and indexes. 0 for either of the two: as much as the
    machine's memory allows (``limits``). ``write_buffer_bytes``: RocksDB's own buffers (memtables), through which the
    stores go whose ranges are read. ``memtable_bytes`` is the size at which one store's memtable is written to disk.
    ``write_out_bytes``: how much of what is committed may be waiting to be written out, of all databases, where
    ``entries_bytes`` would allow more: a crash makes the changelog repeat it, and a task stands still while its part is
    written, a quarter of a second for one of four at 128 MB. The less, the more files there are to merge.
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
        """What is set, and for what is not: a share of the machine's memory for what is found fastest in it, which is
        entries with the compiled part and blocks without it, and the least for the other."""
        share = own_share_bytes()
        entries, blocks = (share, share // 8) if compiled() is not None else (0, share // 2)
        return Limits(
            self.entries_bytes or min(max(entries, LEAST.entries_bytes), DEFAULT_BYTES_MAX),
            self.block_cache_bytes or min(max(blocks, LEAST.block_cache_bytes), DEFAULT_BYTES_MAX),
        )


@lru_cache(maxsize=8)
def _shared_memory(block_cache_bytes: int, write_buffer_bytes: int) -> tuple[Cache, WriteBufferManager]:
    # Charge 0: the cache learns the size of its entries. No stall: a full buffer starts a flush and lets
    # writes go on.
    return Cache.new_hyper_clock_cache(block_cache_bytes, 0), WriteBufferManager(write_buffer_bytes, False)


class SharedBound:
    """A number of bytes, in equal parts for all that share it. Thread-safe."""

    def __init__(self, total_bytes: int) -> None:
        self._total_bytes = total_bytes
        self._sharers = 0
        self._lock = threading.Lock()

    def part_bytes(self, most: int | None = None) -> int:
        """What one of them may take now, of all or of ``most``."""
        total = self._total_bytes if most is None else min(self._total_bytes, most)
        return total // max(self._sharers, 1)

    def join(self) -> None:
        """One more shares it."""
        with self._lock:
            self._sharers += 1

    def leave(self) -> None:
        """One less does."""
        with self._lock:
            self._sharers -= 1


@lru_cache(maxsize=8)
def shared_bound(total_bytes: int) -> SharedBound:
    """The process's bound of this size."""
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
    """The layout of table files: the same for files that the database writes and for files made to be
    ingested."""
    table = BlockBasedOptions()
    if cache is not None:
        table.set_block_cache(cache)
    table.set_block_size(options.block_bytes)
    table.set_bloom_filter(options.bloom_bits_per_key, False)
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
