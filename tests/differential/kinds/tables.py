"""Kinds of tables: filtered, mapped, joined, grouped, suppressed, versioned."""

from __future__ import annotations

from tests.differential.kinds.kind import (
    Node,
    aggregate,
    by_key,
    count,
    join,
    kind,
    node,
    one_of,
    reduce,
    sink,
    stream,
    table,
)

TABLES: dict[str, dict[str, int]] = {"table": {}, "versions": {"versioned_history_ms": 1000}}

for _name, _how in TABLES.items():
    kind(f"{_name}_to_stream", table("t", **_how), node("to_stream", "made", "t"), sink("made"))
    for _stored in (False, True):
        _fields = {"store": "rows"} if _stored else {}
        _suffix = "_stored" if _stored else ""
        for _op, _fn in (("filter", "not_c"), ("filter_not", "is_a"), ("map_values", "tagged")):
            kind(
                f"{_name}_{_op}{_suffix}",
                table("t", **_how),
                node(_op, "made", "t", fn=_fn, **_fields),
                sink("made"),
            )
    kind(
        f"{_name}_map_to_null",
        table("t", **_how),
        node("map_values", "made", "t", fn="c_to_null"),
        sink("made"),
    )
    kind(
        f"{_name}_chain",
        table("t", **_how),
        node("map_values", "tagged", "t", fn="key_tagged", key_aware=True),
        node("filter", "kept", "tagged", fn="short"),
        node("map_values", "made", "kept", fn="upper"),
        sink("made"),
    )
    for _fn, _more in (
        ("count", {}),
        ("reduce", {"reducer": "chain", "subtractor": "unchain"}),
        ("aggregate", {"init": "empty", "adder": "append", "subtractor": "take_out"}),
    ):
        kind(
            f"{_name}_grouped_{_fn}",
            table("t", **_how),
            node("group_by", "grouped", "t", fn="row_by_letter"),
            node("aggregate", "made", "grouped", fn=_fn, **_more),
            sink("made"),
        )
kind("table_to_stream_rekeyed", table("t"), node("to_stream", "made", "t", key_fn="by_letter"), sink("made"))
kind(
    "table_grouped_filtered",
    table("t"),
    node("filter", "kept", "t", fn="not_c"),
    node("group_by", "grouped", "kept", fn="row_by_letter"),
    aggregate("made", "grouped", subtractor="take_out"),
    sink("made"),
)
kind(
    "table_grouped_by_one",
    table("t"),
    node("group_by", "grouped", "t", fn="row_by_all"),
    aggregate("made", "grouped", subtractor="take_out", store="rows"),
    sink("made"),
    keys="pqrstu",
)
kind(
    "table_grouped_some_in_none",
    table("t"),
    node("group_by", "grouped", "t", fn="row_by_letter_or_none"),
    aggregate("made", "grouped", subtractor="take_out"),
    sink("made"),
)
kind(
    "table_grouped_to_null",
    table("t"),
    node("group_by", "grouped", "t", fn="row_by_letter"),
    aggregate("made", "grouped", "append_or_null", subtractor="take_out"),
    sink("made"),
)
kind(
    "table_grouped_twice",
    table("t"),
    node("group_by", "grouped", "t", fn="row_by_letter"),
    count("n", "grouped"),
    node("group_by", "again", "n", fn="row_by_text"),
    count("made", "again"),
    sink("made"),
    keys="pqrstu",
)
for _stored in (False, True):
    kind(
        f"table_filter_of_a_count{'_stored' if _stored else ''}",
        stream("s"),
        by_key("s"),
        count("n", "s_by_key"),
        node("filter", "made", "n", fn="small", **({"store": "rows"} if _stored else {})),
        sink("made"),
    )

# -- joins by key ------------------------------------------------------------------------------------------------

_TEN = {"type": "tumbling", "size_ms": 10, "grace_ms": one_of(0, 10)}
_PAIR = (table("t"), table("u"))
for _type in ("inner", "left", "outer"):
    kind(f"tables_{_type}", *_PAIR, join("made", "table_table", _type, "t", "u"), sink("made"))
    kind(f"tables_{_type}_stored", *_PAIR, join("made", "table_table", _type, "t", "u", store="rows"), sink("made"))
    kind(
        f"tables_{_type}_to_null",
        *_PAIR,
        join("made", "table_table", _type, "t", "u", joiner="pair_or_null"),
        sink("made"),
    )
    kind(
        f"tables_{_type}_filtered",
        *_PAIR,
        node("filter", "kept", "t", fn="not_c"),
        node("map_values", "upper", "u", fn="upper"),
        join("made", "table_table", _type, "kept", "upper"),
        sink("made"),
    )
    kind(
        f"tables_{_type}_of_a_join",
        *_PAIR,
        table("w"),
        join("first", "table_table", _type, "t", "u"),
        join("made", "table_table", _type, "first", "w"),
        sink("made"),
    )
    kind(
        f"tables_{_type}_grouped",
        *_PAIR,
        join("first", "table_table", _type, "t", "u"),
        node("group_by", "grouped", "first", fn="row_by_letter"),
        aggregate("made", "grouped", subtractor="take_out"),
        sink("made"),
    )
    kind(
        f"tables_{_type}_versioned",
        table("t", versioned_history_ms=1000),
        table("u", versioned_history_ms=1000),
        join("made", "table_table", _type, "t", "u"),
        sink("made"),
    )
    kind(
        f"tables_{_type}_of_counts",
        stream("s"),
        table("u"),
        by_key("s"),
        count("n", "s_by_key"),
        join("made", "table_table", _type, "n", "u"),
        sink("made"),
    )
    kind(
        f"tables_{_type}_windowed",
        stream("s"),
        stream("t"),
        by_key("s"),
        by_key("t"),
        count("n", "s_by_key", window=_TEN, kafka_retention_ms=100_000),
        reduce("m", "t_by_key", window=_TEN, kafka_retention_ms=100_000),
        join("made", "table_table", _type, "n", "m"),
        sink("made"),
        null_values=False,
        rocksdb=True,
    )
kind(
    "tables_left_windowed_retained",
    stream("s"),
    stream("t"),
    by_key("s"),
    by_key("t"),
    count("n", "s_by_key", window=_TEN, retention_ms=100_000),
    reduce("m", "t_by_key", window=_TEN, retention_ms=100_000),
    join("made", "table_table", "left", "n", "m"),
    sink("made"),
    null_values=False,
    rocksdb=True,
)
kind(
    "tables_inner_windowed_on_close",
    stream("s"),
    stream("t"),
    by_key("s"),
    by_key("t"),
    count("n", "s_by_key", window=_TEN, emit="on_close", kafka_retention_ms=100_000),
    reduce("m", "t_by_key", window=_TEN, emit="on_close", kafka_retention_ms=100_000),
    join("made", "table_table", "inner", "n", "m"),
    sink("made"),
    null_values=False,
    rocksdb=True,
)
kind(
    "tables_inner_windowed_on_close_retained",
    stream("s"),
    stream("t"),
    by_key("s"),
    by_key("t"),
    count("n", "s_by_key", window=_TEN, emit="on_close", retention_ms=100_000),
    reduce("m", "t_by_key", window=_TEN, emit="on_close", retention_ms=100_000),
    join("made", "table_table", "inner", "n", "m"),
    sink("made"),
    null_values=False,
    rocksdb=True,
)
kind(
    "tables_inner_with_its_own_map",
    table("t"),
    node("map_values", "tagged", "t", fn="tagged"),
    join("made", "table_table", "inner", "t", "tagged"),
    sink("made"),
)
kind(
    "tables_outer_with_its_own_filter",
    table("t"),
    node("filter", "kept", "t", fn="not_c"),
    join("made", "table_table", "outer", "t", "kept"),
    sink("made"),
)

# -- joins by a foreign key --------------------------------------------------------------------------------------


def _foreign(name: str, type_: str, *nodes: Node, left: str = "t", right: str = "u", **fields: object) -> None:
    made = join("made", "table_table_fk", type_, left, right, **{"fk_extractor": "letter_of", **fields})
    kind(f"foreign_{type_}{name}", *nodes, made, sink("made"), keys_of={"u": "abc"}, keys="pqrs")


for _type in ("inner", "left"):
    _foreign("", _type, *_PAIR)
    _foreign("_stored", _type, *_PAIR, store="rows")
    _foreign("_some_none", _type, *_PAIR, fk_extractor="letter_or_none")
    _foreign("_to_null", _type, *_PAIR, joiner="pair_or_null")
    _foreign("_left_filtered", _type, *_PAIR, node("filter", "kept", "t", fn="not_c"), left="kept")
    _foreign("_right_filtered", _type, *_PAIR, node("filter", "kept", "u", fn="not_c"), right="kept")
    kind(
        f"foreign_{_type}_grouped",
        *_PAIR,
        join("first", "table_table_fk", _type, "t", "u", fk_extractor="letter_of"),
        node("group_by", "grouped", "first", fn="row_by_letter"),
        aggregate("made", "grouped", subtractor="take_out"),
        sink("made"),
        keys_of={"u": "abc"},
        keys="pqrs",
    )
    kind(
        f"foreign_{_type}_of_a_join",
        *_PAIR,
        table("w"),
        join("first", "table_table_fk", _type, "t", "u", fk_extractor="letter_of"),
        join("made", "table_table", _type, "first", "w"),
        sink("made"),
        keys_of={"u": "abc"},
        keys="pqrs",
    )

# -- suppressed --------------------------------------------------------------------------------------------------

_LIMIT = {"until": "time_limit", "limit_ms": one_of(0, 5, 20)}
kind("suppressed_table", table("t"), node("suppress", "made", "t", **_LIMIT), sink("made"))
kind(
    "suppressed_table_full",
    table("t"),
    node("suppress", "made", "t", max_records=one_of(1, 2, 3), **_LIMIT),
    sink("made"),
    keys="pqrstu",
)
kind(
    "suppressed_count",
    stream("s"),
    by_key("s"),
    count("n", "s_by_key"),
    node("suppress", "made", "n", **_LIMIT),
    sink("made"),
)
kind(
    "suppressed_filter",
    table("t"),
    node("filter", "kept", "t", fn="not_c"),
    node("suppress", "made", "kept", **_LIMIT),
    sink("made"),
)
kind(
    "suppressed_then_grouped",
    table("t"),
    node("suppress", "held", "t", **_LIMIT),
    node("group_by", "grouped", "held", fn="row_by_letter"),
    aggregate("made", "grouped", subtractor="take_out"),
    sink("made"),
)
kind(
    "suppressed_join",
    *_PAIR,
    join("both", "table_table", "outer", "t", "u"),
    node("suppress", "made", "both", **_LIMIT),
    sink("made"),
)
kind(
    "suppressed_then_joined",
    *_PAIR,
    node("suppress", "held", "t", **_LIMIT),
    join("made", "table_table", "left", "held", "u"),
    sink("made"),
)
