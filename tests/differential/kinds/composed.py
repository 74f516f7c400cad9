"""Kinds whose shape is random, too: chains and joins of streams, and of tables.

They meet what no list of shapes does: an operator behind another. Only operators are drawn whose answers do not depart from
Kafka Streams', but for tombstones and repeated rows, so that nothing else is excused.
"""

from __future__ import annotations

from random import Random

from tests.differential.kinds.kind import Node, drawn_kind, node, sink, stream, table

MORE_MAX = 6
STEPS: tuple[tuple[str, str], ...] = (
    ("filter", "not_c"),
    ("filter_not", "is_a"),
    ("filter", "key_not_q"),
    ("map_values", "upper"),
    ("map_values", "tagged"),
    ("map_values", "c_to_null"),
    ("flat_map_values", "twice"),
    ("flat_map", "both_ways"),
    ("map", "swapped"),
    ("select_key", "by_letter"),
    ("select_key", "by_key_and_letter"),
)
"""Operators of streams, and their functions."""
ROWS: tuple[tuple[str, str], ...] = (
    ("filter", "not_c"),
    ("filter_not", "is_a"),
    ("filter", "short"),
    ("map_values", "upper"),
    ("map_values", "tagged"),
    ("map_values", "c_to_null"),
)
"""Operators of tables."""
FOLDS: tuple[dict[str, str], ...] = (
    {"fn": "count"},
    {"fn": "reduce", "reducer": "chain"},
    {"fn": "reduce", "reducer": "least"},
    {"fn": "aggregate", "init": "empty", "adder": "append"},
)


def _streams(rng: Random) -> list[Node]:
    """Streams that are changed, merged, counted, joined with a table and put out, in any order."""
    nodes: list[Node] = [stream("s"), stream("t"), table("u")]
    ids = ["s", "t"]
    for number in range(rng.randint(2, MORE_MAX)):
        made, of = f"n{number}", rng.choice(ids[-2:])
        what = rng.choice(("step", "step", "step", "merge", "fold", "rows", "join"))
        if what == "step":
            op, fn = rng.choice(STEPS)
            nodes.append(node(op, made, of, fn=fn))
        elif what == "merge":
            nodes.append(node("merge", made, rng.sample(ids, 2)))
        elif what == "fold":
            nodes += [
                node("group_by", f"{made}_groups", of, fn="by_letter")
                if rng.random() < 0.5
                else node("group_by_key", f"{made}_groups", of),
                node("aggregate", f"{made}_rows", f"{made}_groups", **rng.choice(FOLDS)),
                node("map_values", f"{made}_texts", f"{made}_rows", fn="tagged"),
                node("to_stream", made, f"{made}_texts"),
            ]
        elif what == "rows":
            nodes += [node("to_table", f"{made}_rows", of), node("to_stream", made, f"{made}_rows")]
        else:
            type_ = rng.choice(("inner", "left"))
            nodes.append(
                {
                    "op": "join",
                    "id": made,
                    "kind": "stream_table",
                    "type": type_,
                    "left": of,
                    "right": "u",
                    "joiner": "pair",
                }
            )
        ids.append(made)
    return [*nodes, sink(ids[-1]), *([sink(ids[-2], "other")] if len(ids) > 3 else [])]


def _tables(rng: Random) -> list[Node]:
    """Tables that are filtered, mapped, grouped and joined, in any order. No table is joined with what is made of it: that
    has kinds of its own."""
    nodes: list[Node] = [table(topic) for topic in "tuwx"]
    made_of: dict[str, frozenset[str]] = {topic: frozenset(topic) for topic in "tuwx"}
    for number in range(rng.randint(2, MORE_MAX)):
        made, of = f"n{number}", rng.choice(list(made_of)[-4:])
        stored = {"store": f"{made}_rows"} if rng.random() < 0.4 else {}
        others = [other for other in made_of if not made_of[other] & made_of[of]]
        what = rng.choice(("row", "row", "group", "join", "join", "foreign"))
        if what in ("join", "foreign") and others:
            with_ = rng.choice(others)
            nodes.append({"id": made, "left": of, "right": with_, "joiner": "pair", **stored, **_joined(what, rng)})
            made_of[made] = made_of[of] | made_of[with_]
            continue
        if what == "group":
            groups = node("group_by", f"{made}_groups", of, fn="row_by_letter")
            nodes += [groups, node("aggregate", made, f"{made}_groups", fn="count", **stored)]
        else:
            op, fn = rng.choice(ROWS)
            nodes.append(node(op, made, of, fn=fn, **stored))
        made_of[made] = made_of[of]
    return [*nodes, sink(list(made_of)[-1])]


def _joined(what: str, rng: Random) -> Node:
    if what == "foreign":
        return {
            "op": "join",
            "kind": "table_table_fk",
            "type": rng.choice(("inner", "left")),
            "fk_extractor": "letter_of",
        }
    return {"op": "join", "kind": "table_table", "type": rng.choice(("inner", "left", "right", "outer"))}


drawn_kind("composed_streams", _streams)
drawn_kind("composed_tables", _tables, keys="pqab")
