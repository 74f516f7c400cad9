package peers;

import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.CloseOptions.GroupMembershipOperation;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;

/**
 * One workload, named by the argument, until SIGTERM. Orders come from the environment; CACHE_BYTES sets the record
 * cache, KS_EXTRA further settings as "key=value;key=value"; with LEAVE_GROUP=true the member leaves its group when it ends,
 * which it does not otherwise.
 */
public final class Main {
    private Main() {}

    private static String order(String name, String otherwise) {
        String value = System.getenv(name);
        return value == null || value.isEmpty() ? otherwise : value;
    }

    private static Properties settings() {
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, order("APP_ID", null));
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, order("BOOTSTRAP", null));
        settings.put(StreamsConfig.STATE_DIR_CONFIG, order("STATE_DIR", null));
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, order("THREADS", "1"));
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, order("GUARANTEE", StreamsConfig.AT_LEAST_ONCE));
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, order("COMMIT_MS", "1000"));
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, order("CACHE_BYTES", "10485760"));
        settings.put(StreamsConfig.TOPOLOGY_OPTIMIZATION_CONFIG, StreamsConfig.OPTIMIZE);
        settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG), "earliest");
        settings.put(StreamsConfig.producerPrefix(ProducerConfig.COMPRESSION_TYPE_CONFIG), "lz4");
        for (String pair : order("KS_EXTRA", "").split(";")) {
            int equals = pair.indexOf('=');
            if (equals > 0) {
                settings.put(pair.substring(0, equals), pair.substring(equals + 1));
            }
        }
        return settings;
    }

    private static CloseOptions closing() {
        boolean leaves = Boolean.parseBoolean(order("LEAVE_GROUP", "false"));
        return CloseOptions.timeout(Duration.ofSeconds(20)).withGroupMembershipOperation(
            leaves ? GroupMembershipOperation.LEAVE_GROUP : GroupMembershipOperation.REMAIN_IN_GROUP);
    }

    public static void main(String[] arguments) throws InterruptedException {
        Properties settings = settings();
        StreamsBuilder builder = new StreamsBuilder();
        long windowMs = Long.parseLong(order("WINDOW_MS", "10000"));
        Workloads.add(
            arguments[0], builder, order("TOPIC_IN", ""), order("TOPIC_TABLE", ""), order("TOPIC_OUT", ""), windowMs);
        KafkaStreams streams = new KafkaStreams(builder.build(settings), settings);
        CountDownLatch failed = new CountDownLatch(1);
        streams.setStateListener((now, before) -> {
            System.out.println("state " + now);
            if (now == KafkaStreams.State.ERROR) {
                failed.countDown();
            }
        });
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(closing())));
        streams.start();
        failed.await();
        System.exit(1);
    }
}
