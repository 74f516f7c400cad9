package differential;

import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.json.JsonMapper;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serializer;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;

/** Any JSON value, as both sides write it; a windowed key becomes an object with its key, start and end. */
public final class JsonSerde implements Serde<Object> {
    static final ObjectMapper JSON =
            JsonMapper.builder().enable(DeserializationFeature.USE_LONG_FOR_INTS).build();

    @Override
    public Serializer<Object> serializer() {
        return (topic, value) -> value == null ? null : write(value);
    }

    @Override
    public Deserializer<Object> deserializer() {
        return (topic, data) -> data == null ? null : read(data);
    }

    private static byte[] write(Object value) {
        try {
            return JSON.writeValueAsBytes(value instanceof Windowed<?> windowed ? plain(windowed) : value);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static Map<String, Object> plain(Windowed<?> windowed) {
        Map<String, Object> made = new LinkedHashMap<>();
        made.put("windowed", windowed.key());
        made.put("start", windowed.window().start());
        made.put("end", windowed.window().end());
        return made;
    }

    private static Object read(byte[] data) {
        try {
            Object found = JSON.readValue(data, Object.class);
            if (found instanceof Map<?, ?> map && map.containsKey("windowed")) {
                SessionWindow window = new SessionWindow((Long) map.get("start"), (Long) map.get("end"));
                return new Windowed<>(map.get("windowed"), window);
            }
            return found;
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
