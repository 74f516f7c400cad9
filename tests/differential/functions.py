"""The functions that descriptions name, as Python text in the conformance format. ``Functions.java`` has the same names."""

from __future__ import annotations

from typing import Any

FUNCTIONS: dict[str, str] = {
    # values
    "upper": "lambda v: None if v is None else S(v).upper()",
    "tagged": 'lambda v: S(v) + "\'"',
    "c_to_null": "lambda v: None if v is not None and S(v)[0] == 'c' else v",
    "key_tagged": "lambda k, v: S(k) + '/' + S(v)",
    "pieces": "lambda v: [] if v is None else v.split('.')",
    "parts": "lambda v: v.split(',')",
    "always_x": "lambda v: 'x'",
    "twice": "lambda v: [S(v), S(v) + '!']",
    "key_twice": "lambda k, v: [S(k) + '/' + S(v), S(v)]",
    # keys, and pairs of key and value
    "by_letter": "lambda k, v: None if v is None else S(v)[0]",
    "by_all": "lambda k, v: 'all'",
    "by_key_and_letter": "lambda k, v: S(k) + S(None if v is None else S(v)[0])",
    "swapped": "lambda k, v: (None if v is None else S(v)[0], S(k) + ':' + S(v))",
    "both_ways": "lambda k, v: [(k, v), (None if v is None else S(v)[0], S(k) + ':' + S(v))]",
    "letter_of": "lambda v: None if v is None else S(v)[0]",
    "letter_or_none": "lambda v: None if v is None or S(v)[0] == 'n' else S(v)[0]",
    "row_by_letter": "lambda k, v: (S(v)[0], v)",
    "row_by_letter_or_none": "lambda k, v: (None if S(v)[0] == 'n' else S(v)[0], v)",
    "row_by_all": "lambda k, v: ('all', S(k) + ':' + S(v))",
    "row_by_number": "lambda k, v: (None if v == 0 else S(v), k)",
    "row_by_all_above_zero": "lambda k, v: (None if v == 0 else 'all', S(k) + ':' + S(v))",
    "row_by_text": "lambda k, v: (S(v), k)",
    "row_by_window_key": "lambda k, v: (k.key, v)",
    "row_by_window_start": "lambda k, v: (k.start_ms, S(k.key) + ':' + S(v))",
    "window_text": "lambda k, v: S(k.key) + '@' + S(k.start_ms)",
    "window_key": "lambda k, v: k.key",
    # predicates
    "not_c": "lambda k, v: v is None or S(v)[0] != 'c'",
    "is_a": "lambda k, v: v is not None and S(v)[0] == 'a'",
    "is_b": "lambda k, v: v is not None and S(v)[0] == 'b'",
    "is_null": "lambda k, v: v is None",
    "always": "lambda k, v: True",
    "odd": "lambda k, v: v is not None and v % 2 == 1",
    "small": "lambda k, v: v is not None and v < 3",
    "key_not_q": "lambda k, v: k != 'q'",
    "short": "lambda k, v: len(S(v)) < 9",
    # aggregates: reducers (a, v), adders and subtractors (k, v, a), mergers (k, a, b)
    "empty": "lambda: ''",
    "zero": "lambda: 0",
    "nothing": "lambda: None",
    "chain": "lambda a, v: a + ',' + v",
    "least": "lambda a, v: a if S(a) <= S(v) else v",
    "newest": "lambda a, v: v",
    "chain_or_null": "lambda a, v: None if len(S(a)) > 8 else a + ',' + v",
    "to_null": "lambda a, v: None",
    "unchain": "lambda a, v: S(a) + ',-' + S(v)",
    "append": "lambda k, v, a: S(a) + '+' + S(v)",
    "append_keyed": "lambda k, v, a: S(a) + '+' + S(k) + S(v)",
    "append_or_null": "lambda k, v, a: None if len(S(a)) > 8 else S(a) + '+' + S(v)",
    "append_left": "lambda k, v, a: S(a) + '<' + S(v)",
    "append_right": "lambda k, v, a: S(a) + '>' + S(v)",
    "append_third": "lambda k, v, a: S(a) + '^' + S(v)",
    "plus_one": "lambda k, v, a: a + 1",
    "minus_one": "lambda k, v, a: a - 1",
    "plus_number": "lambda k, v, a: a + v",
    "minus_number": "lambda k, v, a: a - v",
    "take_out": "lambda k, v, a: S(a) + '-' + S(v)",
    "merged": "lambda k, a, b: '(' + S(a) + '|' + S(b) + ')'",
    "merged_sum": "lambda k, a, b: a + b",
    # joiners (l, r)
    "pair": "lambda l, r: S(l) + '|' + S(r)",
    "pair_or_null": "lambda l, r: None if r is not None and S(r)[0] == 'b' else S(l) + '|' + S(r)",
    "left_only": "lambda l, r: l",
}

_FIELDS = frozenset(
    ["when", "key_fn", "init", "adder", "reducer", "subtractor", "merger", "joiner", "key_mapper", "fk_extractor"]
)
"""The fields of nodes that name functions; ``fn`` is one too, but for aggregates."""


def in_words(node: Any) -> Any:
    """A description with the functions' text in place of their names: what the conformance format has."""
    if isinstance(node, list):
        return [in_words(n) for n in node]
    if not isinstance(node, dict):
        return node
    return {name: _worded(node, name, value) for name, value in node.items()}


def _worded(node: dict[str, Any], name: str, value: Any) -> Any:
    if name in _FIELDS or (name == "fn" and node.get("op") != "aggregate"):
        return FUNCTIONS[value]
    return in_words(value)
