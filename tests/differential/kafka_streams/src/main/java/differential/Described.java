package differential;

import java.time.Duration;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Branched;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.GlobalKTable;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.internals.suppress.FinalResultsSuppressionBuilder;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/** A described topology, built with the DSL that users have. */
final class Described {
    static final JsonSerde JSON = new JsonSerde();

    final StreamsBuilder builder = new StreamsBuilder();
    final Map<String, String> sinks = new LinkedHashMap<>();
    final Map<String, String> inputs = new LinkedHashMap<>();
    private final Map<String, Object> handles = new HashMap<>();
    private final Map<String, Object> sources = new HashMap<>();

    Described(List<Node> nodes) {
        for (Node node : nodes) {
            Object made = add(node);
            if (node.has("id")) {
                handles.put(node.text("id"), made);
            }
        }
    }

    Topology build() {
        return builder.build();
    }

    private Object add(Node node) {
        return switch (node.text("op")) {
            case "stream", "table", "changelog_table", "global_table" -> source(node);
            case "sink" -> sink(stream(node, "in"), node.text("name"));
            case "split" -> split(node);
            case "merge" -> merge(node);
            case "process" -> Processors.add(this, node);
            case "group_by_key" -> stream(node, "in").groupByKey(Grouped.with(JSON, JSON));
            case "group_by" -> grouped(node);
            case "aggregate" -> Aggregations.add(node, handles.get(node.text("in")));
            case "cogroup" -> Aggregations.cogroup(node, this::grouped);
            case "join" -> Joins.add(node, handles.get(node.text("left")), handles.get(node.text("right")));
            case "suppress" -> suppressed(node);
            default -> handles.get(node.text("in")) instanceof KTable<?, ?> ? ofTable(node) : ofStream(node);
        };
    }

    Object handle(String id) {
        return handles.get(id);
    }

    @SuppressWarnings("unchecked")
    private KGroupedStream<Object, Object> grouped(String id) {
        return (KGroupedStream<Object, Object>) handles.get(id);
    }

    /** The node's input as a stream; of a table its changes. */
    @SuppressWarnings("unchecked")
    KStream<Object, Object> stream(Node node, String field) {
        Object found = handles.get(node.text(field));
        return found instanceof KTable<?, ?> table
                ? ((KTable<Object, Object>) table).toStream()
                : (KStream<Object, Object>) found;
    }

    @SuppressWarnings("unchecked")
    private KTable<Object, Object> table(Node node) {
        return (KTable<Object, Object>) handles.get(node.text("in"));
    }

    private Object source(Node node) {
        String topic = node.text("topic");
        inputs.put(topic, topic);
        return sources.computeIfAbsent(node.text("op") + " " + topic, name -> open(node, topic));
    }

    private Object open(Node node, String topic) {
        Consumed<Object, Object> consumed = Consumed.with(JSON, JSON);
        if (node.text("op").equals("stream")) {
            return builder.stream(topic, consumed);
        }
        if (node.text("op").equals("global_table")) {
            GlobalKTable<Object, Object> made = builder.globalTable(topic, consumed);
            return made;
        }
        if (node.has("versioned_history_ms")) {
            Duration history = Duration.ofMillis(node.number("versioned_history_ms", 0));
            String name = node.has("store") ? node.text("store") : topic + "-versions";
            Materialized<Object, Object, KeyValueStore<Bytes, byte[]>> kept =
                    Materialized.as(Stores.persistentVersionedKeyValueStore(name, history));
            return builder.table(topic, consumed, kept.withKeySerde(JSON).withValueSerde(JSON));
        }
        return node.has("store") ? builder.table(topic, consumed, kept(node)) : builder.table(topic, consumed);
    }

    static Materialized<Object, Object, KeyValueStore<Bytes, byte[]>> kept(Node node) {
        Materialized<Object, Object, KeyValueStore<Bytes, byte[]>> made =
                node.has("store") ? Materialized.as(node.text("store")) : Materialized.with(JSON, JSON);
        made.withKeySerde(JSON).withValueSerde(JSON);
        return "per_commit".equals(node.text("emit")) ? made.withCachingEnabled() : made.withCachingDisabled();
    }

    private Object sink(KStream<Object, Object> stream, String name) {
        String topic = "out-" + name;
        sinks.put(name, topic);
        stream.to(topic, Produced.with(JSON, JSON));
        return null;
    }

    private Object split(Node node) {
        KStream<Object, Object> stream = stream(node, "in");
        var split = stream.split();
        for (Node branch : node.nodes("branches")) {
            Functions.Fn when = branch.function("when");
            split = split.branch((k, v) -> (Boolean) when.call(k, v), Branched.withConsumer(s -> branched(branch, s)));
        }
        if (node.has("default")) {
            split.defaultBranch(Branched.withConsumer(s -> sink(s, node.text("default"))));
        } else {
            split.noDefaultBranch();
        }
        return stream;
    }

    private void branched(Node branch, KStream<Object, Object> stream) {
        if (branch.has("sink")) {
            sink(stream, branch.text("sink"));
        }
        if (branch.has("id")) {
            handles.put(branch.text("id"), stream);
        }
    }

    private Object merge(Node node) {
        KStream<Object, Object> made = null;
        for (Object id : node.list("in")) {
            KStream<Object, Object> next = stream(new Node(Map.of("in", id)), "in");
            made = made == null ? next : made.merge(next);
        }
        return made;
    }

    private Object grouped(Node node) {
        Functions.Fn fn = node.function("fn");
        if (handles.get(node.text("in")) instanceof KTable<?, ?>) {
            return table(node).groupBy((k, v) -> keyValue(fn.call(k, v)), Grouped.with(JSON, JSON));
        }
        return stream(node, "in").groupBy((k, v) -> fn.call(k, v), Grouped.with(JSON, JSON));
    }

    static KeyValue<Object, Object> keyValue(Object pair) {
        List<?> made = (List<?>) pair;
        return made == null ? null : KeyValue.pair(made.get(0), made.get(1));
    }

    private Object suppressed(Node node) {
        KTable<Object, Object> table = table(node);
        if (node.text("until").equals("window_close")) {
            return node.has("grace_ms") ? changesSuppressed(table, node.number("grace_ms", 0)) : windowSuppressed(table);
        }
        Suppressed.BufferConfig<?> bound = Suppressed.BufferConfig.unbounded();
        if (node.has("max_records")) {
            var most = Suppressed.BufferConfig.maxRecords(node.number("max_records", 0));
            bound = "shutdown".equals(node.text("when_full")) ? most.shutDownWhenFull() : most.emitEarlyWhenFull();
        }
        return table.suppress(Suppressed.untilTimeLimit(Duration.ofMillis(node.number("limit_ms", 0)), bound));
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static Object windowSuppressed(KTable table) {
        return table.suppress((Suppressed) Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded()));
    }

    /** Of a table that is read as changes: no aggregation of the topology says its grace, so that the node does. */
    @SuppressWarnings({"unchecked", "rawtypes"})
    private static Object changesSuppressed(KTable table, long graceMs) {
        var closing = new FinalResultsSuppressionBuilder(null, Suppressed.BufferConfig.unbounded());
        return table.suppress(closing.buildFinalResultsSuppression(Duration.ofMillis(graceMs)));
    }

    private Object ofStream(Node node) {
        KStream<Object, Object> in = stream(node, "in");
        Functions.Fn fn = node.has("fn") ? node.function("fn") : null;
        boolean keyed = node.flag("key_aware");
        return switch (node.text("op")) {
            case "map" -> in.map((k, v) -> keyValue(fn.call(k, v)));
            case "flat_map" -> in.flatMap((k, v) -> ((List<?>) fn.call(k, v)).stream().map(Described::keyValue).toList());
            case "map_values" -> keyed ? in.mapValues((k, v) -> fn.call(k, v)) : in.mapValues(v -> fn.call(v));
            case "flat_map_values" -> keyed
                    ? in.flatMapValues((k, v) -> objects(fn.call(k, v)))
                    : in.flatMapValues(v -> objects(fn.call(v)));
            case "select_key" -> in.selectKey((k, v) -> fn.call(k, v));
            case "filter" -> in.filter((k, v) -> (Boolean) fn.call(k, v));
            case "filter_not" -> in.filterNot((k, v) -> (Boolean) fn.call(k, v));
            case "repartition" -> in.repartition(Repartitioned.with(JSON, JSON));
            case "to_table" -> in.toTable(kept(node));
            default -> throw new IllegalArgumentException("operator " + node.text("op") + " is unknown for streams");
        };
    }

    @SuppressWarnings("unchecked")
    private static List<Object> objects(Object list) {
        return (List<Object>) list;
    }

    private Object ofTable(Node node) {
        KTable<Object, Object> in = table(node);
        Functions.Fn fn = node.has("fn") ? node.function("fn") : null;
        boolean kept = node.has("store");
        return switch (node.text("op")) {
            case "filter" -> kept
                    ? in.filter((k, v) -> (Boolean) fn.call(k, v), kept(node))
                    : in.filter((k, v) -> (Boolean) fn.call(k, v));
            case "filter_not" -> kept
                    ? in.filterNot((k, v) -> (Boolean) fn.call(k, v), kept(node))
                    : in.filterNot((k, v) -> (Boolean) fn.call(k, v));
            case "map_values" -> mapped(node, in, fn);
            case "transform_values" -> Transformers.add(this, node, in);
            case "to_stream" -> node.has("key_fn") ? rekeyed(in, node.function("key_fn")) : in.toStream();
            default -> throw new IllegalArgumentException("operator " + node.text("op") + " is unknown for tables");
        };
    }

    private static Object rekeyed(KTable<Object, Object> in, Functions.Fn fn) {
        return in.toStream((k, v) -> fn.call(k, v));
    }

    private static Object mapped(Node node, KTable<Object, Object> in, Functions.Fn fn) {
        if (node.flag("key_aware")) {
            return node.has("store") ? in.mapValues((k, v) -> fn.call(k, v), kept(node)) : in.mapValues((k, v) -> fn.call(k, v));
        }
        return node.has("store") ? in.mapValues(v -> fn.call(v), kept(node)) : in.mapValues(v -> fn.call(v));
    }
}
