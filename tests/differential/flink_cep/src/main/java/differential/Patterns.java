package differential;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.flink.cep.nfa.aftermatch.AfterMatchSkipStrategy;
import org.apache.flink.cep.nfa.aftermatch.SkipToFirstStrategy;
import org.apache.flink.cep.nfa.aftermatch.SkipToLastStrategy;
import org.apache.flink.cep.pattern.GroupPattern;
import org.apache.flink.cep.pattern.Pattern;

/** Patterns of descriptions as Flink's. */
final class Patterns {
    private Patterns() {}

    static Pattern<String, ?> made(Map<String, Object> spec) {
        AfterMatchSkipStrategy skip = skip(spec.get("skip"));
        Pattern<String, ?> made = sequence(stages(spec.get("stages")), skip);
        Object withinMs = spec.get("within_ms");
        return withinMs == null ? made : made.within(Duration.ofMillis(((Number) withinMs).longValue()));
    }

    @SuppressWarnings("unchecked")
    private static List<Map<String, Object>> stages(Object list) {
        return (List<Map<String, Object>>) list;
    }

    private static Pattern<String, ?> sequence(List<Map<String, Object>> stages, AfterMatchSkipStrategy skip) {
        Pattern<String, ?> made = null;
        for (Map<String, Object> stage : stages) {
            made = described(added(made, stage, skip), stage);
        }
        return made;
    }

    @SuppressWarnings("unchecked")
    private static Pattern<String, String> added(
            Pattern<String, ?> before, Map<String, Object> stage, AfterMatchSkipStrategy skip) {
        String name = (String) stage.get("name");
        String contiguity = (String) stage.get("contiguity");
        if (stage.get("group") != null) {
            return (Pattern<String, String>) (Pattern<String, ?>) group(before, stage, contiguity, skip);
        }
        Pattern<String, ?> made = switch (contiguity) {
            case "begin" -> Pattern.<String>begin(name, skip);
            case "next" -> before.next(name);
            case "followed_by" -> before.followedBy(name);
            case "followed_by_any" -> before.followedByAny(name);
            case "not_next" -> before.notNext(name);
            case "not_followed_by" -> before.notFollowedBy(name);
            default -> throw new IllegalArgumentException("contiguity " + contiguity + " is unknown");
        };
        return (Pattern<String, String>) made;
    }

    @SuppressWarnings("unchecked")
    private static GroupPattern<String, ?> group(
            Pattern<String, ?> before, Map<String, Object> stage, String contiguity, AfterMatchSkipStrategy skip) {
        Pattern<String, String> inner = (Pattern<String, String>)
                sequence(stages(stage.get("group")), AfterMatchSkipStrategy.noSkip());
        Pattern<String, String> ahead = (Pattern<String, String>) before;
        return switch (contiguity) {
            case "begin" -> Pattern.begin(inner, skip);
            case "next" -> ahead.next(inner);
            case "followed_by" -> ahead.followedBy(inner);
            case "followed_by_any" -> ahead.followedByAny(inner);
            default -> throw new IllegalArgumentException("contiguity " + contiguity + " is unknown for groups");
        };
    }

    private static Pattern<String, ?> described(Pattern<String, String> plain, Map<String, Object> stage) {
        Pattern<String, String> made = plain;
        if (stage.get("where") != null) {
            made = made.where(Conditions.named(stage.get("where")));
        }
        if (stage.get("times") != null) {
            made = repeated(made, (List<?>) stage.get("times"));
        }
        if ("strict".equals(stage.get("inner"))) {
            made = made.consecutive();
        } else if ("combinations".equals(stage.get("inner"))) {
            made = made.allowCombinations();
        }
        if (Boolean.TRUE.equals(stage.get("optional"))) {
            made = made.optional();
        }
        if (Boolean.TRUE.equals(stage.get("greedy"))) {
            made = made.greedy();
        }
        return stage.get("until") == null ? made : made.until(Conditions.named(stage.get("until")));
    }

    private static Pattern<String, String> repeated(Pattern<String, String> stage, List<?> times) {
        int low = ((Number) times.get(0)).intValue();
        if (times.get(1) == null) {
            return low == 1 ? stage.oneOrMore() : stage.timesOrMore(low);
        }
        int high = ((Number) times.get(1)).intValue();
        return low == high ? stage.times(low) : stage.times(low, high);
    }

    private static AfterMatchSkipStrategy skip(Object spec) {
        if (!(spec instanceof Map<?, ?> fields)) {
            return AfterMatchSkipStrategy.noSkip();
        }
        String stage = (String) fields.get("pattern");
        return switch ((String) fields.get("strategy")) {
            case "no_skip" -> AfterMatchSkipStrategy.noSkip();
            case "skip_to_next" -> AfterMatchSkipStrategy.skipToNext();
            case "skip_past_last_event" -> AfterMatchSkipStrategy.skipPastLastEvent();
            case "skip_to_first" -> toFirst(stage, Boolean.TRUE.equals(fields.get("error_on_miss")));
            case "skip_to_last" -> toLast(stage, Boolean.TRUE.equals(fields.get("error_on_miss")));
            default -> throw new IllegalArgumentException("skip strategy " + fields.get("strategy") + " is unknown");
        };
    }

    private static AfterMatchSkipStrategy toFirst(String stage, boolean failing) {
        SkipToFirstStrategy made = AfterMatchSkipStrategy.skipToFirst(stage);
        return failing ? made.throwExceptionOnMiss() : made;
    }

    private static AfterMatchSkipStrategy toLast(String stage, boolean failing) {
        SkipToLastStrategy made = AfterMatchSkipStrategy.skipToLast(stage);
        return failing ? made.throwExceptionOnMiss() : made;
    }
}
