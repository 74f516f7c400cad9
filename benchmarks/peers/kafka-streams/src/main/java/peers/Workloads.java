package peers;

import com.fasterxml.jackson.annotation.JsonPropertyOrder;
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

/** The workloads, each the same question that Penstock's topology of that name answers. */
final class Workloads {
    private static final Serde<String> TEXT = Serdes.String();

    public static final class Event {
        public String event_type;
    }

    public static final class Ad {
        public String campaign_id;
    }

    /** All fields of an event, in the order of the topic's JSON. */
    @JsonPropertyOrder({"user_id", "page_id", "ad_id", "ad_type", "event_type", "event_time", "ip_address"})
    public static final class WholeEvent {
        public String user_id;
        public String page_id;
        public String ad_id;
        public String ad_type;
        public String event_type;
        public long event_time;
        public String ip_address;
    }

    @JsonPropertyOrder({"ad_id", "event_time"})
    public static final class Projected {
        public String ad_id;
        public long event_time;
    }

    private Workloads() {}

    static void add(String workload, StreamsBuilder builder, String in, String table, String out, long windowMs) {
        switch (workload) {
            case "ysb" -> ysb(builder, in, table, out, windowMs);
            case "wordcount" -> wordCount(builder, in, out);
            case "enrich" -> enrich(builder, in, table, out);
            case "count" -> count(builder, in);
            case "pass-through" -> builder
                .stream(in, Consumed.with(Serdes.ByteArray(), Serdes.ByteArray()))
                .to(out, Produced.with(Serdes.ByteArray(), Serdes.ByteArray()));
            case "filter" -> filter(builder, in, out);
            case "project" -> project(builder, in, out);
            default -> throw new IllegalArgumentException("no such workload: " + workload);
        }
    }

    private static void filter(StreamsBuilder builder, String in, String out) {
        Serde<WholeEvent> whole = Json.serde(WholeEvent.class);
        builder.stream(in, Consumed.with(TEXT, whole))
            .filter((adId, event) -> "view".equals(event.event_type))
            .to(out, Produced.with(TEXT, whole));
    }

    /** Reading as the narrow type is the projection: Jackson skips the other fields. */
    private static void project(StreamsBuilder builder, String in, String out) {
        Serde<Projected> narrow = Json.serde(Projected.class);
        builder.stream(in, Consumed.with(TEXT, narrow)).to(out, Produced.with(TEXT, narrow));
    }

    private static void ysb(StreamsBuilder builder, String in, String table, String out, long windowMs) {
        Serde<Ad> ad = Json.serde(Ad.class);
        KTable<String, Ad> ads = builder.table(table, Consumed.with(TEXT, ad));
        builder.stream(in, Consumed.with(TEXT, Json.serde(Event.class)))
            .filter((adId, event) -> "view".equals(event.event_type))
            .mapValues(event -> "")
            .join(ads, (view, found) -> found.campaign_id, Joined.with(TEXT, TEXT, ad))
            .map((adId, campaign) -> KeyValue.pair(campaign, ""))
            .groupByKey(Grouped.with(TEXT, TEXT))
            .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofMillis(windowMs), Duration.ofHours(1)))
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
