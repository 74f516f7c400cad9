package differential;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.LongStream;

/** The functions of conformance cases, by their Python text: what a case has is what its check runs. */
final class CaseFunctions {
    static final Map<String, Functions.Fn> KNOWN = new HashMap<>();

    static {
        values();
        pairs();
        predicates();
        aggregates();
        joiners();
    }

    private CaseFunctions() {}

    private static String[] split(Object value, String separator) {
        return ((String) value).split(separator, -1);
    }

    private static String text(Object value) {
        return Functions.text(value);
    }

    private static long number(Object value) {
        return (Long) value;
    }

    /** Python's plus: of numbers or texts. */
    static Object plus(Object one, Object two) {
        return one instanceof Long number ? (Object) (number + (Long) two) : (String) one + (String) two;
    }

    /** Python's int: of a text, or of a number without its fraction. */
    private static long whole(Object value) {
        return value instanceof Number number ? number.longValue() : Long.parseLong((String) value);
    }

    private static void values() {
        KNOWN.put("lambda v: None", a -> null);
        KNOWN.put("lambda v: v.split('|')[0]", a -> split(a[0], "\\|")[0]);
        KNOWN.put("lambda v: v.split('|')[1]", a -> split(a[0], "\\|")[1]);
        KNOWN.put("lambda v: None if v.split('|')[1] == 'returnNull' else v.split('|')[1]", a -> {
            String found = split(a[0], "\\|")[1];
            return found.equals("returnNull") ? null : found;
        });
        KNOWN.put("lambda k, v: k", a -> a[0]);
        KNOWN.put("lambda k, v: v", a -> a[1]);
        KNOWN.put("lambda k, v: None", a -> null);
        KNOWN.put("lambda k, v: len(v) + k", a -> text(a[1]).length() + number(a[0]));
        KNOWN.put("lambda k, v: v.split(',')[1]", a -> split(a[1], ",")[1]);
        KNOWN.put("lambda k, v: v.split(',')[1] if ',' in v else None", a -> {
            String[] parts = split(a[1], ",");
            return parts.length > 1 ? parts[1] : null;
        });
        KNOWN.put("lambda k, v: {1: 'ONE', 2: 'TWO', 3: 'THREE'}[v]", a -> Map.of(1L, "ONE", 2L, "TWO", 3L, "THREE").get(a[1]));
        KNOWN.put("lambda k, v: ['v' + str(v), 'k' + str(k)]", a -> List.of("v" + a[1], "k" + a[0]));
    }

    private static List<Object> pair(Object key, Object value) {
        return new ArrayList<>(Arrays.asList(key, value));
    }

    private static void pairs() {
        KNOWN.put("lambda k, v: (k, v)", a -> pair(a[0], a[1]));
        KNOWN.put("lambda k, v: (v, k)", a -> pair(a[1], a[0]));
        KNOWN.put("lambda k, v: (v, v)", a -> pair(a[1], a[1]));
        KNOWN.put("lambda k, v: (k, int(v))", a -> pair(a[0], whole(a[1])));
        KNOWN.put("lambda k, v: (k[0], k[1])", a -> pair(text(a[0]).substring(0, 1), text(a[0]).substring(1, 2)));
        KNOWN.put(
                "lambda k, v: None if k in ('null', 'NULL') else (v, v)",
                a -> "null".equals(a[0]) || "NULL".equals(a[0]) ? null : pair(a[1], a[1]));
        KNOWN.put("lambda k, v: [(k, v)]", a -> List.of(pair(a[0], a[1])));
        KNOWN.put("lambda k, v: [(str(k * 10 + i), v) for i in range(k)]", a -> LongStream.range(0, number(a[0]))
                .mapToObj(i -> pair(text(number(a[0]) * 10 + i), a[1]))
                .toList());
    }

    private static void predicates() {
        KNOWN.put("lambda k, v: k % 3 == 0", a -> number(a[0]) % 3 == 0);
        for (long divisor : new long[] {2, 3, 5}) {
            KNOWN.put("lambda k, v: v % " + divisor + " == 0", a -> number(a[1]) % divisor == 0);
        }
    }

    private static void aggregates() {
        KNOWN.put("lambda: '0'", a -> "0");
        KNOWN.put("lambda a, b: a + b", a -> plus(a[0], a[1]));
        KNOWN.put("lambda a, b: a - b", a -> number(a[0]) - number(a[1]));
        KNOWN.put("lambda a, b: a + ':' + b", a -> a[0] + ":" + a[1]);
        KNOWN.put("lambda a, b: 'rejoin(' + S(a) + ',' + S(b) + ')'", a -> "rejoin(" + text(a[0]) + "," + text(a[1]) + ")");
        KNOWN.put("lambda k, a, b: S(a) + '+' + S(b)", a -> text(a[1]) + "+" + text(a[2]));
        KNOWN.put("lambda k, v, a: a + '+' + v", a -> a[2] + "+" + a[1]);
        KNOWN.put("lambda k, v, a: a + '-' + v", a -> a[2] + "-" + a[1]);
        KNOWN.put("lambda k, v, a: a + int(v)", a -> number(a[2]) + whole(a[1]));
        KNOWN.put("lambda k, v, a: a + len(v)", a -> number(a[2]) + text(a[1]).length());
        KNOWN.put("lambda k, v, a: a.replace(v, '')", a -> text(a[2]).replace(text(a[1]), ""));
        KNOWN.put("lambda k, v, a: ''.join(sorted(a + v))", a -> {
            char[] letters = (text(a[2]) + text(a[1])).toCharArray();
            Arrays.sort(letters);
            return new String(letters);
        });
    }

    private static void joiners() {
        for (String sign : new String[] {"+", "-", ",", "%"}) {
            KNOWN.put("lambda l, r: S(l) + '" + sign + "' + S(r)", a -> text(a[0]) + sign + text(a[1]));
        }
        KNOWN.put("lambda l, r: '(' + S(l) + ',' + S(r) + ')'", a -> "(" + text(a[0]) + "," + text(a[1]) + ")");
        KNOWN.put("lambda l, r: '(' + l + ',' + r + ')'", a -> "(" + a[0] + "," + a[1] + ")");
    }
}
