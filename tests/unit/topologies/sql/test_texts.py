"""Literals, quoted names and comments reach the engine as they were written."""

from __future__ import annotations

import pytest

from penstock.state.errors import TopologyError
from penstock.state.log import Record
from penstock.topologies.dsl.builder import StreamsBuilder
from tests.unit.topologies.sql.conftest import Bid, Query, inputs_of

WITHIN = ") WITHIN INTERVAL '5' SECOND"


@pytest.mark.parametrize("url", ["session (main)", "Session(", WITHIN, "PATTERN (", "a -- b"])
def test_words_in_literals_are_no_keywords(query: Query, url: str) -> None:
    """Neither in what is compared nor in what is given out."""
    quoted = url.replace("'", "''")
    text = f"SELECT '{quoted}' AS said, url AS \"session (x)\" FROM bids WHERE url = '{quoted}'"
    rows = query(text, bids=[Record("k", Bid(1, 1, 1, url), 0), Record("k", Bid(1, 1, 1, "z"), 1)])
    assert rows == [("k", {"said": url, "session (x)": url})]


def test_words_in_comments_are_no_keywords(query: Query) -> None:
    """A comment may stand anywhere, between a word and its bracket too."""
    text = """SELECT COUNT(*) AS n -- SESSION (x) PATTERN (
              FROM bids GROUP BY SESSION /* WITHIN */ (rowtime, INTERVAL '1' SECOND)"""
    rows = query(text, bids=[Record("k", Bid(1, 1, 1), 0), Record("k", Bid(1, 1, 1), 90_000)])
    assert [value for _, value in rows] == [{"n": 1}]


def test_words_in_measures_do_not_begin_the_pattern(query: Query) -> None:
    """The pattern is the one outside of literals, and so is its bound on time."""
    text = """SELECT * FROM bids MATCH_RECOGNIZE (
                PARTITION BY auction ORDER BY rowtime
                MEASURES A.url || ' PATTERN (C) WITHIN INTERVAL ''1'' SECOND' AS x -- PATTERN (Z)
                PATTERN (A B) WITHIN /* or so */ INTERVAL '2' SECOND
                DEFINE A AS A.url = ') WITHIN INTERVAL ''1'' SECOND', B AS B.price > 0)"""
    url = ") WITHIN INTERVAL '1' SECOND"
    times = [(url, 0), ("b", 1500), ("c", 90_000)]
    rows = query(text, bids=[Record("k", Bid(1, 1, 1, of), ts) for of, ts in times])
    assert [value["x"] for _, value in rows] == [url + " PATTERN (C) WITHIN INTERVAL '1' SECOND"]


@pytest.mark.parametrize(
    ("within", "place", "problem"),
    [
        ("WITHIN INTERVAL '5' YEAR", "2:21", "YEAR is not a unit of time here"),
        ("WITHIN INTERVAL 5 SECOND", "2:8", "give a duration such as INTERVAL '10' SECOND"),
        ("WITHIN INTERVAL '1.5' SECOND", "2:8", "give a duration such as INTERVAL '10' SECOND"),
    ],
)
def test_a_bound_on_time_is_a_whole_number_of_a_unit(within: str, place: str, problem: str) -> None:
    """Else it is refused where it stands."""
    builder = StreamsBuilder()
    pattern = f"PATTERN (A B)\n{within} DEFINE A AS A.price > 0"
    text = f"SELECT * FROM bids MATCH_RECOGNIZE (ORDER BY rowtime MEASURES B.price AS p {pattern})"
    with pytest.raises(TopologyError) as caught:
        builder.sql(text, **inputs_of(builder))
    assert str(caught.value).startswith(f"SQL, line {place}: {problem}")
