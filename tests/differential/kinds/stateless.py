"""Kinds without state, and with a table made of a stream."""

from __future__ import annotations

from tests.differential.kinds.kind import kind, node, sink, stream


def _one(name: str, op: str, fn: str, **fields: object) -> None:
    kind(f"stateless_{name}", stream("s"), node(op, "made", "s", fn=fn, **fields), sink("made"))


_one("filter", "filter", "not_c")
_one("filter_not", "filter_not", "is_a")
_one("filter_by_key", "filter", "key_not_q")
_one("map", "map", "swapped")
_one("flat_map", "flat_map", "both_ways")
_one("map_values", "map_values", "upper")
_one("map_values_to_null", "map_values", "c_to_null")
_one("map_values_keyed", "map_values", "key_tagged", key_aware=True)
_one("flat_map_values", "flat_map_values", "twice")
_one("flat_map_values_keyed", "flat_map_values", "key_twice", key_aware=True)
_one("flat_map_values_pieces", "flat_map_values", "pieces")
_one("select_key", "select_key", "by_letter")

kind("stateless_repartition", stream("s"), node("repartition", "made", "s"), sink("made"))
kind(
    "stateless_rekeyed_repartition",
    stream("s"),
    node("select_key", "rekeyed", "s", fn="by_key_and_letter"),
    node("repartition", "made", "rekeyed"),
    sink("made"),
)
kind(
    "stateless_split",
    stream("s"),
    {
        "op": "split",
        "in": "s",
        "branches": [{"when": "is_a", "sink": "a"}, {"when": "is_null", "sink": None}, {"when": "is_b", "sink": "b"}],
        "default": "rest",
    },
)
kind(
    "stateless_split_without_default",
    stream("s"),
    {"op": "split", "in": "s", "branches": [{"when": "is_a", "sink": "a"}, {"when": "not_c", "sink": "b"}]},
)
kind("stateless_merge", stream("s"), stream("t"), node("merge", "made", ["s", "t"]), sink("made"))
kind(
    "stateless_merge_of_three",
    stream("s"),
    stream("t"),
    stream("u"),
    node("map_values", "tagged", "t", fn="tagged"),
    node("merge", "made", ["s", "tagged", "u"]),
    sink("made"),
)
kind(
    "stateless_merge_with_itself",
    stream("s"),
    node("filter", "kept", "s", fn="not_c"),
    node("map_values", "upper", "kept", fn="upper"),
    node("merge", "made", ["upper", "kept", "s"]),
    sink("made"),
)
kind(
    "stateless_chain",
    stream("s"),
    node("filter", "kept", "s", fn="not_c"),
    node("flat_map", "both", "kept", fn="both_ways"),
    node("map_values", "upper", "both", fn="upper"),
    node("select_key", "keyed", "upper", fn="by_letter"),
    sink("keyed"),
    sink("upper", "between"),
)
kind("stateless_to_table", stream("s"), node("to_table", "t", "s"), node("to_stream", "made", "t"), sink("made"))
kind(
    "stateless_rekeyed_to_table",
    stream("s"),
    node("select_key", "keyed", "s", fn="by_letter"),
    node("to_table", "t", "keyed", store="rows"),
    node("to_stream", "made", "t"),
    sink("made"),
)
kind(
    "stateless_split_and_merged",
    stream("s"),
    {"op": "split", "in": "s", "branches": [{"when": "is_a", "id": "a"}, {"when": "not_c", "id": "b"}]},
    node("map_values", "upper", "a", fn="upper"),
    node("flat_map_values", "two", "b", fn="twice"),
    node("merge", "made", ["two", "upper"]),
    sink("made"),
    sink("b", "between"),
)
