package differential;

import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.json.JsonMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Answers JSON lines: {"runs": [{"query", "input"}]} with {"runs": [what each run put out]}. The first line that it prints
 * names its inputs and their columns.
 */
public final class Main {
    private static final ObjectMapper JSON = JsonMapper.builder()
            .enable(DeserializationFeature.USE_LONG_FOR_INTS)
            .enable(DeserializationFeature.USE_BIG_DECIMAL_FOR_FLOATS)
            .build();

    private Main() {}

    public static void main(String[] arguments) throws IOException {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        say(out, Inputs.names());
        Plans plans = new Plans();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            say(out, answer(plans, JSON.readValue(line, Map.class)));
        }
    }

    private static void say(PrintStream out, Object what) throws IOException {
        out.println(JSON.writeValueAsString(what));
        out.flush();
    }

    private static Map<String, Object> answer(Plans plans, Map<?, ?> request) {
        List<Object> runs = new ArrayList<>();
        for (Object run : (List<?>) request.get("runs")) {
            @SuppressWarnings("unchecked")
            Map<String, Object> fields = (Map<String, Object>) run;
            runs.add(outcome(plans, fields));
        }
        return Map.of("runs", runs);
    }

    /** What each step put out, and the error that ended the run. */
    @SuppressWarnings("unchecked")
    private static Map<String, Object> outcome(Plans plans, Map<String, Object> run) {
        List<Object> steps = new ArrayList<>();
        Map<String, Object> made = new LinkedHashMap<>();
        made.put("steps", steps);
        try (Pipeline pipeline = new Pipeline(plans.of((String) run.get("query")))) {
            for (Map<String, Object> entry : (List<Map<String, Object>>) run.get("input")) {
                steps.add(step(pipeline, entry));
            }
        } catch (Exception error) {
            made.put("error", root(error));
        }
        return made;
    }

    private static Map<String, Object> step(Pipeline pipeline, Map<String, Object> entry) throws Exception {
        if ("watermark".equals(entry.get("event"))) {
            Object ts = entry.get("ts");
            pipeline.watermark("max".equals(ts) ? Long.MAX_VALUE : ((Number) ts).longValue());
        } else {
            String topic = (String) entry.get("topic");
            pipeline.take(topic, Inputs.row(topic, entry), ((Number) entry.get("ts")).longValue());
        }
        List<Object> rows = pipeline.read();
        return rows.isEmpty() ? Map.of() : Map.of("out", rows);
    }

    private static String root(Throwable error) {
        Throwable last = error;
        while (last.getCause() != null) {
            last = last.getCause();
        }
        return last.getClass().getSimpleName() + " " + last.getMessage();
    }
}
