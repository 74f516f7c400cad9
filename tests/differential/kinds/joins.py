"""Kinds that join: streams with streams, streams with tables."""

from __future__ import annotations

from tests.differential.kinds.kind import (
    WINDOWS,
    Node,
    aggregate,
    by_key,
    count,
    global_table,
    join,
    kind,
    node,
    one_of,
    sink,
    stream,
    table,
)

_GRACE = one_of(2, 10, 40)
SPANS: dict[str, Node] = {
    "symmetric": {"before_ms": 8, "after_ms": 8, "grace_ms": _GRACE},
    "asymmetric": {"before_ms": one_of(2, 12), "after_ms": one_of(0, 5), "grace_ms": _GRACE},
    "only_before": {"before_ms": one_of(5, 10), "after_ms": 0, "grace_ms": _GRACE},
    "only_after": {"before_ms": 0, "after_ms": one_of(5, 10), "grace_ms": _GRACE},
    "same_instant": {"before_ms": 0, "after_ms": 0, "grace_ms": _GRACE},
}

for _type in ("inner", "left", "outer"):
    for _name, _span in SPANS.items():
        kind(
            f"streams_{_type}_{_name}",
            stream("s"),
            stream("t"),
            join("made", "stream_stream", _type, "s", "t", **_span),
            sink("made"),
            ends=True,
            nulls_ahead=True,
        )
        kind(
            f"streams_{_type}_{_name}_all_there",
            stream("s"),
            stream("t"),
            join("made", "stream_stream", _type, "s", "t", **_span),
            sink("made"),
            null_keys=False,
            null_values=False,
            late=False,
            ends=True,
        )
    kind(
        f"streams_{_type}_negative",
        stream("s"),
        stream("t"),
        join("made", "stream_stream", _type, "s", "t", before_ms=10, after_ms=one_of(-6, -1), grace_ms=200),
        sink("made"),
        start_ms=100,
        ends=True,
    )
    kind(
        f"streams_{_type}_rekeyed",
        stream("s"),
        stream("t"),
        node("select_key", "keyed", "s", fn="by_letter"),
        join("made", "stream_stream", _type, "keyed", "t", **SPANS["symmetric"]),
        sink("made"),
        keys_of={"t": "abcn"},
        ends=True,
    )
for _name in ("symmetric", "asymmetric"):
    kind(
        f"streams_right_{_name}",
        stream("s"),
        stream("t"),
        join("made", "stream_stream", "right", "s", "t", **SPANS[_name]),
        sink("made"),
        ends=True,
        nulls_ahead=True,
    )
kind(
    "streams_inner_with_itself",
    stream("s"),
    join("made", "stream_stream", "inner", "s", "s", **SPANS["symmetric"]),
    sink("made"),
)
kind(
    "streams_left_of_a_join",
    stream("s"),
    stream("t"),
    stream("u"),
    join("first", "stream_stream", "inner", "s", "t", **SPANS["symmetric"]),
    join("made", "stream_stream", "left", "first", "u", **SPANS["symmetric"]),
    sink("made"),
    ends=True,
)
kind(
    "streams_outer_mapped",
    stream("s"),
    stream("t"),
    join("first", "stream_stream", "outer", "s", "t", **SPANS["symmetric"]),
    node("map_values", "tagged", "first", fn="tagged"),
    node("filter", "made", "tagged", fn="not_c"),
    sink("made"),
    ends=True,
)
kind(
    "streams_inner_counted",
    stream("s"),
    stream("t"),
    join("first", "stream_stream", "inner", "s", "t", **SPANS["symmetric"]),
    by_key("first"),
    aggregate("made", "first_by_key"),
    sink("made"),
    late=False,
)
kind(
    "streams_inner_of_tables",
    table("t"),
    table("u"),
    node("to_stream", "s", "t"),
    node("to_stream", "r", "u"),
    join("made", "stream_stream", "inner", "s", "r", **SPANS["symmetric"]),
    sink("made"),
)
kind(
    "streams_inner_of_mapped",
    stream("s"),
    stream("t"),
    node("map_values", "mapped", "s", fn="c_to_null"),
    join("made", "stream_stream", "inner", "mapped", "t", **SPANS["symmetric"]),
    sink("made"),
)

# -- a stream and a table ----------------------------------------------------------------------------------------

for _type in ("inner", "left"):
    kind(f"table_{_type}", stream("s"), table("t"), join("made", "stream_table", _type, "s", "t"), sink("made"))
    kind(
        f"table_{_type}_filtered",
        stream("s"),
        table("t"),
        node("filter", "kept", "t", fn="not_c"),
        node("map_values", "upper", "kept", fn="upper"),
        join("made", "stream_table", _type, "s", "upper"),
        sink("made"),
    )
    kind(
        f"table_{_type}_rekeyed",
        stream("s"),
        table("t"),
        node("select_key", "keyed", "s", fn="by_letter"),
        join("made", "stream_table", _type, "keyed", "t"),
        sink("made"),
        keys_of={"t": "abcn"},
    )
    kind(
        f"table_{_type}_of_a_count",
        stream("s"),
        stream("t"),
        by_key("t"),
        count("n", "t_by_key"),
        join("made", "stream_table", _type, "s", "n"),
        sink("made"),
    )
    kind(
        f"table_{_type}_of_a_join",
        stream("s"),
        table("t"),
        table("u"),
        join("both", "table_table", "outer", "t", "u"),
        join("made", "stream_table", _type, "s", "both"),
        sink("made"),
    )
    kind(
        f"table_{_type}_counted",
        stream("s"),
        table("t"),
        join("first", "stream_table", _type, "s", "t", joiner="pair_or_null"),
        by_key("first"),
        aggregate("made", "first_by_key"),
        sink("made"),
        sink("first", "between"),
    )
    kind(
        f"table_{_type}_of_the_same_stream",
        stream("s"),
        node("to_table", "rows", "s"),
        join("made", "stream_table", _type, "s", "rows"),
        sink("made"),
    )
    kind(
        f"versioned_{_type}",
        stream("s"),
        table("t", versioned_history_ms=one_of(20, 1000)),
        join("made", "stream_table", _type, "s", "t"),
        sink("made"),
    )
    kind(
        f"versioned_{_type}_grace",
        stream("s"),
        table("t", versioned_history_ms=one_of(60, 1000)),
        join("made", "stream_table", _type, "s", "t", grace_ms=one_of(0, 10, 40)),
        sink("made"),
        null_keys=False,
        ends=True,
        nulls_ahead=True,
    )
    kind(
        f"versioned_{_type}_filtered",
        stream("s"),
        table("t", versioned_history_ms=1000),
        node("filter", "kept", "t", fn="not_c"),
        join("made", "stream_table", _type, "s", "kept"),
        sink("made"),
    )
    kind(
        f"global_{_type}",
        stream("s"),
        global_table("g"),
        join("made", "stream_global_table", _type, "s", "g", key_mapper="by_letter"),
        sink("made"),
        keys_of={"g": "abcn"},
    )
    kind(
        f"global_{_type}_twice",
        stream("s"),
        global_table("g"),
        join("first", "stream_global_table", _type, "s", "g", key_mapper="by_letter"),
        join("made", "stream_global_table", _type, "first", "g", key_mapper="by_letter"),
        sink("made"),
        keys_of={"g": "abcn"},
    )
kind(
    "table_left_of_closed_windows",
    stream("s"),
    table("t"),
    by_key("s"),
    aggregate("rows", "s_by_key", window=WINDOWS["tumbling"], emit="on_close", kafka_retention_ms=100_000),
    node("to_stream", "told", "rows", key_fn="window_key"),
    join("made", "stream_table", "left", "told", "t"),
    sink("made"),
    null_values=False,
)
kind(
    "versioned_left_grace_null_keys",
    stream("s"),
    table("t", versioned_history_ms=1000),
    join("made", "stream_table", "left", "s", "t", grace_ms=10),
    sink("made"),
    null_values=False,
)
