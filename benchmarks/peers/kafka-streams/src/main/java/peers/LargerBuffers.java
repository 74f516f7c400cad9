package peers;

import java.util.Map;
import org.apache.kafka.streams.state.RocksDBConfigSetter;
import org.rocksdb.BlockBasedTableConfig;
import org.rocksdb.BloomFilter;
import org.rocksdb.Cache;
import org.rocksdb.Filter;
import org.rocksdb.LRUCache;
import org.rocksdb.Options;
import org.rocksdb.RocksDB;

/** RocksDB as the memory page of Kafka Streams shows it: one block cache for all stores, larger memtables, a filter. */
public final class LargerBuffers implements RocksDBConfigSetter {
    static {
        // The settings are read before the first store loads it.
        RocksDB.loadLibrary();
    }

    private static final Cache CACHE = new LRUCache(256L << 20);
    private static final Filter FILTER = new BloomFilter(10);

    @Override
    public void setConfig(String store, Options options, Map<String, Object> configs) {
        BlockBasedTableConfig table = (BlockBasedTableConfig) options.tableFormatConfig();
        table.setBlockCache(CACHE);
        table.setFilterPolicy(FILTER);
        options.setTableFormatConfig(table);
        options.setWriteBufferSize(64L << 20);
        options.setMaxWriteBufferNumber(3);
    }

    @Override
    public void close(String store, Options options) {
        // Cache and filter belong to all stores and live as long as the process.
    }
}
