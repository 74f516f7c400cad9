package differential;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.common.typeutils.base.StringSerializer;
import org.apache.flink.cep.functions.PatternProcessFunction;
import org.apache.flink.cep.functions.TimedOutPartialMatchHandler;
import org.apache.flink.cep.nfa.compiler.NFACompiler;
import org.apache.flink.cep.operator.CepOperator;
import org.apache.flink.cep.pattern.Pattern;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import org.apache.flink.streaming.util.KeyedOneInputStreamOperatorTestHarness;
import org.apache.flink.util.Collector;
import org.apache.flink.util.OutputTag;

/** One pattern with one input, entry by entry. */
final class Run {
    private static final OutputTag<String> TIMEOUTS = new OutputTag<>("timeouts", Types.STRING);
    private static final OutputTag<String> LATE = new OutputTag<>("late", Types.STRING);

    private final Map<String, Object> run;
    private final List<Object> steps = new ArrayList<>();

    Run(Map<String, Object> run) {
        this.run = run;
    }

    /** What each step put out, and the error that ended the run. */
    Map<String, Object> outcome() {
        Map<String, Object> made = new LinkedHashMap<>();
        made.put("steps", steps);
        try {
            play();
        } catch (Exception error) {
            made.put("error", error.getClass().getSimpleName() + " " + error.getMessage());
        }
        Event.forgetAll();
        return made;
    }

    @SuppressWarnings("unchecked")
    private void play() throws Exception {
        Pattern<String, ?> pattern = Patterns.made((Map<String, Object>) run.get("pattern"));
        CepOperator<String, String, String> operator = new CepOperator<>(
                StringSerializer.INSTANCE,
                false,
                NFACompiler.compileFactory(pattern, true),
                null,
                pattern.getAfterMatchSkipStrategy(),
                new Telling(),
                LATE);
        try (KeyedOneInputStreamOperatorTestHarness<String, String, String> harness =
                new KeyedOneInputStreamOperatorTestHarness<>(operator, Event::key, Types.STRING)) {
            harness.open();
            for (Map<String, Object> entry : (List<Map<String, Object>>) run.get("input")) {
                take(harness, entry);
                steps.add(read(harness));
            }
        }
    }

    private static void take(
            KeyedOneInputStreamOperatorTestHarness<String, String, String> harness, Map<String, Object> entry)
            throws Exception {
        if (entry.get("event") instanceof Map<?, ?> event) {
            harness.processElement(new StreamRecord<>(Event.written(event), ((Number) entry.get("ts")).longValue()));
        } else {
            Object ts = entry.get("ts");
            harness.processWatermark("max".equals(ts) ? Long.MAX_VALUE : ((Number) ts).longValue());
        }
    }

    private static Map<String, Object> read(KeyedOneInputStreamOperatorTestHarness<String, String, String> harness) {
        Map<String, Object> made = new LinkedHashMap<>();
        keep(made, "matches", harness.getOutput());
        keep(made, "timeouts", harness.getSideOutput(TIMEOUTS));
        keep(made, "late", harness.getSideOutput(LATE));
        return made;
    }

    private static void keep(Map<String, Object> made, String sink, Queue<?> found) {
        if (found == null) {
            return;
        }
        List<Object> rows = new ArrayList<>();
        for (Object element : found) {
            if (element instanceof StreamRecord<?> record) {
                Map<String, Object> row = new LinkedHashMap<>();
                row.put("v", Event.read((String) record.getValue()));
                row.put("ts", record.hasTimestamp() ? record.getTimestamp() : null);
                rows.add(row);
            }
        }
        found.clear();
        if (!rows.isEmpty()) {
            made.put(sink, rows);
        }
    }

    /** Tells matches and what was not completed in time, as events by stage. */
    private static final class Telling extends PatternProcessFunction<String, String>
            implements TimedOutPartialMatchHandler<String> {
        @Override
        public void processMatch(Map<String, List<String>> match, Context context, Collector<String> out) {
            out.collect(text(match));
        }

        @Override
        public void processTimedOutMatch(Map<String, List<String>> match, Context context) {
            context.output(TIMEOUTS, text(match));
        }

        private static String text(Map<String, List<String>> match) {
            Map<String, Object> made = new LinkedHashMap<>();
            match.forEach((stage, events) -> made.put(stage, events.stream().map(Event::read).toList()));
            return Event.written(made);
        }
    }
}
