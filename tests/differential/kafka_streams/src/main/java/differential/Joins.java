package differential;

import java.time.Duration;
import org.apache.kafka.streams.kstream.GlobalKTable;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.ValueJoiner;

/** Joins of any two of streams, tables and global tables. */
final class Joins {
    private Joins() {}

    @SuppressWarnings("unchecked")
    static Object add(Node node, Object left, Object right) {
        Functions.Fn fn = node.function("joiner");
        ValueJoiner<Object, Object, Object> joiner = (l, r) -> fn.call(l, r);
        return switch (node.text("kind")) {
            case "stream_stream" -> streams(
                    node, (KStream<Object, Object>) left, (KStream<Object, Object>) right, joiner);
            case "stream_table" -> withTable(
                    node, (KStream<Object, Object>) left, (KTable<Object, Object>) right, joiner);
            case "stream_global_table" -> withGlobal(
                    node, (KStream<Object, Object>) left, (GlobalKTable<Object, Object>) right, joiner);
            case "table_table" -> tables(node, (KTable<Object, Object>) left, (KTable<Object, Object>) right, joiner);
            case "table_table_fk" -> foreign(node, (KTable<Object, Object>) left, (KTable<Object, Object>) right, joiner);
            default -> throw new IllegalArgumentException("join kind " + node.text("kind") + " is unknown");
        };
    }

    private static Object streams(
            Node node, KStream<Object, Object> left, KStream<Object, Object> right, ValueJoiner<Object, Object, Object> joiner) {
        Duration before = Duration.ofMillis(node.number("before_ms", 0));
        Duration after = Duration.ofMillis(node.number("after_ms", 0));
        Duration grace = Duration.ofMillis(node.number("grace_ms", 0));
        Duration widest = before.compareTo(after) > 0 ? before : after;
        JoinWindows windows =
                JoinWindows.ofTimeDifferenceAndGrace(widest, grace).before(before).after(after);
        StreamJoined<Object, Object, Object> joined =
                StreamJoined.with(Described.JSON, Described.JSON, Described.JSON);
        return switch (node.text("type")) {
            case "inner" -> left.join(right, joiner, windows, joined);
            case "left" -> left.leftJoin(right, joiner, windows, joined);
            // Kafka Streams has no right joins: they are left joins with the sides exchanged.
            case "right" -> right.leftJoin(
                    left, exchanged(joiner), windows.before(after).after(before), joined);
            default -> left.outerJoin(right, joiner, windows, joined);
        };
    }

    private static ValueJoiner<Object, Object, Object> exchanged(ValueJoiner<Object, Object, Object> joiner) {
        return (r, l) -> joiner.apply(l, r);
    }

    private static Object withTable(
            Node node, KStream<Object, Object> left, KTable<Object, Object> right, ValueJoiner<Object, Object, Object> joiner) {
        Joined<Object, Object, Object> joined = Joined.with(Described.JSON, Described.JSON, Described.JSON);
        if (node.has("grace_ms")) {
            joined = joined.withGracePeriod(Duration.ofMillis(node.number("grace_ms", 0)));
        }
        return node.text("type").equals("left")
                ? left.leftJoin(right, joiner, joined)
                : left.join(right, joiner, joined);
    }

    private static Object withGlobal(
            Node node, KStream<Object, Object> left, GlobalKTable<Object, Object> right, ValueJoiner<Object, Object, Object> joiner) {
        Functions.Fn key = node.function("key_mapper");
        return node.text("type").equals("left")
                ? left.leftJoin(right, (k, v) -> key.call(k, v), joiner)
                : left.join(right, (k, v) -> key.call(k, v), joiner);
    }

    private static Object tables(
            Node node, KTable<Object, Object> left, KTable<Object, Object> right, ValueJoiner<Object, Object, Object> joiner) {
        boolean kept = node.has("store");
        return switch (node.text("type")) {
            case "inner" -> kept ? left.join(right, joiner, Described.kept(node)) : left.join(right, joiner);
            case "left" -> kept ? left.leftJoin(right, joiner, Described.kept(node)) : left.leftJoin(right, joiner);
            case "right" -> kept
                    ? right.leftJoin(left, exchanged(joiner), Described.kept(node))
                    : right.leftJoin(left, exchanged(joiner));
            default -> kept ? left.outerJoin(right, joiner, Described.kept(node)) : left.outerJoin(right, joiner);
        };
    }

    private static Object foreign(
            Node node, KTable<Object, Object> left, KTable<Object, Object> right, ValueJoiner<Object, Object, Object> joiner) {
        Functions.Fn key = node.function("fk_extractor");
        java.util.function.Function<Object, Object> extractor = v -> key.call(v);
        boolean isLeft = node.text("type").equals("left");
        if (node.has("store")) {
            return isLeft
                    ? left.leftJoin(right, extractor, joiner, Described.kept(node))
                    : left.join(right, extractor, joiner, Described.kept(node));
        }
        return isLeft ? left.leftJoin(right, extractor, joiner) : left.join(right, extractor, joiner);
    }
}
