package differential;

import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.table.api.DataTypes;
import org.apache.flink.table.api.Schema;
import org.apache.flink.table.runtime.typeutils.ExternalTypeInfo;
import org.apache.flink.table.types.DataType;
import org.apache.flink.types.Row;
import org.apache.flink.types.RowKind;

/** The inputs of every query: two streams of equal columns, and a table of rows by key. */
final class Inputs {
    static final String KEY = "key";

    private static final Map<String, DataType> STREAM = columns(
            "id", DataTypes.BIGINT(),
            "k", DataTypes.STRING(),
            "n", DataTypes.BIGINT(),
            "m", DataTypes.BIGINT(),
            "s", DataTypes.STRING(),
            "x", DataTypes.DOUBLE(),
            "b", DataTypes.BOOLEAN(),
            "d", DataTypes.DECIMAL(10, 2));
    private static final Map<String, DataType> NAMED =
            columns(KEY, DataTypes.STRING().notNull(), "name", DataTypes.STRING(), "n", DataTypes.BIGINT());

    /** The columns of each input, but for the event time. */
    static final Map<String, Map<String, DataType>> ALL = all();

    private Inputs() {}

    private static Map<String, Map<String, DataType>> all() {
        Map<String, Map<String, DataType>> made = new LinkedHashMap<>();
        made.put("l", STREAM);
        made.put("r", STREAM);
        made.put("named", NAMED);
        return made;
    }

    private static Map<String, DataType> columns(Object... namesAndTypes) {
        Map<String, DataType> made = new LinkedHashMap<>();
        for (int at = 0; at < namesAndTypes.length; at += 2) {
            made.put((String) namesAndTypes[at], (DataType) namesAndTypes[at + 1]);
        }
        return made;
    }

    /** The names of the inputs' columns. */
    static Map<String, Object> names() {
        Map<String, Object> made = new LinkedHashMap<>();
        ALL.forEach((name, columns) -> made.put(name, List.copyOf(columns.keySet())));
        return made;
    }

    /** Whether an input is a table: its records are updates by key, and one without a value deletes. */
    static boolean isTable(String name) {
        return ALL.get(name).containsKey(KEY);
    }

    static TypeInformation<Row> type(String name) {
        List<DataTypes.Field> fields = new ArrayList<>();
        ALL.get(name).forEach((column, type) -> fields.add(DataTypes.FIELD(column, type)));
        return ExternalTypeInfo.of(DataTypes.ROW(fields));
    }

    /** The columns, the event time and its watermarks, which are the stream's. */
    static Schema schema(String name) {
        Schema.Builder made = Schema.newBuilder();
        ALL.get(name).forEach(made::column);
        made.columnByMetadata("rowtime", DataTypes.TIMESTAMP_LTZ(3), true);
        made.watermark("rowtime", "SOURCE_WATERMARK()");
        if (isTable(name)) {
            made.primaryKey(KEY);
        }
        return made.build();
    }

    /** An entry of the input as a row. */
    static Row row(String name, Map<String, Object> entry) {
        Map<?, ?> values = (Map<?, ?>) entry.get("v");
        Row made = Row.withPositions(
                !isTable(name) ? RowKind.INSERT : values == null ? RowKind.DELETE : RowKind.UPDATE_AFTER,
                ALL.get(name).size());
        int at = 0;
        for (Map.Entry<String, DataType> column : ALL.get(name).entrySet()) {
            boolean ofKey = isTable(name) && column.getKey().equals(KEY);
            Object value = ofKey ? entry.get("k") : values == null ? null : values.get(column.getKey());
            made.setField(at++, typed(value, column.getValue()));
        }
        return made;
    }

    private static Object typed(Object value, DataType type) {
        if (value == null) {
            return null;
        }
        return switch (type.getLogicalType().getTypeRoot()) {
            case DOUBLE -> ((Number) value).doubleValue();
            case DECIMAL -> new BigDecimal((String) value);
            default -> value;
        };
    }
}
