"""What is refused, with its line and column."""

from __future__ import annotations

import pytest

from penstock.state.errors import TopologyError
from penstock.topologies.dsl.builder import StreamsBuilder
from tests.unit.topologies.sql.conftest import inputs_of

MATCH = "SELECT * FROM bids MATCH_RECOGNIZE (ORDER BY rowtime MEASURES "


@pytest.mark.parametrize(
    ("text", "place", "problem"),
    [
        ("SELECT a FROM", "1:13", "Expected table name"),
        ("SELECT price FROM bids; SELECT 1", "1:1", "is not a single SELECT"),
        ("DROP TABLE bids", "1:1", "is not a single SELECT"),
        ("SELECT price FROM nope", "1:19", "no input is named nope"),
        ("SELECT prise FROM bids", "1:8", "did you mean 'price'?"),
        ("SELECT auction,\n  price + url\nFROM bids", "2:3", "int64 + string is not defined"),
        ("SELECT price\nFROM bids\nWHERE url", "3:7", "needs a condition"),
        ("SELECT DISTINCT price FROM bids", "1:17", "DISTINCT is not supported here"),
        ("SELECT price FROM bids ORDER BY price", "1:33", "ORDER is not supported here"),
        ("SELECT price FROM bids LIMIT 3", "1:30", "LIMIT is not supported here"),
        ("WITH x AS (SELECT 1) SELECT price FROM bids", "1:6", "WITH is not supported here"),
        ("SELECT SUM(price) OVER () FROM bids", "1:8", "OVER () is not supported"),
        ("SELECT SOUNDEX(url) FROM bids", "1:8", "SOUNDEX(url) is not supported"),
        ("SELECT price AS a, url AS a FROM bids", "1:20", "two columns are named a"),
        ("SELECT CAST(price AS GEOMETRY) FROM bids", "1:13", "there is no cast to"),
        ("SELECT SUM(DISTINCT price) FROM bids", "1:8", "DISTINCT is only allowed in COUNT"),
        ("SELECT price FROM bids GROUP BY auction", "1:8", "price is neither grouped by nor in an aggregate"),
        ("SELECT * FROM bids GROUP BY auction", "1:8", "name the columns and aggregates"),
        ("SELECT url + 1 AS x FROM bids GROUP BY url", "1:8", "string + int64 is not defined"),
        ("SELECT SUM(url) FROM bids", "1:8", "sum() takes"),
        ("SELECT price FROM bids HAVING price > 1", "1:31", "HAVING without GROUP BY"),
        ("SELECT COUNT(*) FROM bids GROUP BY TUMBLE(price, INTERVAL '1' SECOND)", "1:43", "windows use rowtime"),
        ("SELECT COUNT(*) FROM bids GROUP BY TUMBLE(rowtime, 5)", "1:52", "give a duration such as INTERVAL"),
        ("SELECT COUNT(*) FROM bids GROUP BY HOP(rowtime, INTERVAL '1' SECOND)", "1:36", "HOP takes (rowtime, slide, size)"),
        ("SELECT window_start FROM bids GROUP BY auction", "1:8", "without a window"),
        ("SELECT COUNT(*) FROM users", "1:8", "rows of a table cannot be aggregated here"),
        ("SELECT 1 AS x FROM bids, asks", "1:26", "a join needs a condition"),
        ("SELECT 1 AS x FROM bids b JOIN asks a ON b.price > a.price", "1:42", "needs an equality"),
        ("SELECT 1 AS x FROM bids b JOIN asks a ON b.price = a.price", "1:32", "two streams need a bound on time"),
        ("SELECT 1 AS x FROM bids b JOIN asks b ON b.price = b.price", "1:32", "two inputs are named b"),
        (
            "SELECT 1 AS x FROM bids b RIGHT JOIN users u ON b.price = u.key",
            "1:38",
            "RIGHT JOIN with a table is not supported",
        ),
        ("SELECT 1 AS x FROM bids b JOIN users u ON b.url = u.name", "1:32", "a table can only be joined on its key"),
        ("SELECT 1 AS x FROM bids b JOIN asks a ON b.url = a.url AND price = 1", "1:60", "whose is price? Say b.… or a.…"),
        ("SELECT COUNT(price) IGNORE NULLS FROM bids", "1:8", "is not supported"),
        (
            "SELECT MAX(rowtime) AS t FROM bids",
            "1:12",
            "make it a column in a subquery: FROM (SELECT rowtime AS its_rowtime",
        ),
        ("SELECT COUNT(*) FILTER (WHERE key = 'a') FROM bids", "1:31", "key is not available here, only columns are"),
        ("SELECT price FROM (SELECT price FROM bids)", "1:27", "a subquery needs a name"),
        (MATCH.replace("rowtime", "price") + "A.price AS p PATTERN (A))", "1:46", "ORDER BY rowtime"),
        (MATCH + "A.price AS p PATTERN (A | B) DEFINE A AS A.price > 1)", "1:87", "| is not supported in a pattern"),
        (MATCH + "C.price AS p PATTERN (A B) DEFINE A AS A.price > 1)", "1:63", "C is not a variable of the pattern"),
        (MATCH + "A.price AS p PATTERN (A B) DEFINE A AS PREV(A.price) > 1)", "1:102", "PREV is not supported"),
        (MATCH + "A.key AS k PATTERN (A) DEFINE A AS A.price > 1)", "1:63", "key is not available here, only columns are"),
        (MATCH + "A.price AS p PATTERN (A) DEFINE Z AS Z.price > 1)", "1:95", "Z is not in the pattern"),
    ],
)  # fmt: skip
def test_refusals(text: str, place: str, problem: str) -> None:
    """One line each: the place, and what to do."""
    builder = StreamsBuilder()
    with pytest.raises(TopologyError) as caught:
        builder.sql(text, **inputs_of(builder))
    assert str(caught.value).startswith(f"SQL, line {place}: ")
    assert problem in str(caught.value)


def test_an_input_must_be_a_stream_or_a_table() -> None:
    """And an open quote is told as such."""
    with pytest.raises(TopologyError, match="the input 'bids' is 3; give a KStream or a KTable"):
        StreamsBuilder().sql("SELECT 1 FROM bids", bids=3)  # type: ignore[arg-type]  # the mistake is the test
    with pytest.raises(TopologyError, match="is a quote or bracket left open"):
        StreamsBuilder().sql("SELECT 'a FROM bids")
