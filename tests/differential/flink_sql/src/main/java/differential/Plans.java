package differential;

import java.time.ZoneId;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.flink.api.dag.Transformation;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.source.legacy.SourceFunction;
import org.apache.flink.table.api.Table;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.table.connector.ChangelogMode;
import org.apache.flink.types.Row;

/** Queries as Flink's planner translates them, each once. */
final class Plans {
    /** A query's operators, the last one first, and the names of its columns. */
    record Plan(Transformation<?> end, List<String> columns) {}

    private final StreamTableEnvironment tables;
    private final Map<String, Plan> known = new HashMap<>();

    Plans() {
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.getExecutionEnvironment();
        environment.setParallelism(1);
        tables = StreamTableEnvironment.create(environment);
        tables.getConfig().setLocalTimeZone(ZoneId.of("UTC"));
        for (String name : Inputs.ALL.keySet()) {
            DataStream<Row> stream = environment.addSource(new Nothing(), name, Inputs.type(name));
            Table table = Inputs.isTable(name)
                    ? tables.fromChangelogStream(stream, Inputs.schema(name), ChangelogMode.upsert())
                    : tables.fromDataStream(stream, Inputs.schema(name));
            tables.createTemporaryView("`" + name + "`", table);
        }
    }

    Plan of(String query) {
        return known.computeIfAbsent(query, text -> {
            Table result = tables.sqlQuery(text);
            return new Plan(
                    tables.toChangelogStream(result).getTransformation(),
                    result.getResolvedSchema().getColumnNames());
        });
    }

    /** Stands for an input, whose records the pipeline is given. */
    private static final class Nothing implements SourceFunction<Row> {
        private static final long serialVersionUID = 1;

        @Override
        public void run(SourceContext<Row> context) {}

        @Override
        public void cancel() {}
    }
}
