"""Places of arrays count from 1, however they are written."""

from __future__ import annotations

import pytest

from penstock.state.errors import TopologyError
from penstock.state.log import Record
from penstock.topologies.dsl.builder import StreamsBuilder
from tests.unit.topologies.sql.conftest import Bid, Query, inputs_of


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("tags[1]", "p"),
        ("tags[3]", "r"),
        ("tags[4]", None),
        ("tags[auction]", "p"),
        ("tags[auction + 1]", "q"),
        ("tags[CAST(auction AS BIGINT)]", "p"),
        ("tags[bidder]", None),
        ("tags[price]", None),
        ("tags[NULLIF(auction, 1)]", None),
        ("ELEMENT_AT(tags, 1)", "p"),
        ("ELEMENT_AT(tags, 3)", "r"),
        ("ELEMENT_AT(tags, -1)", "r"),
        ("ELEMENT_AT(tags, -4)", None),
        ("ELEMENT_AT(tags, auction)", "p"),
        ("ELEMENT_AT(tags, price)", "q"),
        ("ELEMENT_AT(tags, bidder)", None),
    ],
)
def test_elements(query: Query, expression: str, expected: str | None) -> None:
    """``auction`` is 1, ``bidder`` 0, ``price`` -2; null where there is no element."""
    rows = query(f"SELECT {expression} AS x FROM bids", bids=[Record("k", Bid(1, 0, -2, "", ("p", "q", "r")), 0)])
    assert rows == [("k", {"x": expected})]


def test_undeclared_arrays(query: Query) -> None:
    """Likewise."""
    events = [Record("k", {"tags": ["p", "q"], "n": 2}, 0)]
    rows = query("SELECT tags[n] AS a, tags[1] AS b, ELEMENT_AT(tags, n - 3) AS c FROM events", events=events)
    assert rows == [("k", {"a": "q", "b": "p", "c": "q"})]


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("tags[0]", "0 is not a valid index"),
        ("ELEMENT_AT(tags, 0)", "0 is not a valid index"),
        ("tags[-1]", "-1 is not a valid index: an array counts from 1, and ELEMENT_AT"),
        ("tags[url]", "the index of an element is an int64, but url is string"),
    ],
)
def test_what_is_no_place(expression: str, problem: str) -> None:
    """Is refused where it stands."""
    builder = StreamsBuilder()
    with pytest.raises(TopologyError) as caught:
        builder.sql(f"SELECT {expression} AS x FROM bids", **inputs_of(builder))
    assert str(caught.value).startswith("SQL, line 1:") and problem in str(caught.value)
