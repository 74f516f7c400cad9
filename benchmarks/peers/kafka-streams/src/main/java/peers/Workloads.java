package peers;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.List;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.WindowStore;

/** The four workloads, each the same question that Penstock's topology of that name answers. */
final class Workloads {
    private static final Serde<String> TEXT = Serdes.String();

    public static final class Event {
        public String event_type;
    }

    public static final class Ad {
        public String campaign_id;
    }

    private Workloads() {}

    static void add(String workload, StreamsBuilder builder, String in, String table, String out) {
        switch (workload) {
            case "ysb" -> ysb(builder, in, table, out);
            case "wordcount" -> wordCount(builder, in, out);
            case "enrich" -> enrich(builder, in, table, out);
            case "count" -> count(builder, in);
            default -> throw new IllegalArgumentException("no such workload: " + workload);
        }
    }

    private static void ysb(StreamsBuilder builder, String in, String table, String out) {
        Serde<Ad> ad = Json.serde(Ad.class);
        KTable<String, Ad> ads = builder.table(table, Consumed.with(TEXT, ad));
        builder.stream(in, Consumed.with(TEXT, Json.serde(Event.class)))
            .filter((adId, event) -> "view".equals(event.event_type))
            .mapValues(event -> "")
            .join(ads, (view, found) -> found.campaign_id, Joined.with(TEXT, TEXT, ad))
            .map((adId, campaign) -> KeyValue.pair(campaign, ""))
            .groupByKey(Grouped.with(TEXT, TEXT))
            .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofSeconds(10), Duration.ofHours(1)))
            .count(Materialized.<String, Long, WindowStore<Bytes, byte[]>>as("windows").withKeySerde(TEXT))
            .toStream((window, views) -> window.key() + "@" + window.window().start())
            .mapValues(views -> Long.toString(views))
            .to(out, Produced.with(TEXT, TEXT));
    }

    private static void wordCount(StreamsBuilder builder, String in, String out) {
        builder.stream(in, Consumed.with(Serdes.ByteArray(), TEXT))
            .flatMapValues(line -> List.of(line.toLowerCase().split(" ")))
            .groupBy((key, word) -> word, Grouped.with(TEXT, TEXT))
            .count(counts())
            .toStream()
            .mapValues(uses -> Long.toString(uses))
            .to(out, Produced.with(TEXT, TEXT));
    }

    private static void enrich(StreamsBuilder builder, String in, String table, String out) {
        Serde<ObjectNode> json = Json.serde(ObjectNode.class);
        KTable<String, ObjectNode> users = builder.table(
            table,
            Consumed.with(TEXT, json),
            Materialized.<String, ObjectNode, KeyValueStore<Bytes, byte[]>>as("users")
                .withKeySerde(TEXT).withValueSerde(json));
        builder.stream(in, Consumed.with(TEXT, json))
            .join(users, (click, user) -> click.<ObjectNode>set("profile", user), Joined.with(TEXT, json, json))
            .to(out, Produced.with(TEXT, json));
    }

    private static void count(StreamsBuilder builder, String in) {
        builder.stream(in, Consumed.with(TEXT, Serdes.ByteArray()))
            .groupByKey(Grouped.with(TEXT, Serdes.ByteArray()))
            .count(counts());
    }

    private static Materialized<String, Long, KeyValueStore<Bytes, byte[]>> counts() {
        return Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as("counts").withKeySerde(TEXT);
    }
}
