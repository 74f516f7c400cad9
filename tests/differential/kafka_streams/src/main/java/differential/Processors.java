package differential;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.Supplier;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.ValueAndTimestamp;
import org.apache.kafka.streams.state.TimestampedKeyValueStore;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.streams.state.WindowStoreIterator;

/** The processors that descriptions name; tests/differential/processors.py has the same, as Python. */
final class Processors {
    private static final long RETENTION_MS = 100_000;

    private static final Map<String, Supplier<Processor<Object, Object, Object, Object>>> KNOWN = new TreeMap<>();

    static {
        KNOWN.put("counting", Counting::new);
        KNOWN.put("reporting", Reporting::new);
        KNOWN.put("windowing", Windowing::new);
        KNOWN.put("sessioning", Sessioning::new);
        KNOWN.put("stream_timed", () -> new Timed(PunctuationType.STREAM_TIME, 10, true));
        KNOWN.put("stream_timed_from_the_first", () -> new Timed(PunctuationType.STREAM_TIME, 10, false));
        KNOWN.put("wall_timed", () -> new Timed(PunctuationType.WALL_CLOCK_TIME, 10, false));
        KNOWN.put("looking_up", LookingUp::new);
        KNOWN.put("retiming", Retiming::new);
    }

    private Processors() {}

    static List<String> names() {
        return new ArrayList<>(KNOWN.keySet());
    }

    static Object add(Described described, Node node) {
        KStream<Object, Object> in = described.stream(node, "in");
        String kind = node.text("processor");
        String store = node.has("reads") ? node.text("reads") : "store-" + node.text("id");
        if (!node.has("reads")) {
            described.builder.addStateStore(store(kind, store));
        }
        return in.process(() -> named(kind, store), store);
    }

    private static Processor<Object, Object, Object, Object> named(String kind, String store) {
        Supplier<Processor<Object, Object, Object, Object>> found = KNOWN.get(kind);
        if (found == null) {
            throw new IllegalArgumentException("processor " + kind + " is unknown on the Java side");
        }
        Processor<Object, Object, Object, Object> made = found.get();
        ((Stored) made).storeName = store;
        return made;
    }

    private static StoreBuilder<?> store(String kind, String name) {
        Duration retention = Duration.ofMillis(RETENTION_MS);
        return switch (kind) {
            case "windowing" -> Stores.windowStoreBuilder(
                    Stores.inMemoryWindowStore(name, retention, Duration.ofMillis(10), false),
                    Described.JSON,
                    Described.JSON);
            case "sessioning" -> Stores.sessionStoreBuilder(
                    Stores.inMemorySessionStore(name, retention), Described.JSON, Described.JSON);
            default -> Stores.keyValueStoreBuilder(
                    Stores.persistentKeyValueStore(name), Described.JSON, Described.JSON);
        };
    }

    /** A processor with one store. */
    private abstract static class Stored extends ContextualProcessor<Object, Object, Object, Object> {
        String storeName;

        <S extends org.apache.kafka.streams.processor.StateStore> S store() {
            return context().getStateStore(storeName);
        }

        void send(Record<Object, Object> record, Object value) {
            context().forward(record.withValue(value));
        }
    }

    /** Counts per key and tells the number with the value; a value of e forgets the key. */
    private static final class Counting extends Stored {
        @Override
        public void process(Record<Object, Object> record) {
            if (record.key() == null) {
                return;
            }
            KeyValueStore<Object, Object> store = store();
            if (record.value() != null && Functions.text(record.value()).startsWith("e")) {
                send(record, "gone:" + Functions.text(store.delete(record.key())));
                return;
            }
            Object found = store.get(record.key());
            long count = found == null ? 1 : (Long) found + 1;
            store.put(record.key(), count);
            send(record, count + ":" + Functions.text(record.value()));
        }
    }

    /** Keeps the last value per key; a value of d tells all rows, one of e those from key b to key q, backwards. */
    private static final class Reporting extends Stored {
        @Override
        public void process(Record<Object, Object> record) {
            if (record.key() == null) {
                return;
            }
            KeyValueStore<Object, Object> store = store();
            String text = Functions.text(record.value());
            if (text.startsWith("d")) {
                report(record, store.all());
            } else if (text.startsWith("e")) {
                report(record, store.reverseRange("b", "q"));
            } else {
                store.put(record.key(), record.value());
            }
        }

        private void report(Record<Object, Object> record, KeyValueIterator<Object, Object> rows) {
            try (rows) {
                while (rows.hasNext()) {
                    KeyValue<Object, Object> row = rows.next();
                    context().forward(record.withKey(row.key).withValue(row.value));
                }
            }
        }
    }

    /** Chains values per key and window of 10, and tells the windows that start within 25 before the record. */
    private static final class Windowing extends Stored {
        @Override
        public void process(Record<Object, Object> record) {
            if (record.key() == null) {
                return;
            }
            WindowStore<Object, Object> store = store();
            long start = record.timestamp() / 10 * 10;
            Object found = store.fetch(record.key(), start);
            store.put(record.key(), Functions.text(found) + "+" + Functions.text(record.value()), start);
            StringBuilder told = new StringBuilder();
            try (WindowStoreIterator<Object> rows =
                    store.fetch(record.key(), Math.max(0, record.timestamp() - 25), record.timestamp())) {
                while (rows.hasNext()) {
                    KeyValue<Long, Object> row = rows.next();
                    told.append(row.key).append("=").append(row.value).append(";");
                }
            }
            send(record, told.toString());
        }
    }

    /** Merges sessions of gap 5 by hand. */
    private static final class Sessioning extends Stored {
        @Override
        public void process(Record<Object, Object> record) {
            if (record.key() == null) {
                return;
            }
            SessionStore<Object, Object> store = store();
            long start = record.timestamp();
            long end = record.timestamp();
            StringBuilder merged = new StringBuilder();
            List<Windowed<Object>> old = new ArrayList<>();
            try (KeyValueIterator<Windowed<Object>, Object> rows =
                    store.findSessions(record.key(), Math.max(0, start - 5), end + 5)) {
                while (rows.hasNext()) {
                    KeyValue<Windowed<Object>, Object> row = rows.next();
                    merged.append(row.value).append("|");
                    start = Math.min(start, row.key.window().start());
                    end = Math.max(end, row.key.window().end());
                    old.add(row.key);
                }
            }
            old.forEach(store::remove);
            merged.append(Functions.text(record.value()));
            store.put(new Windowed<>(record.key(), new SessionWindow(start, end)), merged.toString());
            send(record, start + "-" + end + ":" + merged);
        }
    }

    /** Chains values per key until a timer tells and forgets all of them. */
    private static final class Timed extends Stored {
        private final PunctuationType type;
        private final long intervalMs;
        private boolean passesFirst;

        Timed(PunctuationType type, long intervalMs, boolean passesFirst) {
            this.type = type;
            this.intervalMs = intervalMs;
            this.passesFirst = passesFirst;
        }

        @Override
        public void init(ProcessorContext<Object, Object> context) {
            super.init(context);
            context.schedule(Duration.ofMillis(intervalMs), type, this::fire);
        }

        private void fire(long timeMs) {
            if (passesFirst) {
                passesFirst = false;
                return;
            }
            KeyValueStore<Object, Object> store = store();
            List<KeyValue<Object, Object>> rows = new ArrayList<>();
            try (KeyValueIterator<Object, Object> found = store.all()) {
                found.forEachRemaining(rows::add);
            }
            for (KeyValue<Object, Object> row : rows) {
                context().forward(new Record<>(row.key, timeMs + ":" + row.value, timeMs));
                store.delete(row.key);
            }
        }

        @Override
        public void process(Record<Object, Object> record) {
            if (record.key() == null) {
                return;
            }
            KeyValueStore<Object, Object> store = store();
            Object found = store.get(record.key());
            store.put(record.key(), Functions.text(found) + "+" + Functions.text(record.value()));
        }
    }

    /** Tells a table's row, and its timestamp, with each value. */
    private static final class LookingUp extends Stored {
        @Override
        public void process(Record<Object, Object> record) {
            TimestampedKeyValueStore<Object, Object> store = store();
            ValueAndTimestamp<Object> found = record.key() == null ? null : store.get(record.key());
            String row = found == null ? "null" : found.value() + "@" + found.timestamp();
            send(record, Functions.text(record.value()) + "|" + row);
        }
    }

    /** Sends each record twice: as it is, and seven later under another key. */
    private static final class Retiming extends Stored {
        @Override
        public void process(Record<Object, Object> record) {
            context().forward(record);
            context().forward(record.withKey("z").withTimestamp(record.timestamp() + 7));
        }
    }
}
