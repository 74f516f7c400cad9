"""The rows of one write become one change per key."""

from __future__ import annotations

import json

import hypothesis.strategies as st
from hypothesis import given

from penstock.streams.connectors.collapsed_rows import as_json, collapsed
from penstock.streams.connectors.table_rows import TableRow

DEFAULTS = {"a": "da", "b": "db"}
KEYS = st.sampled_from(["x", "y", 1])
VALUES = st.none() | st.dictionaries(st.sampled_from(["a", "b"]), st.integers(0, 9))
Table = dict[object, dict[str, object]]


def apply(table: Table, key: object, columns: dict[str, object] | None, *, fresh: bool = False) -> None:
    if columns is None:
        table.pop(key, None)
    else:
        before = DEFAULTS if fresh else table.get(key, DEFAULTS)
        table[key] = {**before, **columns}


@given(before=st.dictionaries(KEYS, st.fixed_dictionaries({"a": st.integers(), "b": st.integers()})), records=st.data())
def test_the_effect_is_that_of_all_rows_in_order(before: Table, records: st.DataObject) -> None:
    rows = [TableRow((k,), v) for k, v in records.draw(st.lists(st.tuples(KEYS, VALUES), max_size=12))]
    one_by_one, at_once = dict(before), dict(before)
    for row in rows:
        apply(one_by_one, row.key[0], row.columns)
    changes = collapsed(rows)
    for change in reversed(changes):  # in any order
        apply(at_once, change.key[0], change.columns, fresh=change.fresh)
    assert at_once == one_by_one
    assert len({change.key for change in changes}) == len(changes)


def test_json_has_what_json_lacks_as_text() -> None:
    row = {"b": b"\x01\xff", "f": float("-inf"), "big": 1 << 70, "n": -(1 << 63), "t": True, "d": {"x": [1.5, None]}}
    assert json.loads(as_json([row])) == [
        {"b": "\\x01ff", "f": "-inf", "big": 1 << 70, "n": -(1 << 63), "t": True, "d": {"x": [1.5, None]}}
    ]
