package peers;

import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.table.functions.ScalarFunction;

/**
 * The statements of a file, separated by lines of "----", in one JVM until SIGTERM; the last of them is the query. Settings
 * are lines "key: value" of FLINK_SETTINGS.
 */
public final class FlinkSql {
    private FlinkSql() {}

    /** How often a character occurs in a text. */
    public static final class CountChar extends ScalarFunction {
        public long eval(String text, String character) {
            long found = 0;
            for (int i = 0; text != null && i < text.length(); i++) {
                found += text.charAt(i) == character.charAt(0) ? 1 : 0;
            }
            return found;
        }
    }

    public static void main(String[] arguments) throws Exception {
        Configuration settings = new Configuration();
        for (String line : System.getenv("FLINK_SETTINGS").split("\n")) {
            int colon = line.indexOf(": ");
            if (colon > 0) {
                settings.setString(line.substring(0, colon), line.substring(colon + 2));
            }
        }
        int threads = Integer.parseInt(System.getenv("THREADS"));
        StreamTableEnvironment tables =
            StreamTableEnvironment.create(StreamExecutionEnvironment.createLocalEnvironment(threads, settings));
        settings.toMap().forEach((key, value) -> {
            if (key.startsWith("table.")) {
                tables.getConfig().set(key, value);
            }
        });
        tables.createTemporarySystemFunction("COUNT_CHAR", CountChar.class);
        String[] statements = Files.readString(Path.of(arguments[0])).split("\n----\n");
        for (int i = 0; i + 1 < statements.length; i++) {
            tables.executeSql(statements[i]);
        }
        tables.executeSql(statements[statements.length - 1]).await();
    }
}
