package differential;

import java.math.BigDecimal;
import java.time.Instant;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.IdentityHashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.flink.api.dag.Transformation;
import org.apache.flink.streaming.api.transformations.LegacySourceTransformation;
import org.apache.flink.streaming.api.transformations.OneInputTransformation;
import org.apache.flink.streaming.api.transformations.PartitionTransformation;
import org.apache.flink.streaming.api.transformations.TwoInputTransformation;
import org.apache.flink.streaming.api.watermark.Watermark;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import org.apache.flink.types.Row;

/**
 * A planned query, run by Flink's own operators in the harness of Flink's own tests: one element goes through all of them
 * before the next, so that the order of two inputs is the one that was given.
 */
final class Pipeline implements AutoCloseable {
    private final Map<Transformation<?>, Node> nodes = new IdentityHashMap<>();
    private final Map<String, Node> inputs = new LinkedHashMap<>();
    private final List<Object> found = new ArrayList<>();
    private final List<String> columns;

    Pipeline(Plans.Plan plan) throws Exception {
        columns = plan.columns();
        node(plan.end()).to.add((input, element) -> keep(element));
    }

    /** A record of an input. */
    void take(String name, Row row, long ts) throws Exception {
        Node node = inputs.get(name);
        if (node != null) {
            node.pass(new StreamRecord<>(row, ts));
        }
    }

    /** Event time of all inputs. */
    void watermark(long ts) throws Exception {
        for (Node node : inputs.values()) {
            node.pass(new Watermark(ts));
        }
    }

    /** The changes since the last call: the kind of each, and its columns. */
    List<Object> read() {
        List<Object> made = List.copyOf(found);
        found.clear();
        return made;
    }

    @Override
    public void close() throws Exception {
        for (Node node : nodes.values()) {
            node.end();
        }
    }

    private void keep(Object element) {
        if (element instanceof StreamRecord<?> record) {
            Row row = (Row) record.getValue();
            Map<String, Object> made = new LinkedHashMap<>();
            for (int at = 0; at < columns.size(); at++) {
                made.put(columns.get(at), plain(row.getField(at)));
            }
            found.add(Map.of("k", row.getKind().shortString(), "v", made, "ts", 0));
        }
    }

    private static Object plain(Object value) {
        if (value instanceof BigDecimal number) {
            return Map.of("decimal", number.toPlainString());
        }
        if (value instanceof Instant time) {
            return time.toEpochMilli();
        }
        if (value instanceof LocalDateTime time) {
            return time.toInstant(ZoneOffset.UTC).toEpochMilli();
        }
        return value;
    }

    @SuppressWarnings("unchecked")
    private Node node(Transformation<?> of) throws Exception {
        Node known = nodes.get(of);
        if (known != null) {
            return known;
        }
        Node made;
        if (of instanceof LegacySourceTransformation<?>) {
            made = new Node();
            inputs.put(of.getName(), made);
        } else if (of instanceof PartitionTransformation<?>) {
            made = Operators.exchange(of.getOutputType());
            from(of.getInputs().get(0), made, 0);
        } else if (of instanceof OneInputTransformation<?, ?> one) {
            made = Operators.one((OneInputTransformation<Object, Object>) one);
            from(one.getInputs().get(0), made, 0);
        } else if (of instanceof TwoInputTransformation<?, ?, ?> two) {
            made = Operators.two((TwoInputTransformation<Object, Object, Object>) two);
            from(two.getInput1(), made, 0);
            from(two.getInput2(), made, 1);
        } else {
            throw new IllegalArgumentException("no harness for a " + of.getClass().getSimpleName());
        }
        nodes.put(of, made);
        return made;
    }

    private void from(Transformation<?> of, Node to, int input) throws Exception {
        node(of).to.add((ignored, element) -> to.take(input, element));
    }

    /** Takes what comes to an input: a record or a watermark. */
    interface Taking {
        void take(int input, Object element) throws Exception;
    }

    /** An operator, or an input, which passes on what it is given. */
    static class Node {
        final List<Taking> to = new ArrayList<>();

        void take(int input, Object element) throws Exception {
            pass(element);
        }

        final void pass(Object element) throws Exception {
            for (Taking next : to) {
                next.take(0, element);
            }
        }

        void end() throws Exception {}
    }
}
