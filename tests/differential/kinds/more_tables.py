"""Kinds of tables: right joins, foreign keys of other tables, joined windows, processors of changes."""

from __future__ import annotations

from tests.differential.kinds.kind import (
    WINDOWS,
    aggregate,
    by_key,
    count,
    join,
    kind,
    node,
    reduce,
    sink,
    stream,
    table,
)

_PAIR = (table("t"), table("u"))
_VERSIONS = {"versioned_history_ms": 1000}

for _suffix, _fields in (("", {}), ("_stored", {"store": "rows"}), ("_to_null", {"joiner": "pair_or_null"})):
    kind(f"tables_right{_suffix}", *_PAIR, join("made", "table_table", "right", "t", "u", **_fields), sink("made"))
kind(
    "tables_right_of_a_join",
    *_PAIR,
    table("w"),
    join("first", "table_table", "right", "t", "u"),
    join("made", "table_table", "right", "first", "w"),
    sink("made"),
)
kind(
    "tables_right_grouped",
    *_PAIR,
    join("first", "table_table", "right", "t", "u"),
    node("group_by", "grouped", "first", fn="row_by_letter"),
    aggregate("made", "grouped", subtractor="take_out"),
    sink("made"),
)
for _first in ("inner", "left", "outer"):
    for _second in ("inner", "left", "outer"):
        kind(
            f"tables_{_first}_{_second}_with_one_table",
            *_PAIR,
            join("first", "table_table", _first, "t", "u"),
            join("made", "table_table", _second, "first", "u"),
            sink("made"),
        )

# -- joined windows ----------------------------------------------------------------------------------------------

_EQUAL = {
    "hopping": {**WINDOWS["hopping"], "advance_ms": 4},
    "sliding": {**WINDOWS["sliding"], "diff_ms": 10},
    "session": WINDOWS["session"],
}
for _type, _window in _EQUAL.items():
    for _how in ("inner", "outer"):
        kind(
            f"tables_{_how}_windowed_{_type}",
            stream("s"),
            stream("t"),
            by_key("s"),
            by_key("t"),
            count("n", "s_by_key", window=_window, retention_ms=100_000),
            reduce("m", "t_by_key", window=_window, retention_ms=100_000),
            join("made", "table_table", _how, "n", "m"),
            sink("made"),
            null_values=False,
        )

# -- foreign keys ------------------------------------------------------------------------------------------------

for _type in ("inner", "left"):
    kind(
        f"foreign_{_type}_versioned",
        table("t", **_VERSIONS),
        table("u", **_VERSIONS),
        join("made", "table_table_fk", _type, "t", "u", fk_extractor="letter_of"),
        sink("made"),
        keys_of={"u": "abc"},
        keys="pqrs",
    )
    kind(
        f"foreign_{_type}_of_reduced",
        stream("s"),
        stream("u"),
        by_key("s"),
        by_key("u"),
        reduce("rows", "s_by_key", "newest"),
        count("n", "u_by_key"),
        join("made", "table_table_fk", _type, "rows", "n", fk_extractor="letter_of"),
        sink("made"),
        keys_of={"u": "abc"},
        keys="pqrs",
    )
    kind(
        f"foreign_{_type}_with_itself",
        table("t"),
        join("made", "table_table_fk", _type, "t", "t", fk_extractor="letter_of"),
        sink("made"),
        keys="abc",
    )
    kind(
        f"foreign_{_type}_twice",
        *_PAIR,
        table("w"),
        join("first", "table_table_fk", _type, "t", "u", fk_extractor="letter_of"),
        join("made", "table_table_fk", _type, "first", "w", fk_extractor="letter_of"),
        sink("made"),
        keys_of={"u": "abc", "w": "abc"},
        keys="pqrs",
    )

# -- changes in processors, and per commit -------------------------------------------------------------------------

kind("table_transformed", table("t"), node("transform_values", "made", "t"), sink("made"))
for _suffix, _fields in (("", {}), ("_stored", {"store": "kept"})):
    _rows = node("transform_values", "rows", "t", **_fields)
    kind(
        f"table_transformed_grouped{_suffix}",
        table("t"),
        _rows,
        node("group_by", "grouped", "rows", fn="row_by_letter"),
        aggregate("made", "grouped", subtractor="take_out"),
        sink("made"),
    )
    kind(
        f"table_transformed_joined{_suffix}",
        *_PAIR,
        _rows,
        join("made", "table_table", "left", "rows", "u"),
        sink("made"),
    )
kind(
    "table_grouped_per_commit",
    table("t"),
    node("group_by", "grouped", "t", fn="row_by_letter"),
    aggregate("made", "grouped", subtractor="take_out", emit="per_commit"),
    sink("made"),
)
