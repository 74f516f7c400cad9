package differential;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.Predicate;
import org.apache.flink.cep.pattern.conditions.IterativeCondition;
import org.apache.flink.cep.pattern.conditions.SimpleCondition;

/** The conditions that patterns name; tests/differential/cep.py has the same names, as Python. */
final class Conditions {
    private static final Map<String, IterativeCondition<String>> KNOWN = new TreeMap<>();

    static {
        for (String name : List.of("a", "b", "c")) {
            KNOWN.put("is_" + name, simple(e -> name.equals(Event.name(e))));
        }
        KNOWN.put("is_a_or_b", simple(e -> "a".equals(Event.name(e)) || "b".equals(Event.name(e))));
        KNOWN.put("not_c", simple(e -> !"c".equals(Event.name(e))));
        KNOWN.put("is_big", simple(e -> Event.number(e) > 4));
        KNOWN.put("rising", over((e, c) -> "b".equals(Event.name(e)) && all(c, "b", p -> Event.number(p) < Event.number(e))));
        KNOWN.put("above_a", over((e, c) -> all(c, "a", p -> Event.number(p) < Event.number(e))));
        KNOWN.put("b_while_small", over((e, c) -> "b".equals(Event.name(e)) && sum(c, "b") + Event.number(e) < 12));
    }

    private Conditions() {}

    /** A condition that also looks at what the partial match has. */
    interface Over extends java.io.Serializable {
        boolean test(String event, IterativeCondition.Context<String> context) throws Exception;
    }

    /** A predicate that Flink can ship. */
    interface Simple extends Predicate<String>, java.io.Serializable {}

    private static IterativeCondition<String> simple(Simple test) {
        return SimpleCondition.of(test::test);
    }

    private static IterativeCondition<String> over(Over test) {
        return new IterativeCondition<>() {
            @Override
            public boolean filter(String event, Context<String> context) throws Exception {
                return test.test(event, context);
            }
        };
    }

    private static boolean all(IterativeCondition.Context<String> context, String stage, Predicate<String> test)
            throws Exception {
        for (String event : context.getEventsForPattern(stage)) {
            if (!test.test(event)) {
                return false;
            }
        }
        return true;
    }

    private static long sum(IterativeCondition.Context<String> context, String stage) throws Exception {
        long made = 0;
        for (String event : context.getEventsForPattern(stage)) {
            made += Event.number(event);
        }
        return made;
    }

    static IterativeCondition<String> named(Object name) {
        IterativeCondition<String> found = KNOWN.get((String) name);
        if (found == null) {
            throw new IllegalArgumentException("condition " + name + " is unknown on the Java side");
        }
        return found;
    }

    static List<String> names() {
        return new ArrayList<>(KNOWN.keySet());
    }
}
