package differential;

import java.util.Map;
import org.apache.kafka.streams.state.RocksDBConfigSetter;
import org.rocksdb.InfoLogLevel;
import org.rocksdb.Options;

/**
 * RocksDB for stores that live for one run: many are opened, and each holds a few rows. What only opening and logging cost
 * is left out; what is read from a store, and in which order, stays as it is by default.
 */
public final class LightStores implements RocksDBConfigSetter {
    @Override
    public void setConfig(String store, Options options, Map<String, Object> configs) {
        options.setMaxFileOpeningThreads(1); // by default each open starts 16
        options.setAllowFAllocate(false); // in a file system in memory, room that is kept is room that is cleared
        options.setInfoLogLevel(InfoLogLevel.FATAL_LEVEL);
        options.setKeepLogFileNum(1);
        options.setStatsDumpPeriodSec(0);
        options.setStatsPersistPeriodSec(0);
    }

    @Override
    public void close(String store, Options options) {}
}
