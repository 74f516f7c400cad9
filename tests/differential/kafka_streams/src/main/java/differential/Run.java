package differential;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.stream.Stream;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TestInputTopic;
import org.apache.kafka.streams.TestOutputTopic;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers;
import org.apache.kafka.streams.test.TestRecord;

/** One topology with one input, record by record. */
final class Run {
    private final Node run;
    private final List<Object> steps = new ArrayList<>();
    private long wallMs = 0;

    Run(Node run) {
        this.run = run;
    }

    /** What each step put out, and the error that ended the run. */
    Map<String, Object> outcome() {
        Map<String, Object> made = new LinkedHashMap<>();
        made.put("steps", steps);
        try {
            play();
        } catch (Exception error) {
            made.put("error", trace(error));
        }
        return made;
    }

    private static String trace(Throwable error) {
        StringBuilder text = new StringBuilder();
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            text.append(text.isEmpty() ? "" : ": ").append(cause.getClass().getSimpleName());
            text.append(" ").append(String.valueOf(cause.getMessage()).lines().findFirst().orElse(""));
        }
        return text.toString();
    }

    private void play() throws IOException {
        Described described = new Described(run.nodes("nodes"));
        Path folder = Files.createTempDirectory("differential");
        try (TopologyTestDriver driver =
                new TopologyTestDriver(described.build(), properties(folder), Instant.EPOCH)) {
            Map<String, TestInputTopic<Object, Object>> inputs = new LinkedHashMap<>();
            described.inputs.forEach((name, topic) -> inputs.put(
                    name, driver.createInputTopic(topic, Described.JSON.serializer(), Described.JSON.serializer())));
            Map<String, TestOutputTopic<Object, Object>> outputs = new LinkedHashMap<>();
            described.sinks.forEach((name, topic) -> outputs.put(
                    name, driver.createOutputTopic(topic, Described.JSON.deserializer(), Described.JSON.deserializer())));
            for (Node entry : run.nodes("input")) {
                take(driver, inputs, entry);
                Map<String, Object> step = read(outputs);
                stores().forEach(name -> step.put("table:" + name, Contents.of(driver, name)));
                steps.add(step);
            }
        } finally {
            delete(folder);
        }
    }

    /** The stores whose content is part of the answer. */
    private List<String> stores() {
        return run.has("tables") ? run.list("tables").stream().map(String.class::cast).toList() : List.of();
    }

    private Properties properties(Path folder) {
        Properties made = new Properties();
        made.put(StreamsConfig.APPLICATION_ID_CONFIG, "differential");
        made.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "unused:1");
        made.put(StreamsConfig.STATE_DIR_CONFIG, folder.toString());
        made.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, JsonSerde.class);
        made.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, JsonSerde.class);
        made.put(StreamsConfig.ROCKSDB_CONFIG_SETTER_CLASS_CONFIG, LightStores.class);
        // Results that are due leave with the record that makes them due, not once a second of the wall clock.
        made.put(StreamsConfig.InternalConfig.EMIT_INTERVAL_MS_KSTREAMS_OUTER_JOIN_SPURIOUS_RESULTS_FIX, 0L);
        made.put(StreamsConfig.InternalConfig.EMIT_INTERVAL_MS_KSTREAMS_WINDOWED_AGGREGATION, 0L);
        // The record cache holds back what one commit covers; only descriptions that ask for it have one.
        boolean cached = run.nodes("nodes").stream().anyMatch(n -> "per_commit".equals(n.text("emit")));
        made.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, cached ? 10_000_000L : 0L);
        if ("memory".equals(run.text("stores"))) {
            made.put(
                    StreamsConfig.DSL_STORE_SUPPLIERS_CLASS_CONFIG,
                    BuiltInDslStoreSuppliers.InMemoryDslStoreSuppliers.class);
        }
        return made;
    }

    private void take(TopologyTestDriver driver, Map<String, TestInputTopic<Object, Object>> inputs, Node entry) {
        if ("processing_time".equals(entry.fields().get("event"))) {
            driver.advanceWallClockTime(Duration.ofMillis(entry.number("ts", 0) - wallMs));
            wallMs = entry.number("ts", 0);
            return;
        }
        TestRecord<Object, Object> record =
                new TestRecord<>(key(entry), entry.fields().get("v"), Instant.ofEpochMilli(entry.number("ts", 0)));
        inputs.get(entry.text("topic")).pipeInput(record);
    }

    private static Object key(Node entry) {
        Object key = entry.fields().get("k");
        if (!entry.has("w")) {
            return key;
        }
        List<Object> bounds = entry.list("w");
        return new Windowed<>(key, new SessionWindow((Long) bounds.get(0), (Long) bounds.get(1)));
    }

    private static Map<String, Object> read(Map<String, TestOutputTopic<Object, Object>> outputs) {
        Map<String, Object> made = new LinkedHashMap<>();
        outputs.forEach((sink, topic) -> {
            List<Object> rows = new ArrayList<>();
            topic.readRecordsToList().forEach(record -> rows.add(row(record)));
            if (!rows.isEmpty()) {
                made.put(sink, rows);
            }
        });
        return made;
    }

    private static Map<String, Object> row(TestRecord<Object, Object> record) {
        Map<String, Object> made = new LinkedHashMap<>();
        if (record.key() instanceof Windowed<?> windowed) {
            made.put("k", windowed.key());
            long end = windowed.window().end();
            made.put("w", Arrays.asList(windowed.window().start(), end == Long.MAX_VALUE ? null : end));
        } else {
            made.put("k", record.key());
        }
        made.put("v", record.value());
        made.put("ts", record.timestamp());
        return made;
    }

    private static void delete(Path folder) throws IOException {
        try (Stream<Path> found = Files.walk(folder)) {
            for (Path path : found.sorted(Comparator.reverseOrder()).toList()) {
                Files.deleteIfExists(path);
            }
        }
    }
}
