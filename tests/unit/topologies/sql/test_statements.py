"""What statements give, through the real engine."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.state.log import Record, Windowed
from tests.unit.topologies.sql.conftest import Bid, Query, User

USERS = [Record(1, User("ann"), 0), Record(2, User("bob", "rome"), 0)]


def values(rows: list[tuple[Any, Any]]) -> list[Any]:
    """The values alone."""
    return [v for _, v in rows]


def test_projection_and_filter(query: Query, bids: list[Record]) -> None:
    """Columns under their names; names in any case; the event time and the key."""
    rows = query(
        "SELECT auction, Price * 2 AS twice, rowtime, b.key FROM bids AS b WHERE PRICE >= 20 AND bidder IN (1, 2)",
        bids=bids,
    )
    assert rows[:2] == [
        ("k2", {"auction": 1, "twice": 40, "rowtime": 2000, "key": "k2"}),
        ("k4", {"auction": 1, "twice": 80, "rowtime": 4000, "key": "k4"}),
    ]
    assert values(query("SELECT * FROM bids WHERE url LIKE '%/3'", bids=bids)) == [bids[3].value]
    assert values(query("SELECT *, bids.price + 1 AS more FROM bids", bids=bids[:1]))[0]["more"] == 1


def test_undeclared_columns(query: Query) -> None:
    """Of JSON objects, with nested fields."""
    events = [Record("a", {"user": {"name": "x"}, "n": 3}, 0), Record("b", {"n": None}, 1)]
    rows = query("SELECT e.user.name AS who, n + 1 AS more FROM events e", events=events)
    assert values(rows) == [{"who": "x", "more": 4}, {"who": None, "more": None}]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("-7 / 2", -3),
        ("MOD(-7, 2)", -1),
        ("7 / 2.0", 3.5),
        ("2 + 3 * 4 - 1", 13),
        ("price % 4", 2),
        ("'a' || 'b' || url", "aba/b/1"),
        ("UPPER(SPLIT_PART(url, '/', 2))", "B"),
        ("SUBSTRING(url, 3, 1)", "b"),
        ("LENGTH(TRIM('  x '))", 1),
        ("REPLACE(url, '/', '-')", "a-b-1"),
        ("REGEXP_EXTRACT(url, '([0-9]+)$', 1)", "1"),
        ("REGEXP_LIKE(url, '^a')", True),
        ("url LIKE 'a_b%'", True),
        ("url NOT LIKE 'b%'", True),
        ("CASE WHEN price > 5 THEN 'high' ELSE 'low' END", "high"),
        ("CASE auction WHEN 1 THEN 'one' WHEN 2 THEN 'two' END", "two"),
        ("IF(price > 50, 1, 2)", 2),
        ("NULLIF(auction, 2)", None),
        ("COALESCE(NULLIF(auction, 2), 9)", 9),
        ("GREATEST(price, auction, 3)", 10),
        ("ROUND(price / 3.0, 2)", 3.33),
        ("ABS(-price)", 10),
        ("CAST(price AS DOUBLE)", 10.0),
        ("CAST('12' AS BIGINT) + 1", 13),
        ("TRY_CAST(url AS BIGINT)", None),
        ("price BETWEEN 10 AND 20", True),
        ("price NOT IN (1, 2)", True),
        ("url IS NOT NULL", True),
        ("(price > 100) IS TRUE", False),
        ("NOT (price > 100 OR auction = 1)", True),
        ("EXTRACT(SECOND FROM rowtime)", 1),
        ("HOUR(rowtime)", 0),
        ("tags[1]", "t"),
    ],
)
def test_scalars(query: Query, expression: str, expected: Any) -> None:
    """Every kind of scalar; integers are divided towards zero."""
    rows = query(f"SELECT {expression} AS x FROM bids", bids=[Record("k", Bid(2, 1, 10, "a/b/1", ("t",)), 1000)])
    assert values(rows) == [{"x": expected}]


def test_running_aggregates(query: Query, bids: list[Record]) -> None:
    """A table under a struct of the group's columns; ``HAVING`` deletes nothing that never was."""
    text = """SELECT auction, COUNT(*) AS n, SUM(price) / COUNT(*) AS mean,
                     COUNT(DISTINCT bidder) FILTER (WHERE price > 20) AS dear
              FROM bids GROUP BY auction HAVING COUNT(*) >= 4"""
    rows = [r for r in query(text, bids=bids) if r[1] is not None]
    assert rows == [
        ({"auction": 1}, {"auction": 1, "n": 4, "mean": 30, "dear": 2}),
        ({"auction": 2}, {"auction": 2, "n": 4, "mean": 40, "dear": 3}),
    ]
    assert values(query("SELECT MAX(price) AS top, AVG(price) AS mean FROM bids", bids=bids))[-1] == {
        "top": 70,
        "mean": 35.0,
    }
    assert values(query("SELECT auction % 2 AS odd FROM bids GROUP BY auction % 2", bids=bids))[:2] == [
        {"odd": 1},
        {"odd": 0},
    ]


def test_nulls_are_a_group(query: Query) -> None:
    """As in SQL."""
    events = [Record("a", {"g": None}, 0), Record("b", {"g": 1}, 1), Record("c", {"g": None}, 2)]
    rows = query("SELECT g, COUNT(*) AS n FROM events GROUP BY g", events=events)
    assert values(rows) == [{"g": None, "n": 1}, {"g": 1, "n": 1}, {"g": None, "n": 2}]


def test_columns_of_both_inputs_with_one_name_are_a_group(query: Query, bids: list[Record]) -> None:
    """Each has its own place in the key; one that is named twice has one."""
    text = """SELECT b.price AS bid, a.price AS ask, COUNT(*) AS n FROM bids b JOIN asks a ON b.auction = a.auction
              AND a.rowtime BETWEEN b.rowtime AND b.rowtime + INTERVAL '1' MINUTE
              GROUP BY b.price, a.price, b.price HAVING a.price > b.price"""
    asks = [Record("q", Bid(1, 0, 11), 100), Record("q", Bid(1, 0, 5), 200), Record("q", Bid(1, 0, 11), 300)]
    rows = query(text, bids=bids[:1], asks=asks)
    assert rows == [
        ({"price": 0, "a.price": 11}, {"bid": 0, "ask": 11, "n": 1}),
        ({"price": 0, "a.price": 5}, {"bid": 0, "ask": 5, "n": 1}),
        ({"price": 0, "a.price": 11}, {"bid": 0, "ask": 11, "n": 2}),
    ]


def test_the_time_of_rows_is_aggregated_as_a_column(query: Query, bids: list[Record]) -> None:
    """Which a subquery makes of it."""
    rows = query("SELECT MAX(t) AS last FROM (SELECT *, rowtime AS t FROM bids) AS b", bids=bids[:3])
    assert values(rows)[-1] == {"last": 2000}


def test_windows_give_one_row_when_they_close(query: Query, bids: list[Record]) -> None:
    """Tumbling, hopping and session windows."""
    tumbling = query(
        """SELECT auction, COUNT(*) AS n, window_start, TUMBLE_END(rowtime, INTERVAL '4' SECOND) AS ends
           FROM bids GROUP BY auction, TUMBLE(rowtime, INTERVAL '4' SECOND)""",
        bids=bids,
    )
    assert tumbling == [
        (Windowed({"auction": a}, 0, 4000), {"auction": a, "n": 2, "window_start": 0, "ends": 4000}) for a in (1, 2)
    ]
    hopping = query(
        """SELECT SUM(price) AS total, window_start FROM bids
           GROUP BY HOP(rowtime, INTERVAL '2' SECOND, INTERVAL '4' SECOND)""",
        bids=bids,
    )
    assert values(hopping) == [{"total": 60, "window_start": 0}, {"total": 140, "window_start": 2000}]
    session = query(
        "SELECT bidder, window_start, window_end FROM bids GROUP BY bidder, SESSION(rowtime, INTERVAL '1' SECOND)",
        bids=[bids[0], bids[3], bids[7]],
    )
    assert values(session)[0] == {"bidder": 0, "window_start": 0, "window_end": 1000}


def test_a_session_that_was_emitted_takes_no_more_records(query: Query) -> None:
    """A late record that reaches it begins a session of its own, as in Flink; no record is in two results."""
    late = [Record("a", Bid(1, 0, 3), 4000), Record("b", Bid(2, 0, 0), 5400), Record("a", Bid(1, 0, 4), 4900)]
    found = query(
        "SELECT auction, SUM(price) AS s, window_start FROM bids GROUP BY auction, SESSION(rowtime, INTERVAL '1' SECOND)",
        bids=[*late, Record("end", Bid(3, 0, 0), 60_000)],
    )
    assert [v for v in values(found) if v["auction"] == 1] == [
        {"auction": 1, "s": 3, "window_start": 4000},
        {"auction": 1, "s": 4, "window_start": 4900},
    ]


def test_grace_keeps_windows_open(query: Query, bids: list[Record]) -> None:
    """A late record is in, as long as the grace has not passed."""
    late = [bids[0], bids[3], Record("late", Bid(1, 0, 5), 1000), Record("end", Bid(1, 0, 0), 60_000)]
    text = "SELECT SUM(price) AS s FROM bids GROUP BY TUMBLE(rowtime, INTERVAL '2' SECOND)"
    assert values(query(text, bids=late))[0] == {"s": 0}
    assert values(query(text, bids=late, grace="5s"))[0] == {"s": 5}


def test_stream_table_joins(query: Query, bids: list[Record]) -> None:
    """On the table's key; a left join keeps what meets no row."""
    rows = query(
        """SELECT b.price, u.name, UPPER(city) AS city, u.key AS id
           FROM bids AS b JOIN users AS u ON b.bidder = u.key AND b.price > 10""",
        users=USERS,
        bids=bids[:5],
    )
    assert rows == [
        (2, {"price": 20, "name": "bob", "city": "ROME", "id": 2}),
        (1, {"price": 40, "name": "ann", "city": None, "id": 1}),
    ]
    text = "SELECT price, u.name, u.key AS id FROM bids b LEFT JOIN users u ON u.key = b.bidder"
    left = query(text, users=USERS, bids=bids[:2])
    assert values(left) == [{"price": 0, "name": None, "id": None}, {"price": 10, "name": "ann", "id": 1}]


def test_interval_joins(query: Query, bids: list[Record]) -> None:
    """Bounds on time from both sides, other conditions on the pair, several keys, and what meets nobody."""
    asks = [Record("q", Bid(1, 0, 11), 2500), Record("q", Bid(2, 0, 5), 2500)]
    rows = query(
        """SELECT b.price AS bid, a.price AS ask FROM bids b JOIN asks a ON b.auction = a.auction
           AND b.rowtime BETWEEN a.rowtime - INTERVAL '1' SECOND AND a.rowtime + INTERVAL '500' MILLISECOND
           AND a.price < b.price""",
        asks=asks,
        bids=bids,
    )
    assert values(rows) == [{"bid": 20, "ask": 11}, {"bid": 30, "ask": 5}]
    exact = query(
        """SELECT b.price AS bid FROM bids b JOIN asks a ON b.auction = a.auction AND a.bidder = b.bidder
           AND a.rowtime >= b.rowtime AND a.rowtime < b.rowtime + INTERVAL '2500' MILLISECOND""",
        asks=asks,
        bids=bids,
    )
    assert values(exact) == []
    full = query(
        """SELECT b.price AS bid, a.price AS ask FROM bids b FULL JOIN asks a ON b.auction = a.auction
           AND a.rowtime BETWEEN b.rowtime AND b.rowtime""",
        asks=asks,
        bids=[*bids[:1], Record("k", Bid(3, 0, 0), 90_000)],
    )
    assert sorted(values(full), key=str) == [{"bid": 0, "ask": None}, {"bid": None, "ask": 11}, {"bid": None, "ask": 5}]


def test_a_right_join_keeps_the_records_of_the_right(query: Query, bids: list[Record]) -> None:
    """Those that meet nobody have nulls for the left side; those of the left that meet nobody are gone."""
    rows = query(
        """SELECT b.price AS bid, a.price AS ask, a.auction FROM bids b RIGHT JOIN asks a ON b.auction = a.auction
           AND a.bidder >= b.bidder AND a.rowtime BETWEEN b.rowtime AND b.rowtime + INTERVAL '1' SECOND""",
        bids=[Record("k", Bid(1, 1, 10), 1000), Record("k", Bid(2, 1, 20), 1000)],
        asks=[Record("q", Bid(*ask), ts) for ask, ts in (((1, 1, 5), 1500), ((2, 0, 7), 1500), ((3, 0, 8), 90_000))]
        + [Record("q", Bid(9, 0, 0), 180_000)],
    )
    assert sorted(values(rows), key=str) == [
        {"bid": 10, "ask": 5, "auction": 1},
        {"bid": None, "ask": 7, "auction": 2},
        {"bid": None, "ask": 8, "auction": 3},
    ]


def test_subqueries_and_joins_of_joins(query: Query, bids: list[Record]) -> None:
    """A statement's rows are an input like any other."""
    rows = query(
        """SELECT t.auction, MAX(t.n) AS most FROM
             (SELECT auction, COUNT(*) AS n FROM bids GROUP BY auction, TUMBLE(rowtime, INTERVAL '4' SECOND)) AS t
           WHERE t.n > 1 GROUP BY t.auction""",
        bids=bids,
    )
    assert values(rows) == [{"auction": 1, "most": 2}, {"auction": 2, "most": 2}]
    chained = query(
        """SELECT b.price, a.price AS ask, u.name FROM bids b
           JOIN asks a ON b.auction = a.auction AND a.rowtime BETWEEN b.rowtime AND b.rowtime + INTERVAL '1' SECOND
           JOIN users u ON b.bidder = u.key""",
        users=USERS,
        asks=[Record("q", Bid(2, 0, 7), 1500)],
        bids=bids[:3],
    )
    assert values(chained) == [{"price": 10, "ask": 7, "name": "ann"}]


def test_patterns(query: Query) -> None:
    """A fall and a rise of the price, per auction."""
    prices = [30, 20, 10, 25, 5, 15]
    text = """SELECT auction, top, bottom, rise, n FROM bids MATCH_RECOGNIZE (
                PARTITION BY auction ORDER BY rowtime
                MEASURES START_.price AS top, LAST(DOWN.price) AS bottom, UP.price AS rise, COUNT(DOWN.price) AS n,
                         FIRST(DOWN.rowtime) AS since
                ONE ROW PER MATCH AFTER MATCH SKIP TO LAST UP
                PATTERN (START_ DOWN+ UP) WITHIN INTERVAL '1' MINUTE
                DEFINE DOWN AS DOWN.price < LAST(DOWN.price, 1)
                               OR (LAST(DOWN.price, 1) IS NULL AND DOWN.price < START_.price),
                       UP AS UP.price > LAST(DOWN.price)
              ) AS m WHERE top > 0"""
    records = [Record("k", Bid(1, 0, p), i * 1000) for i, p in enumerate([*prices, 0])]
    assert query(text, bids=records) == [
        ({"auction": 1}, {"auction": 1, "top": 30, "bottom": 10, "rise": 25, "n": 2}),
        ({"auction": 1}, {"auction": 1, "top": 25, "bottom": 5, "rise": 15, "n": 1}),
    ]


def test_running_aggregates_in_a_pattern(query: Query) -> None:
    """With the row at hand among its variable's rows."""
    text = """SELECT * FROM bids MATCH_RECOGNIZE (
                PARTITION BY bidder ORDER BY rowtime
                MEASURES COUNT(A.price) AS n, AVG(A.price) AS mean, B.price AS last_price
                PATTERN (A{2,} B) WITHIN INTERVAL '1' MINUTE
                DEFINE A AS SUM(A.price) <= 30
              )"""
    records = [Record("k", Bid(1, 0, p), i * 1000) for i, p in enumerate([10, 20, 15, 0])]
    assert values(query(text, bids=records)) == [{"bidder": 0, "n": 2, "mean": 15.0, "last_price": 15}]
