package differential;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.json.JsonMapper;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/** Events are JSON texts, so that Flink's serializer of texts carries them; their fields are parsed once. */
final class Event {
    static final ObjectMapper JSON =
            JsonMapper.builder().enable(DeserializationFeature.USE_LONG_FOR_INTS).build();
    private static final Map<String, Map<String, Object>> PARSED = new ConcurrentHashMap<>();

    private Event() {}

    static String written(Object fields) {
        try {
            return JSON.writeValueAsString(fields);
        } catch (JsonProcessingException error) {
            throw new IllegalArgumentException(error);
        }
    }

    @SuppressWarnings("unchecked")
    static Map<String, Object> read(String text) {
        return PARSED.computeIfAbsent(text, t -> {
            try {
                return JSON.readValue(t, Map.class);
            } catch (JsonProcessingException error) {
                throw new IllegalArgumentException(error);
            }
        });
    }

    static String name(String event) {
        return (String) read(event).get("name");
    }

    static long number(String event) {
        return (Long) read(event).get("n");
    }

    static String key(String event) {
        return (String) read(event).get("key");
    }

    static void forgetAll() {
        PARSED.clear();
    }
}
