package differential;

import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.function.Function;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.kstream.Aggregator;
import org.apache.kafka.streams.kstream.CogroupedKStream;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.Initializer;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KGroupedTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Merger;
import org.apache.kafka.streams.kstream.Reducer;
import org.apache.kafka.streams.kstream.SessionWindowedKStream;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.TimeWindowedKStream;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.UnlimitedWindows;
import org.apache.kafka.streams.processor.StateStore;

/** Aggregations of grouped streams and tables, with and without windows. */
final class Aggregations {
    private Aggregations() {}

    private static Initializer<Object> init(Node node) {
        Functions.Fn fn = node.function("init");
        return () -> fn.call();
    }

    private static Aggregator<Object, Object, Object> adder(Node node, String field) {
        Functions.Fn fn = node.function(field);
        return (k, v, a) -> fn.call(k, v, a);
    }

    private static Reducer<Object> reducer(Node node, String field) {
        Functions.Fn fn = node.function(field);
        return (a, v) -> fn.call(a, v);
    }

    private static Merger<Object, Object> merger(Node node) {
        Functions.Fn fn = node.function("merger");
        return (k, a, b) -> fn.call(k, a, b);
    }

    private static <V, S extends StateStore> Materialized<Object, V, S> kept(Node node) {
        Materialized<Object, V, S> made =
                node.has("store") ? Materialized.as(node.text("store")) : Materialized.with(null, null);
        made.withKeySerde(Described.JSON);
        if (!"count".equals(node.text("fn"))) {
            @SuppressWarnings("unchecked")
            var serde = (org.apache.kafka.common.serialization.Serde<V>) (Object) Described.JSON;
            made.withValueSerde(serde);
        }
        if (node.has("retention_ms") || node.has("kafka_retention_ms")) {
            long retentionMs = node.number("kafka_retention_ms", node.number("retention_ms", 0));
            made.withRetention(Duration.ofMillis(retentionMs));
        } else if (node.flag("kafka_retention_for_merging")) {
            Node window = node.node("window");
            long reachMs = 2 * window.number("gap_ms", 0) + window.number("grace_ms", 0);
            made.withRetention(Duration.ofMillis(reachMs + 1));
        }
        return "per_commit".equals(node.text("emit")) ? made.withCachingEnabled() : made.withCachingDisabled();
    }

    @SuppressWarnings("unchecked")
    static Object add(Node node, Object grouped) {
        if (grouped instanceof KGroupedTable<?, ?> table) {
            return ofTable(node, (KGroupedTable<Object, Object>) table);
        }
        KGroupedStream<Object, Object> stream = (KGroupedStream<Object, Object>) grouped;
        if (!node.has("window")) {
            return switch (node.text("fn")) {
                case "count" -> stream.count(Aggregations.<Long, org.apache.kafka.streams.state.KeyValueStore<Bytes, byte[]>>kept(node));
                case "reduce" -> stream.reduce(reducer(node, "reducer"), kept(node));
                default -> stream.aggregate(init(node), adder(node, "adder"), kept(node));
            };
        }
        Node window = node.node("window");
        if (window.text("type").equals("session")) {
            return ofSessions(node, stream.windowedBy(sessions(window)));
        }
        return switch (window.text("type")) {
            case "sliding" -> ofWindows(node, stream.windowedBy(sliding(window)));
            case "unlimited" -> ofWindows(node, stream.windowedBy(unlimited(window)));
            default -> ofWindows(node, stream.windowedBy(times(window)));
        };
    }

    private static Object ofTable(Node node, KGroupedTable<Object, Object> table) {
        return switch (node.text("fn")) {
            case "count" -> table.count(Aggregations.<Long, org.apache.kafka.streams.state.KeyValueStore<Bytes, byte[]>>kept(node));
            case "reduce" -> table.reduce(reducer(node, "reducer"), reducer(node, "subtractor"), kept(node));
            default -> table.aggregate(init(node), adder(node, "adder"), adder(node, "subtractor"), kept(node));
        };
    }

    private static Duration ms(Node window, String name) {
        return Duration.ofMillis(window.number(name, 0));
    }

    private static TimeWindows times(Node window) {
        TimeWindows made = TimeWindows.ofSizeAndGrace(ms(window, "size_ms"), ms(window, "grace_ms"));
        return window.has("advance_ms") ? made.advanceBy(ms(window, "advance_ms")) : made;
    }

    private static SlidingWindows sliding(Node window) {
        return SlidingWindows.ofTimeDifferenceAndGrace(ms(window, "diff_ms"), ms(window, "grace_ms"));
    }

    private static UnlimitedWindows unlimited(Node window) {
        return UnlimitedWindows.of().startOn(Instant.ofEpochMilli(window.number("start_ms", 0)));
    }

    private static SessionWindows sessions(Node window) {
        return SessionWindows.ofInactivityGapAndGrace(ms(window, "gap_ms"), ms(window, "grace_ms"));
    }

    private static EmitStrategy emission(Node node) {
        return "on_close".equals(node.text("emit")) ? EmitStrategy.onWindowClose() : EmitStrategy.onWindowUpdate();
    }

    private static Object ofWindows(Node node, TimeWindowedKStream<Object, Object> plain) {
        TimeWindowedKStream<Object, Object> windowed = plain.emitStrategy(emission(node));
        return switch (node.text("fn")) {
            case "count" -> windowed.count(Aggregations.<Long, org.apache.kafka.streams.state.WindowStore<Bytes, byte[]>>kept(node));
            case "reduce" -> windowed.reduce(reducer(node, "reducer"), kept(node));
            default -> windowed.aggregate(init(node), adder(node, "adder"), kept(node));
        };
    }

    private static Object ofSessions(Node node, SessionWindowedKStream<Object, Object> plain) {
        SessionWindowedKStream<Object, Object> windowed = plain.emitStrategy(emission(node));
        return switch (node.text("fn")) {
            case "count" -> windowed.count(Aggregations.<Long, org.apache.kafka.streams.state.SessionStore<Bytes, byte[]>>kept(node));
            case "reduce" -> windowed.reduce(reducer(node, "reducer"), kept(node));
            default -> windowed.aggregate(init(node), adder(node, "adder"), merger(node), kept(node));
        };
    }

    static Object cogroup(Node node, Function<String, KGroupedStream<Object, Object>> grouped) {
        List<Node> groups = node.nodes("groups");
        CogroupedKStream<Object, Object> made =
                grouped.apply(groups.get(0).text("in")).cogroup(adder(groups.get(0), "adder"));
        for (Node group : groups.subList(1, groups.size())) {
            made = made.cogroup(grouped.apply(group.text("in")), adder(group, "adder"));
        }
        if (!node.has("window")) {
            return made.aggregate(init(node), kept(node));
        }
        Node window = node.node("window");
        return switch (window.text("type")) {
            case "session" -> made.windowedBy(sessions(window)).aggregate(init(node), merger(node), kept(node));
            case "sliding" -> made.windowedBy(sliding(window)).aggregate(init(node), kept(node));
            case "unlimited" -> made.windowedBy(unlimited(window)).aggregate(init(node), kept(node));
            default -> made.windowedBy(times(window)).aggregate(init(node), kept(node));
        };
    }
}
