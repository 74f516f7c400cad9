package differential;

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
 * Answers JSON lines: {"runs": [{"pattern", "input"}]} with {"runs": [what each run put out]}. The first line that it
 * prints names its conditions.
 */
public final class Main {
    private Main() {}

    public static void main(String[] arguments) throws IOException {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        say(out, Map.of("conditions", Conditions.names()));
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            say(out, answer(Event.JSON.readValue(line, Map.class)));
        }
    }

    private static void say(PrintStream out, Object what) throws IOException {
        out.println(Event.JSON.writeValueAsString(what));
        out.flush();
    }

    private static Map<String, Object> answer(Map<?, ?> request) {
        List<Object> runs = new ArrayList<>();
        for (Object run : (List<?>) request.get("runs")) {
            @SuppressWarnings("unchecked")
            Map<String, Object> fields = (Map<String, Object>) run;
            runs.add(new Run(fields).outcome());
        }
        Map<String, Object> made = new LinkedHashMap<>();
        made.put("runs", runs);
        return made;
    }
}
