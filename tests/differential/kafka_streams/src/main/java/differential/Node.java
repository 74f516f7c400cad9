package differential;

import java.util.List;
import java.util.Map;

/** One node of a description, read by field names. */
record Node(Map<String, Object> fields) {
    boolean has(String name) {
        return fields.get(name) != null;
    }

    String text(String name) {
        return (String) fields.get(name);
    }

    long number(String name, long otherwise) {
        return has(name) ? ((Number) fields.get(name)).longValue() : otherwise;
    }

    boolean flag(String name) {
        return Boolean.TRUE.equals(fields.get(name));
    }

    Functions.Fn function(String name) {
        return Functions.named(fields.get(name));
    }

    @SuppressWarnings("unchecked")
    Node node(String name) {
        return new Node((Map<String, Object>) fields.get(name));
    }

    @SuppressWarnings("unchecked")
    List<Object> list(String name) {
        return (List<Object>) fields.get(name);
    }

    @SuppressWarnings("unchecked")
    List<Node> nodes(String name) {
        return list(name).stream().map(n -> new Node((Map<String, Object>) n)).toList();
    }
}
