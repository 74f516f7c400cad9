package differential;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.ValueAndTimestamp;
import org.apache.kafka.streams.state.WindowStore;

/** What a named store holds, as rows; a session's row has the time of its last record. */
final class Contents {
    private Contents() {}

    @SuppressWarnings("unchecked")
    static List<Object> of(TopologyTestDriver driver, String name) {
        StateStore store = driver.getAllStateStores().get(name);
        if (store instanceof KeyValueStore<?, ?> rows) {
            return rows(((KeyValueStore<Object, Object>) rows).all());
        }
        if (store instanceof SessionStore<?, ?> rows) {
            return rows(((SessionStore<Object, Object>) rows).fetch(null, null));
        }
        if (store instanceof WindowStore<?, ?> rows) {
            return rows(((WindowStore<Object, Object>) rows).all());
        }
        throw new IllegalArgumentException("the content of store " + name + " cannot be listed");
    }

    private static List<Object> rows(KeyValueIterator<?, Object> found) {
        List<Object> made = new ArrayList<>();
        try (found) {
            found.forEachRemaining(entry -> made.add(row(entry)));
        }
        return made;
    }

    private static Map<String, Object> row(KeyValue<?, Object> entry) {
        Map<String, Object> made = new LinkedHashMap<>();
        if (entry.key instanceof Windowed<?> windowed) {
            made.put("k", windowed.key());
            made.put("w", Arrays.asList(windowed.window().start(), windowed.window().end()));
        } else {
            made.put("k", entry.key);
        }
        if (entry.value instanceof ValueAndTimestamp<?> stamped) {
            made.put("v", stamped.value());
            made.put("ts", stamped.timestamp());
        } else {
            made.put("v", entry.value);
            if (entry.key instanceof Windowed<?> session) {
                made.put("ts", session.window().end());
            }
        }
        return made;
    }
}
