package differential;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.streams.kstream.Windowed;

/** The functions that descriptions name; tests/differential/functions.py has the same names, as Python. */
final class Functions {
    /** A function of one to three arguments. */
    interface Fn {
        Object call(Object... args);
    }

    private static final Map<String, Fn> KNOWN = new TreeMap<>();

    static {
        values();
        keys();
        predicates();
        aggregates();
        joiners();
    }

    private Functions() {}

    static Fn named(Object name) {
        Fn found = KNOWN.getOrDefault((String) name, CaseFunctions.KNOWN.get((String) name));
        if (found == null) {
            throw new IllegalArgumentException("function " + name + " is unknown on the Java side");
        }
        return found;
    }

    static List<String> names() {
        return new ArrayList<>(KNOWN.keySet());
    }

    /** A value as text; the word null for a null. */
    static String text(Object value) {
        return String.valueOf(value);
    }

    private static String letter(Object value) {
        return value == null ? null : text(value).substring(0, 1);
    }

    private static void values() {
        KNOWN.put("upper", a -> a[0] == null ? null : text(a[0]).toUpperCase());
        KNOWN.put("tagged", a -> text(a[0]) + "'");
        KNOWN.put("c_to_null", a -> "c".equals(letter(a[0])) ? null : a[0]);
        KNOWN.put("key_tagged", a -> text(a[0]) + "/" + text(a[1]));
        KNOWN.put("pieces", a -> a[0] == null ? List.of() : List.of((Object[]) text(a[0]).split("\\.")));
        KNOWN.put("parts", a -> List.of((Object[]) text(a[0]).split(",")));
        KNOWN.put("always_x", a -> "x");
        KNOWN.put("twice", a -> List.of(text(a[0]), text(a[0]) + "!"));
        KNOWN.put("key_twice", a -> List.of(text(a[0]) + "/" + text(a[1]), text(a[1])));
    }

    private static List<Object> pair(Object key, Object value) {
        List<Object> made = new ArrayList<>();
        made.add(key);
        made.add(value);
        return made;
    }

    private static void keys() {
        KNOWN.put("by_letter", a -> letter(a[1]));
        KNOWN.put("by_all", a -> "all");
        KNOWN.put("by_key_and_letter", a -> text(a[0]) + text(letter(a[1])));
        KNOWN.put("swapped", a -> pair(letter(a[1]), text(a[0]) + ":" + text(a[1])));
        KNOWN.put("both_ways", a -> List.of(pair(a[0], a[1]), pair(letter(a[1]), text(a[0]) + ":" + text(a[1]))));
        KNOWN.put("letter_of", a -> letter(a[0]));
        KNOWN.put("letter_or_none", a -> "n".equals(letter(a[0])) ? null : letter(a[0]));
        KNOWN.put("row_by_letter", a -> pair(letter(a[1]), a[1]));
        KNOWN.put("row_by_letter_or_none", a -> "n".equals(letter(a[1])) ? pair(null, a[1]) : pair(letter(a[1]), a[1]));
        KNOWN.put("row_by_all", a -> pair("all", text(a[0]) + ":" + text(a[1])));
        KNOWN.put("row_by_number", a -> pair(text(a[1]).equals("0") ? null : text(a[1]), a[0]));
        KNOWN.put("row_by_all_above_zero", a -> pair(text(a[1]).equals("0") ? null : "all", text(a[0]) + ":" + text(a[1])));
        KNOWN.put("row_by_text", a -> pair(text(a[1]), a[0]));
        KNOWN.put("row_by_window_key", a -> pair(((Windowed<?>) a[0]).key(), a[1]));
        KNOWN.put(
                "row_by_window_start",
                a -> pair(((Windowed<?>) a[0]).window().start(), ((Windowed<?>) a[0]).key() + ":" + text(a[1])));
        KNOWN.put(
                "window_text", a -> ((Windowed<?>) a[0]).key() + "@" + ((Windowed<?>) a[0]).window().start());
        KNOWN.put("window_key", a -> ((Windowed<?>) a[0]).key());
    }

    private static void predicates() {
        KNOWN.put("not_c", a -> !"c".equals(letter(a[1])));
        KNOWN.put("is_a", a -> "a".equals(letter(a[1])));
        KNOWN.put("is_b", a -> "b".equals(letter(a[1])));
        KNOWN.put("is_null", a -> a[1] == null);
        KNOWN.put("always", a -> true);
        KNOWN.put("odd", a -> a[1] != null && ((Long) a[1]) % 2 == 1);
        KNOWN.put("small", a -> a[1] != null && ((Long) a[1]) < 3);
        KNOWN.put("key_not_q", a -> !"q".equals(a[0]));
        KNOWN.put("short", a -> text(a[1]).length() < 9);
    }

    private static void aggregates() {
        KNOWN.put("empty", a -> "");
        KNOWN.put("zero", a -> 0L);
        KNOWN.put("nothing", a -> null);
        KNOWN.put("chain", a -> a[0] + "," + a[1]);
        KNOWN.put("least", a -> text(a[0]).compareTo(text(a[1])) <= 0 ? a[0] : a[1]);
        KNOWN.put("newest", a -> a[1]);
        KNOWN.put("chain_or_null", a -> text(a[0]).length() > 8 ? null : a[0] + "," + a[1]);
        KNOWN.put("to_null", a -> null);
        KNOWN.put("unchain", a -> a[0] + ",-" + a[1]);
        KNOWN.put("append", a -> text(a[2]) + "+" + text(a[1]));
        KNOWN.put("append_keyed", a -> text(a[2]) + "+" + text(a[0]) + text(a[1]));
        KNOWN.put("append_or_null", a -> text(a[2]).length() > 8 ? null : text(a[2]) + "+" + text(a[1]));
        KNOWN.put("append_left", a -> text(a[2]) + "<" + text(a[1]));
        KNOWN.put("append_right", a -> text(a[2]) + ">" + text(a[1]));
        KNOWN.put("append_third", a -> text(a[2]) + "^" + text(a[1]));
        KNOWN.put("plus_one", a -> ((Long) a[2]) + 1);
        KNOWN.put("minus_one", a -> ((Long) a[2]) - 1);
        KNOWN.put("plus_number", a -> CaseFunctions.plus(a[2], a[1]));
        KNOWN.put("minus_number", a -> ((Long) a[2]) - ((Long) a[1]));
        KNOWN.put("take_out", a -> text(a[2]) + "-" + text(a[1]));
        KNOWN.put("merged", a -> "(" + a[1] + "|" + a[2] + ")");
        KNOWN.put("merged_sum", a -> ((Long) a[1]) + ((Long) a[2]));
    }

    private static void joiners() {
        KNOWN.put("pair", a -> text(a[0]) + "|" + text(a[1]));
        KNOWN.put("pair_or_null", a -> "b".equals(letter(a[1])) ? null : text(a[0]) + "|" + text(a[1]));
        KNOWN.put("left_only", a -> a[0]);
    }
}
