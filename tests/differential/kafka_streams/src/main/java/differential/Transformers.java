package differential;

import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.ValueTransformerWithKey;
import org.apache.kafka.streams.processor.ProcessorContext;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/** The processor of table changes that descriptions have; tests/differential/processors.py has the same, as Python. */
final class Transformers {
    private Transformers() {}

    static Object add(Described described, Node node, KTable<Object, Object> in) {
        String store = "store-" + node.text("id");
        described.builder.addStateStore(Stores.keyValueStoreBuilder(
                Stores.persistentKeyValueStore(store), Described.JSON, Described.JSON));
        return in.transformValues(() -> new Numbering(store), Described.kept(node), store);
    }

    /** Numbers the changes of a row, and tells their time; a deletion deletes the row. */
    private static final class Numbering implements ValueTransformerWithKey<Object, Object, Object> {
        private final String storeName;
        private ProcessorContext context;

        Numbering(String storeName) {
            this.storeName = storeName;
        }

        @Override
        public void init(ProcessorContext given) {
            context = given;
        }

        @Override
        public Object transform(Object key, Object value) {
            KeyValueStore<Object, Object> store = context.getStateStore(storeName);
            Object found = store.get(key);
            long number = found == null ? 1 : (Long) found + 1;
            store.put(key, number);
            return value == null ? null : Functions.text(value) + "#" + number + "@" + context.timestamp();
        }

        @Override
        public void close() {}
    }
}
